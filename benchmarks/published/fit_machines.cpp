// SPDX-License-Identifier: Apache-2.0
// For developers: fits the numbers of machines/*.yaml and machines/stacks/*.yaml to measured steps
// of other programs.
//
//   fit_machines SOURCE DECKS [--from FILE] [--iterations N] [--write] [--leave-out FILE]
//
// SOURCE: the root of the sources. DECKS: where rows.py has written the decks. --from: numbers to
// begin with, and a file for those found (a name and a value a line). --write: into the files of
// machines and stacks. --leave-out: a file for the times of rows by numbers that are fitted without
// any row of their source.
//
// Maximum a posteriori: logarithms of the numbers have normal priors (machine_numbers.cpp), those
// of the rows' time ratios a Cauchy distribution, so that odd rows do not steer. Sources with many
// rows weigh less a row. Gauss-Newton with differences.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/input.hpp>
#include <ostrakon/simulate/prediction.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "machine_numbers.hpp"

namespace ostrakon::published {
namespace {

constexpr double deviation = 0.035, cut = 0.09;  // of the logarithm of a row's time
constexpr double step = 0.01;                    // of differences

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds(const PlannedRow& planned, const Numbers& numbers) {
  simulate::Machine machine = make_machine(planned.row().machine, numbers);
  machine.stack = with_fitted(planned.stack(), planned.row().stack, numbers);
  return planned.seconds(machine);
}

/// body(row) for all rows, on a few threads.
template <class Body>
void for_rows(std::size_t rows, const Body& body) {
  constexpr std::size_t threads = 2;
  std::vector<std::thread> all;
  for (std::size_t t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      for (std::size_t r = t; r < rows; r += threads) body(r);
    });
  for (std::thread& thread : all) thread.join();
}

using Vector = std::vector<double>;
using Matrix = std::vector<Vector>;

Vector solve(Matrix matrix, Vector right) {
  const std::size_t n = right.size();
  for (std::size_t i = 0; i < n; ++i) {
    std::size_t pivot = i;
    for (std::size_t k = i; k < n; ++k)
      if (std::fabs(matrix[k][i]) > std::fabs(matrix[pivot][i])) pivot = k;
    std::swap(matrix[i], matrix[pivot]);
    std::swap(right[i], right[pivot]);
    for (std::size_t k = i + 1; k < n; ++k) {
      const double factor = matrix[k][i] / matrix[i][i];
      if (factor == 0.0) continue;
      for (std::size_t j = i; j < n; ++j) matrix[k][j] -= factor * matrix[i][j];
      right[k] -= factor * right[i];
    }
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t j = i + 1; j < n; ++j) right[i] -= matrix[i][j] * right[j];
    right[i] /= matrix[i][i];
  }
  return right;
}

/// The mean of |simulated / measured - 1|.
double mean_error(const Vector& residuals) {
  double sum = 0.0;
  for (const double one : residuals) sum += std::fabs(std::expm1(one));
  return sum / static_cast<double>(residuals.size());
}

class Fit {
 public:
  explicit Fit(const std::vector<PlannedRow>& rows) : rows_(rows) {
    for (const FittedNumber& one : fitted_numbers()) {
      index_[one.name] = static_cast<int>(numbers_.size());
      numbers_.push_back(one);
    }
    std::map<std::string, int> counts;
    for (const PlannedRow& row : rows) ++counts[row.row().group];
    for (const PlannedRow& row : rows) {
      const int count = counts[row.row().group];
      weights_.push_back(count > 30 ? std::sqrt(30.0 / count) : 1.0);
    }
  }

  /// Logarithms of simulated by measured times.
  Vector residuals(const Numbers& numbers) const {
    Vector all(rows_.size());
    for_rows(rows_.size(), [&](std::size_t r) {
      all[r] = std::log(seconds(rows_[r], numbers) / rows_[r].row().seconds);
    });
    return all;
  }

  double cost(const Numbers& numbers, const Vector& residuals) const {
    double sum = 0.0;
    for (const FittedNumber& one : numbers_)
      sum += square(std::log(numbers.at(one.name) / one.prior) / one.deviation);
    for (std::size_t r = 0; r < rows_.size(); ++r)
      sum += weights_[r] * square(cut / deviation) * std::log1p(square(residuals[r] / cut));
    return sum;
  }

  /// Finds the slopes of each row, by number.
  void differentiate(const Numbers& numbers, const Vector& residuals) {
    slopes_.assign(rows_.size(), {});
    for_rows(rows_.size(), [&](std::size_t r) {
      for (const std::string& name : numbers_of(rows_[r])) {
        Numbers other = numbers;
        other[name] *= 1.0 + step;
        const double then = std::log(seconds(rows_[r], other) / rows_[r].row().seconds);
        slopes_[r].emplace_back(index_.at(name), (then - residuals[r]) / std::log1p(step));
      }
    });
  }

  Numbers run(Numbers numbers, int iterations) {
    Vector found = residuals(numbers);
    double least = cost(numbers, found), damping = 1e-2;
    for (int i = 0; i < iterations; ++i) {
      const double begin = now();
      differentiate(numbers, found);
      const double before = least;
      for (int attempt = 0; attempt < 5; ++attempt, damping *= 5.0) {
        const Numbers next = moved(numbers, change(numbers, found, damping, {}));
        const Vector then = residuals(next);
        const double sum = cost(next, then);
        if (sum >= least) continue;
        numbers = next;
        found = then;
        least = sum;
        damping *= 0.2;
        break;
      }
      std::printf("iteration %d: cost %.1f, mean %.2f %%, %.0f s\n", i, least,
                  100.0 * mean_error(found), now() - begin);
      std::fflush(stdout);
      if (before - least < 5e-4 * before) break;
    }
    differentiate(numbers, found);
    return numbers;
  }

  /// The numbers without some rows, in a linear model around `numbers`, for which this is
  /// differentiated. What only these rows tell goes back to its prior.
  Numbers without(const Numbers& numbers, const Vector& found, const std::set<std::size_t>& rows) {
    Vector total(numbers_.size(), 0.0), linear = found;
    Numbers at = numbers;
    for (int i = 0; i < 8; ++i) {
      const Vector more = change(at, linear, 0.0, rows);
      for (std::size_t n = 0; n < total.size(); ++n) total[n] += more[n];
      at = moved(numbers, total);
      for (std::size_t r = 0; r < linear.size(); ++r) {
        linear[r] = found[r];
        for (const auto& [n, slope] : slopes_[r])
          linear[r] += slope * total[static_cast<std::size_t>(n)];
      }
    }
    return at;
  }

 private:
  static double square(double x) { return x * x; }

  /// Returns the change of the numbers' logarithms.
  Vector change(const Numbers& numbers, const Vector& residuals, double damping,
                const std::set<std::size_t>& without) const {
    const std::size_t n = numbers_.size();
    Matrix matrix(n, Vector(n, 0.0));
    Vector right(n, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      const double weight = 1.0 / square(numbers_[i].deviation);
      matrix[i][i] += weight;
      right[i] -= weight * std::log(numbers.at(numbers_[i].name) / numbers_[i].prior);
    }
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      if (without.count(r) > 0) continue;
      const double weight = weights_[r] / square(deviation) / (1.0 + square(residuals[r] / cut));
      for (const auto& [i, slope] : slopes_[r]) {
        right[static_cast<std::size_t>(i)] -= weight * slope * residuals[r];
        for (const auto& [j, other] : slopes_[r])
          matrix[static_cast<std::size_t>(i)][static_cast<std::size_t>(j)] +=
              weight * slope * other;
      }
    }
    for (std::size_t i = 0; i < n; ++i) matrix[i][i] *= 1.0 + damping;
    return solve(std::move(matrix), std::move(right));
  }

  Numbers moved(Numbers numbers, const Vector& change) const {
    for (std::size_t i = 0; i < numbers_.size(); ++i)
      numbers[numbers_[i].name] *= std::exp(std::clamp(change[i], -0.7, 0.7));
    return numbers;
  }

  const std::vector<PlannedRow>& rows_;
  std::vector<FittedNumber> numbers_;
  std::map<std::string, int> index_;
  Vector weights_;
  std::vector<std::vector<std::pair<int, double>>> slopes_;
};

Numbers read_numbers(const std::string& path) {
  Numbers numbers = priors();
  std::ifstream file(path);
  std::string name;
  for (double value = 0.0; file >> name >> value;)
    if (numbers.count(name) > 0 || name.rfind("error.", 0) == 0) numbers[name] = value;
  return numbers;
}

/// The share of left-out rows that ranges hold.
constexpr double held_share = 0.9505;

/// Sets the errors of classes of rows so that ranges hold as many rows as they should: of each
/// class all but equally many at either end, and of those besides any_step, whose quantiles are of
/// few rows with long tails, a quarter as many. `ratios`: measured by simulated times.
void set_errors(Numbers& numbers, const std::vector<PlannedRow>& rows, const Vector& ratios) {
  std::map<std::string, Vector> classes;
  Vector by_runs;  // as simulate::predict has it
  for (std::size_t r = 0; r < rows.size(); ++r) {
    classes[error_class_of(rows[r]).name].push_back(ratios[r]);
    const simulate::Machine machine = make_machine(rows[r].row().machine, numbers);
    by_runs.push_back(std::hypot(2.0 * machine.run_deviation,
                                 simulate::added_by_variation(machine, rows[r].row().ranks)));
  }
  for (auto& [name, all] : classes) std::sort(all.begin(), all.end());
  for (double outside = 0.1; outside >= 0.0; outside -= 0.001) {
    for (const auto& one : classes) {
      const std::string& name = one.first;
      const Vector& all = one.second;
      const auto last = static_cast<double>(all.size() - 1);
      const auto at = [&](double quantile) {
        return all[static_cast<std::size_t>(std::lround(quantile * last))];
      };
      const double share = name == error_classes().front().name ? outside : 0.25 * outside;
      numbers["error." + name + ".faster"] = std::max(0.0, 1.0 - at(share));
      numbers["error." + name + ".slower"] = std::max(0.0, at(1.0 - share) - 1.0);
    }
    double held = 0.0;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const std::string error = std::string("error.") + error_class_of(rows[r]).name;
      if (ratios[r] >= 1.0 - std::hypot(by_runs[r], numbers.at(error + ".faster")) &&
          ratios[r] <= 1.0 + std::hypot(by_runs[r], numbers.at(error + ".slower")))
        held += 1.0;
    }
    if (held >= held_share * static_cast<double>(rows.size())) return;
  }
}

void leave_out(Fit& fit, const std::vector<PlannedRow>& rows, Numbers& numbers,
               const Vector& residuals, const std::string& path) {
  std::map<std::string, std::set<std::size_t>> groups;
  for (std::size_t r = 0; r < rows.size(); ++r) groups[rows[r].row().group].insert(r);
  std::ofstream out(path);
  out << "id,group,measured_s,fitted_s,left_out_s,class\n";
  Vector errors, ratios(rows.size());
  for (const auto& [name, group] : groups) {
    const Numbers others = fit.without(numbers, residuals, group);
    for (const std::size_t r : group) {
      const double measured = rows[r].row().seconds, then = seconds(rows[r], others);
      errors.push_back(std::log(then / measured));
      ratios[r] = measured / then;
      out << rows[r].row().id << "," << name << "," << measured << ","
          << measured * std::exp(residuals[r]) << "," << then << "," << error_class_of(rows[r]).name
          << "\n";
    }
  }
  std::cout << "sources left out: mean " << 100.0 * mean_error(errors) << " %" << std::endl;
  set_errors(numbers, rows, ratios);
}

/// Returns the text of a stack file with other numbers of the fitted keys.
std::string with_keys(const std::string& text, const std::string& path, const Numbers& keys) {
  std::stringstream in(text), out;
  std::set<std::string> left;
  for (const auto& [key, value] : keys) left.insert(key);
  for (std::string line; std::getline(in, line);) {
    for (const auto& [key, value] : keys) {
      const std::string begin = "    " + key + ": ";
      if (line.rfind(begin, 0) != 0) continue;
      char number[40];
      std::snprintf(number, sizeof number, "%.4g", value);
      const std::size_t comment = line.find("  #");
      line = begin + number + (comment == std::string::npos ? "" : line.substr(comment));
      left.erase(key);
    }
    out << line << "\n";
  }
  require(left.empty(), path, ": has no line of ", left.empty() ? "" : *left.begin());
  return out.str();
}

void write_files(const std::string& source, const Numbers& numbers) {
  for (const std::string& name : machine_names())
    std::ofstream(source + "/machines/" + name + ".yaml") << machine_text(name, numbers);
  for (const std::string& name : stack_names()) {
    const std::string path = source + "/machines/stacks/" + name + ".yaml";
    const std::string text =
        with_keys(read_text(path, std::size_t{1} << 20), path, fitted_keys(name, numbers));
    std::ofstream(path) << text;
  }
}

int run(int count, char** arguments) {
  require(count >= 3, "expected the root of the sources, and the folder of decks");
  const std::string source = arguments[1];
  std::string file, left_out;
  int iterations = 0;
  bool writes = false;
  for (int a = 3; a < count; ++a) {
    const std::string argument = arguments[a];
    const auto next = [&] {
      require(a + 1 < count, argument, ": expected a value");
      return std::string(arguments[++a]);
    };
    if (argument == "--from")
      file = next();
    else if (argument == "--iterations")
      iterations = std::stoi(next());
    else if (argument == "--leave-out")
      left_out = next();
    else if (argument == "--write")
      writes = true;
    else
      throw Error("unknown argument " + argument);
  }
  double begin = now();
  std::vector<PlannedRow> rows;
  for (const MeasuredRow& row : read_index(arguments[2])) {
    try {
      rows.emplace_back(row);
    } catch (const std::exception& error) {
      std::cout << "row " << row.id << ": " << error.what() << std::endl;
    }
  }
  std::cout << rows.size() << " rows planned in " << now() - begin << " s" << std::endl;
  Numbers numbers = file.empty() ? priors() : read_numbers(file);
  Fit fit(rows);
  begin = now();
  Vector residuals = fit.residuals(numbers);
  std::cout << "one evaluation takes " << now() - begin << " s, mean error "
            << 100.0 * mean_error(residuals) << " %" << std::endl;
  if (iterations > 0 || !left_out.empty()) numbers = fit.run(numbers, iterations);
  residuals = fit.residuals(numbers);
  std::cout << "mean error " << 100.0 * mean_error(residuals) << " %" << std::endl;
  if (!left_out.empty()) leave_out(fit, rows, numbers, residuals, left_out);
  if (!file.empty()) {
    std::ofstream out(file);
    for (const auto& [name, value] : numbers) out << name << " " << value << "\n";
  }
  std::printf("\nnumber                                    value      prior\n");
  for (const FittedNumber& one : fitted_numbers())
    std::printf("%-40s %10.4g %10.4g\n", one.name.c_str(), numbers.at(one.name), one.prior);
  if (writes) write_files(source, numbers);
  return 0;
}

}  // namespace
}  // namespace ostrakon::published

int main(int count, char** arguments) {
  try {
    return ostrakon::published::run(count, arguments);
  } catch (const std::exception& error) {
    std::cerr << "fit_machines: " << error.what() << "\n";
    return 1;
  }
}
