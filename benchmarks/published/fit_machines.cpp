// SPDX-License-Identifier: Apache-2.0
// For developers: fits the numbers of machines/*.yaml and stacks.csv to rows.csv, and
// prints tables for docs/simulation.md.
//
//   fit_machines SOURCE [--from FILE] [--iterations N] [--write] [--leave-out] [--explain ID]
//
// SOURCE: the root of the sources. --from: numbers to begin with, and a file for those found (a
// name and a value a line). --write: machines/*.yaml and stacks.csv.
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
#include <set>
#include <thread>

#include "machine_numbers.hpp"
#include "row_errors.hpp"

namespace ostrakon::published {
namespace {

constexpr double deviation = 0.035, cut = 0.09;  // of the logarithm of a row's time
constexpr double step = 0.01;                    // of differences

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds(const PlannedRow& planned, const Numbers& numbers) {
  return planned.seconds(make_machine(planned.row().machine, numbers),
                         make_stack(planned.row().stack, numbers));
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
      for (const std::string& name : numbers_of(rows_[r].row())) {
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
      std::vector<double> errors;
      for (const double one : found) errors.push_back(std::exp(one) - 1.0);
      std::printf("iteration %d: cost %.1f, mean %.2f %%, %.0f s\n", i, least,
                  100.0 * summarize(errors).mean, now() - begin);
      std::fflush(stdout);
      if (before - least < 1e-3 * before) break;
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

void print_tables(const std::vector<PublishedRow>& rows, const Vector& errors) {
  using Keys = std::vector<std::string>;
  std::cout << "\n" << header_of_summary("all") << line_of_summary("all", summarize(errors));
  for (const auto& [what, keys] :
       std::vector<std::pair<const char*, std::function<Keys(const PublishedRow&)>>>{
           {"dimension", [](const PublishedRow& row) { return row.dimensions(); }},
           {"source", [](const PublishedRow& row) { return Keys{row.group}; }},
           {"machine", [](const PublishedRow& row) { return Keys{row.machine}; }}}) {
    std::cout << "\n" << header_of_summary(what);
    for (const auto& [name, summary] : summarize_by(rows, errors, keys))
      std::cout << line_of_summary(name, summary);
  }
}

Numbers read_numbers(const std::string& path) {
  Numbers numbers = priors();
  std::ifstream file(path);
  std::string name;
  for (double value = 0.0; file >> name >> value;)
    if (numbers.count(name) > 0) numbers[name] = value;
  return numbers;
}

void leave_out(Fit& fit, const std::vector<PlannedRow>& planned,
               const std::vector<PublishedRow>& rows, const Numbers& numbers,
               const Vector& residuals) {
  const auto table = [&](const char* what,
                         const std::function<std::string(const PublishedRow&)>& group_of) {
    std::map<std::string, std::set<std::size_t>> groups;
    for (std::size_t r = 0; r < rows.size(); ++r)
      if (const std::string group = group_of(rows[r]); !group.empty()) groups[group].insert(r);
    std::vector<PublishedRow> left;
    Vector errors;
    std::cout << "\n" << header_of_summary(what);
    for (const auto& [name, group] : groups) {
      const Numbers others = fit.without(numbers, residuals, group);
      Vector own;
      for (const std::size_t r : group) {
        own.push_back(seconds(planned[r], others) / rows[r].seconds - 1.0);
        left.push_back(rows[r]);
      }
      std::cout << line_of_summary(name, summarize(own));
      errors.insert(errors.end(), own.begin(), own.end());
    }
    std::cout << line_of_summary("all", summarize(errors));
    for (const auto& [name, summary] :
         summarize_by(left, errors, [](const PublishedRow& row) { return row.dimensions(); }))
      std::cout << line_of_summary(name, summary);
  };
  table("source left out", [](const PublishedRow& row) { return row.group; });
  std::map<std::string, std::set<int>> ranks;
  for (const PublishedRow& row : rows) ranks[row.group].insert(row.ranks);
  table("largest left out", [&](const PublishedRow& row) {
    const std::set<int>& counts = ranks[row.group];
    const bool is_largest = counts.size() > 1 && row.ranks == *counts.rbegin();
    return is_largest ? std::string("most ranks of each source") : std::string();
  });
  table("large left out", [](const PublishedRow& row) {
    return row.ranks >= 256 ? std::string("256 ranks or more") : std::string();
  });
}

int run(int count, char** arguments) {
  require(count >= 2, "expected the root of the sources");
  const std::string source = arguments[1];
  const std::string folder = source + "/benchmarks/published/";
  std::string file, explained;
  int iterations = 0;
  bool writes = false, leaves_out = false;
  for (int a = 2; a < count; ++a) {
    const std::string argument = arguments[a];
    const auto next = [&] {
      require(a + 1 < count, argument, ": expected a value");
      return std::string(arguments[++a]);
    };
    if (argument == "--from")
      file = next();
    else if (argument == "--iterations")
      iterations = std::stoi(next());
    else if (argument == "--explain")
      explained = next();
    else if (argument == "--write")
      writes = true;
    else if (argument == "--leave-out")
      leaves_out = true;
    else
      throw Error("unknown argument " + argument);
  }
  std::vector<PublishedRow> rows;
  std::vector<PlannedRow> planned;
  double begin = now();
  std::size_t actions = 0;
  for (const PublishedRow& row : read_published_rows(folder + "rows.csv")) {
    if (!explained.empty() && row.id != explained) continue;
    try {
      planned.emplace_back(row);
      rows.push_back(row);
      actions += planned.back().actions();
    } catch (const std::exception& error) {
      std::cout << "row " << row.id << ": " << error.what() << "\n";
    }
  }
  std::cout << rows.size() << " rows, " << actions << " actions, planned in " << now() - begin
            << " s" << std::endl;
  Numbers numbers = file.empty() ? priors() : read_numbers(file);
  if (!explained.empty()) {
    for (const PlannedRow& row : planned)
      std::cout << seconds(row, numbers) << " s, measured " << row.row().seconds << " s\n"
                << row.explain(make_machine(row.row().machine, numbers),
                               make_stack(row.row().stack, numbers));
    return 0;
  }
  Fit fit(planned);
  begin = now();
  fit.residuals(numbers);
  std::cout << "one evaluation takes " << now() - begin << " s" << std::endl;
  if (iterations > 0 || leaves_out) numbers = fit.run(numbers, iterations);
  if (!file.empty()) {
    std::ofstream out(file);
    for (const auto& [name, value] : numbers) out << name << " " << value << "\n";
  }
  const Vector residuals = fit.residuals(numbers);
  Vector errors;
  for (const double one : residuals) errors.push_back(std::exp(one) - 1.0);
  print_tables(rows, errors);
  if (leaves_out) leave_out(fit, planned, rows, numbers, residuals);
  std::cout << "\n| scaling efficiency | measured % | simulated % |\n|---|---|---|\n";
  for (const ScalingEfficiency& one : scaling_efficiencies(
           rows, [&](const PublishedRow& row) { return seconds(PlannedRow(row), numbers); }))
    std::printf("| %s | %.1f | %.1f |\n", one.name.c_str(), one.measured, one.simulated);
  std::printf("\n| number | value | prior |\n|---|---|---|\n");
  for (const FittedNumber& one : fitted_numbers())
    std::printf("| %s | %.4g | %.4g |\n", one.name.c_str(), numbers.at(one.name), one.prior);
  std::printf("\nid,group,machine,stack,model,dimensions,measured_s,simulated_s,error_percent\n");
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::string dimensions;
    for (const std::string& one : rows[r].dimensions())
      dimensions += (dimensions.empty() ? "" : "+") + one;
    std::printf("%s,%s,%s,%s,%s,%s,%.4g,%.4g,%+.2f\n", rows[r].id.c_str(), rows[r].group.c_str(),
                rows[r].machine.c_str(), rows[r].stack.c_str(), rows[r].model.c_str(),
                dimensions.c_str(), rows[r].seconds, rows[r].seconds * (1.0 + errors[r]),
                100.0 * errors[r]);
  }
  if (!writes) return 0;
  for (const std::string& name : machine_names())
    std::ofstream(source + "/machines/" + name + ".yaml") << machine_text(name, numbers);
  std::map<std::string, Stack> stacks;
  for (const std::string& name : stack_names()) stacks[name] = make_stack(name, numbers);
  write_stacks(stacks, folder + "stacks.csv");
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
