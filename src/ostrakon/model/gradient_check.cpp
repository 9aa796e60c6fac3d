// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/gradient_check.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/model/operation_check.hpp>
#include <ostrakon/model/unit_run.hpp>
#include <utility>

namespace ostrakon::model {
namespace {

/// Uniform in [-1, 1).
double random_number(std::uint64_t key, std::int64_t element) {
  return math::philox(key, static_cast<std::uint64_t>(element), 0).word[0] * 0x1p-31 - 1.0;
}

/// Around its initial values: zeros would hide what they are multiplied with.
double value_of(const Parameter& parameter, std::uint64_t seed, std::int64_t element) {
  constexpr double spread = 0.1;
  const double random = random_number(math::random_key(seed, parameter.full_name()), element);
  if (parameter.initializer == Initializer::normal)
    return std::max(parameter.deviation, spread) * random;
  return (parameter.initializer == Initializer::ones ? 1.0 : 0.0) + spread * random;
}

/// Which elements are compared: that of the largest gradient, the first, the last, and others at
/// random.
template <class T>
std::vector<std::int64_t> pick(const std::vector<T>& gradients, std::int64_t wanted,
                               std::uint64_t key) {
  const auto count = static_cast<std::int64_t>(gradients.size());
  std::vector<std::int64_t> picked;
  if (wanted == 0 || count <= wanted) {
    for (std::int64_t i = 0; i < count; ++i) picked.push_back(i);
    return picked;
  }
  const auto largest = std::max_element(gradients.begin(), gradients.end(),
                                        [](T a, T b) { return std::abs(a) < std::abs(b); });
  picked = {largest - gradients.begin(), 0, count - 1};
  picked.resize(static_cast<std::size_t>(std::min<std::int64_t>(wanted, 3)));
  for (std::int64_t i = 3; i < wanted; ++i)
    picked.push_back(static_cast<std::int64_t>(
        math::philox(key, static_cast<std::uint64_t>(i), 1).word[0] % count));
  return picked;
}

/// Gradients are compared where rounding makes at most this part of them.
constexpr double coarsest = 1e-2;

/// The check of one unit.
template <class T>
class UnitCheck {
 public:
  UnitCheck(const Chain<T>& chain, int unit, const void* batch, const std::vector<T>& input,
            const GradientCheckSettings& settings, GradientReport& report)
      : name_(chain.description().units[static_cast<std::size_t>(unit)].name),
        is_loss_(unit + 1 == chain.units()),
        settings_(settings),
        report_(report),
        run_(chain, unit, batch, input, [&](const Parameter& parameter, std::int64_t element) {
          return value_of(parameter, settings.seed, element);
        }) {
    if (settings_.step == 0.0) settings_.step = is_double ? 1e-5 : 1e-2;
    if (settings_.tolerance == 0.0) settings_.tolerance = is_double ? 1e-6 : 1e-2;
  }

  /// Returns the unit's output; nothing where the next unit can't compute with it.
  std::vector<T> run() {
    OperationCheck<T> watch;
    output_ = run_.forward(&watch);
    if (has_fault(watch))
      return std::all_of(output_.begin(), output_.end(), [](T x) { return std::isfinite(x); })
                 ? output_
                 : std::vector<T>();
    if (!is_finite("output", output_)) return {};
    weigh_output();
    run_.backward(weights_, loss_scale, &watch);
    if (has_fault(watch)) return output_;
    for (const UnitVariable<T>& variable : run_.variables())
      if (variable.gradients) compare(variable);
    return output_;
  }

 private:
  static constexpr bool is_double = std::is_same<T, double>::value;
  /// What losses are multiplied with: not 1, so that a kernel that leaves it out is found, and
  /// exact in any type.
  static constexpr T loss_scale = T(0.375);

  void add_problem(const std::string& array, std::int64_t element, const std::string& what,
                   double backward = 0.0, double difference = 0.0) {
    const std::string place = element < 0 ? array : text(array, "[", element, "]");
    report_.problems.push_back({name_, array, element, backward, difference,
                                text("unit ", name_, ": ", place, ": ", what)});
  }

  bool has_fault(const OperationCheck<T>& watch) {
    if (watch.fault().empty()) return false;
    add_problem(watch.operation(), -1, watch.fault());
    return true;
  }

  bool is_finite(const std::string& array, const std::vector<T>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(values[i])) continue;
      add_problem(array, static_cast<std::int64_t>(i), "is not finite");
      return false;
    }
    return true;
  }

  /// What is differentiated: the scaled sum of losses, or that of the output with random weights.
  void weigh_output() {
    const std::uint64_t key = math::random_key(settings_.seed, name_ + " output");
    double squares = 0.0;
    for (std::size_t i = 0; i < output_.size(); ++i) {
      weights_.push_back(
          is_loss_ ? loss_scale : static_cast<T>(random_number(key, static_cast<std::int64_t>(i))));
      const double term = static_cast<double>(weights_[i]) * static_cast<double>(output_[i]);
      squares += term * term;
    }
    rounding_ = 16.0 * std::numeric_limits<T>::epsilon() * std::sqrt(squares);
  }

  double function() {
    const std::vector<T> output = run_.forward();
    double sum = 0.0;
    for (std::size_t i = 0; i < output.size(); ++i)
      sum += static_cast<double>(weights_[i]) * static_cast<double>(output[i]);
    return sum;
  }

  void compare(const UnitVariable<T>& variable) {
    const std::string& array = variable.name;
    const std::vector<T> all_gradients = to_host(variable.gradients);
    std::vector<T> gradients;
    for (const std::size_t place : variable.places) gradients.push_back(all_gradients[place]);
    if (!is_finite(array, gradients)) return;
    struct Compared {
      std::int64_t element;
      double backward, difference, distance;
    };
    std::vector<Compared> all;
    double largest = 0.0;
    const std::uint64_t key = math::random_key(settings_.seed, name_ + " " + array);
    for (const std::int64_t i : pick(gradients, settings_.elements, key)) {
      const auto at = static_cast<std::int64_t>(variable.places[static_cast<std::size_t>(i)]);
      const View<T*> value = variable.values.range(at, at + 1);
      const T middle = to_host(View<const T*>(value)).front();
      const double step = settings_.step * std::max(1.0, std::abs(static_cast<double>(middle)));
      const T above = static_cast<T>(middle + step), below = static_cast<T>(middle - step);
      const double distance = static_cast<double>(above) - static_cast<double>(below);
      const auto function_at = [&](T there) {
        to_device(std::vector<T>{there}, value);
        return function();
      };
      const double difference = (function_at(above) - function_at(below)) / distance;
      to_device(std::vector<T>{middle}, value);
      const auto backward = static_cast<double>(gradients[static_cast<std::size_t>(i)]);
      largest = std::max({largest, std::abs(backward), std::abs(difference)});
      all.push_back({i, backward, difference, distance});
    }
    const Compared* worst = nullptr;
    double most = 1.0;  // of what is allowed
    int wrong = 0, compared = 0;
    for (const Compared& one : all) {
      const double scale =
          std::max({std::abs(one.backward), std::abs(one.difference), 0.05 * largest});
      const double rounding = rounding_ / one.distance;
      const double allowed = settings_.tolerance * scale + rounding;
      const double error = std::abs(one.backward - one.difference);
      // Both may be 0 where nothing is allowed; not a number is never equal.
      const bool agrees = error <= allowed;
      // Any smaller ones agree, right or wrong, but for the 0 of what the unit does not read.
      const bool is_zero = one.backward == 0.0 && one.difference == 0.0;
      const double part = std::max(settings_.tolerance, coarsest);
      if (agrees && !is_zero && rounding > part * scale) continue;
      ++compared;
      if (agrees) continue;
      ++wrong;
      if (worst == nullptr || error / allowed > most) worst = &one;
      most = std::max(most, error / allowed);
    }
    report_.compared += compared;
    report_.too_small += static_cast<std::int64_t>(all.size()) - compared;
    if (worst != nullptr)
      add_problem(array, worst->element,
                  text("the gradient is ", worst->backward, " from backward, ", worst->difference,
                       " from differences (", wrong, " of ", compared, " compared differ)"),
                  worst->backward, worst->difference);
    else if (compared == 0 && !all.empty() && !is_double)
      add_problem(array, -1,
                  text("gradients of at most ", largest,
                       " are too small to compare in float; check Chain<double>"));
  }

  std::string name_;
  bool is_loss_;
  GradientCheckSettings settings_;
  GradientReport& report_;
  UnitRun<T> run_;
  std::vector<T> output_, weights_;
  double rounding_ = 0.0;  ///< of what is differentiated
};

}  // namespace

std::string GradientReport::text() const {
  if (passed())
    return ostrakon::text(
        compared, " gradients agree with differences of the loss",
        too_small > 0 ? ostrakon::text("; ", too_small, " are too small to compare") : "");
  std::string lines;
  for (const GradientProblem& problem : problems)
    lines += (lines.empty() ? "" : "\n") + problem.text;
  return lines;
}

template <class T>
GradientReport check_units(const Chain<T>& chain, const void* batch,
                           const GradientCheckSettings& settings) {
  require(settings.elements >= 0 && settings.step >= 0.0 && settings.tolerance >= 0.0,
          "a gradient check of ", settings.elements, " elements with step ", settings.step,
          " and tolerance ", settings.tolerance, "; expected at least 0 of each");
  GradientReport report;
  std::vector<T> output;
  for (int u = 0; u < chain.units(); ++u) {
    output = UnitCheck<T>(chain, u, batch, output, settings, report).run();
    if (output.empty()) return report;
  }
  return report;
}

template GradientReport check_units(const Chain<float>& chain, const void* batch,
                                    const GradientCheckSettings& settings);
template GradientReport check_units(const Chain<double>& chain, const void* batch,
                                    const GradientCheckSettings& settings);

}  // namespace ostrakon::model
