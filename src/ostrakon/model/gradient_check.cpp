// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/gradient_check.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/model/unit_trial.hpp>
#include <utility>

namespace ostrakon::model {
namespace {

/// Uniform in [-1, 1).
double random_number(std::uint64_t key, std::int64_t element) {
  return math::philox(key, static_cast<std::uint64_t>(element), 0).word[0] * 0x1p-31 - 1.0;
}

/// Around its initial values: zeros would hide what they are multiplied with.
double value_of(const Parameter& parameter, std::uint64_t key, std::int64_t element) {
  constexpr double spread = 0.1;
  const double random = random_number(key, element);
  if (parameter.initializer == Initializer::normal)
    return std::max(parameter.deviation, spread) * random;
  return (parameter.initializer == Initializer::ones ? 1.0 : 0.0) + spread * random;
}

template <class T>
ParameterValues<T> make_values(const Chain<T>& chain, int unit, std::uint64_t seed) {
  ParameterValues<T> values;
  if (unit < 0) return values;
  const plan::UnitDescription& planned = chain.description().units[static_cast<std::size_t>(unit)];
  // Not a number between parameters: what a unit reads there shows in its output.
  constexpr T unset = std::numeric_limits<T>::quiet_NaN();
  values.trained.resize(static_cast<std::size_t>(planned.trained_elements()), unset);
  values.frozen.resize(static_cast<std::size_t>(planned.frozen_elements), unset);
  for (const Parameter& parameter : chain.parameters(unit)) {
    std::vector<T>& segment = parameter.frozen ? values.frozen : values.trained;
    const std::uint64_t key = math::random_key(seed, parameter.full_name());
    std::int64_t element = 0;
    for (const std::size_t place : places_of(parameter))
      segment[place] = static_cast<T>(value_of(parameter, key, element++));
  }
  return values;
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
      : chain_(chain),
        unit_(unit),
        name_(chain.unit(unit).name),
        settings_(settings),
        report_(report),
        own_(make_values(chain, unit, settings.seed)),
        tied_(make_values(chain, chain.tied_to(unit), settings.seed)),
        input_(input),
        trial_(chain, unit, batch, own_, tied_, input) {
    if (settings_.step == 0.0) settings_.step = is_double ? 1e-5 : 1e-2;
    if (settings_.tolerance == 0.0) settings_.tolerance = is_double ? 1e-6 : 1e-2;
  }

  /// Returns the unit's output; nothing where the next unit can't compute with it.
  std::vector<T> run() {
    output_ = trial_.forward(Watched::yes);
    if (!is_sound("forward"))
      return std::all_of(output_.begin(), output_.end(), [](T x) { return std::isfinite(x); })
                 ? output_
                 : std::vector<T>();
    if (!is_written("output", output_)) return {};
    if (!repeats_forward()) return output_;
    if (!check_recompute()) return output_;
    weigh_output();
    const Gradients all = backward(Watched::yes);
    if (!is_sound("backward") || !repeats_backward(all)) return output_;
    if (is_written("input", all.input))
      compare("input", input_, all.input,
              [&](std::int64_t i, T value) { trial_.set_input(i, value); });
    check_parameters(unit_, "", own_.trained, all.own,
                     [&](std::int64_t i, T value) { trial_.set_trained(i, value); });
    if (chain_.tied_to(unit_) >= 0)
      check_parameters(chain_.tied_to(unit_), text(chain_.unit(chain_.tied_to(unit_)).name, "."),
                       tied_.trained, all.tied,
                       [&](std::int64_t i, T value) { trial_.set_tied(i, value); });
    check_adding(all.own);
    return output_;
  }

 private:
  static constexpr bool is_double = std::is_same<T, double>::value;

  struct Gradients {
    std::vector<T> input, own, tied;
  };

  /// Whether something of that array has been found already: what else is wrong with it follows.
  bool has_problem(const std::string& array) const {
    return std::any_of(
        report_.problems.begin(), report_.problems.end(),
        [&](const GradientProblem& one) { return one.unit == name_ && one.array == array; });
  }

  bool is_loss() const { return chain_.unit(unit_).is_loss; }

  Gradients backward(Watched watched) {
    std::vector<T> input = trial_.backward(is_loss() ? std::vector<T>() : weights_, {}, watched);
    return {std::move(input), trial_.gradients(), trial_.tied_gradients()};
  }

  void add_problem(const std::string& array, std::int64_t element, const std::string& what,
                   double backward = 0.0, double difference = 0.0) {
    const std::string place = element < 0 ? array : text(array, "[", element, "]");
    report_.problems.push_back(
        {name_, array, element, backward, difference,
         text("unit ", name_, ": ", place, place.empty() ? "" : ": ", what)});
  }

  bool is_sound(const char* call) {
    const std::string damage = trial_.damage();
    if (!damage.empty()) add_problem("", -1, text(call, " ", damage));
    return damage.empty();
  }

  bool is_written(const std::string& array, const std::vector<T>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T& value = values[i];
      if (std::isfinite(value)) continue;
      add_problem(array, static_cast<std::int64_t>(i),
                  is_unset(&value, sizeof value) ? "is not written" : "is not finite");
      return false;
    }
    return true;
  }

  /// Whether a second call has left the same bits. `call`: "forward".
  template <class A>
  bool is_same(const std::string& array, const std::vector<A>& first, const std::vector<A>& second,
               const char* call) {
    for (std::size_t i = 0; i < first.size(); ++i) {
      const auto* const bytes = reinterpret_cast<const unsigned char*>(&first[i]);
      const auto* const others = reinterpret_cast<const unsigned char*>(&second[i]);
      if (std::equal(bytes, bytes + sizeof(A), others)) continue;
      add_problem(array, static_cast<std::int64_t>(i),
                  text(call, ", called twice alike, left ", +first[i], " and then ", +second[i]),
                  static_cast<double>(first[i]), static_cast<double>(second[i]));
      return false;
    }
    return true;
  }

  bool repeats_forward() {
    const std::vector<unsigned char> saved = trial_.saved();
    return is_same("output", output_, trial_.forward(), "forward") &&
           is_same("saved", saved, trial_.saved(), "forward");
  }

  bool repeats_backward(const Gradients& first) {
    trial_.forward();
    const Gradients second = backward(Watched::no);
    return is_same("input", first.input, second.input, "backward") &&
           is_same("parameter gradients", first.own, second.own, "backward") &&
           is_same("tied gradients", first.tied, second.tied, "backward");
  }

  /// Whether backward can be checked after it.
  bool check_recompute() {
    if (is_loss() || chain_.unit(unit_).saved_bytes == 0) return true;
    const std::vector<unsigned char> before = trial_.saved();
    trial_.recompute();
    if (!is_sound("forward that recomputes")) return false;
    const std::vector<unsigned char> after = trial_.saved();
    const auto differs = std::mismatch(before.begin(), before.end(), after.begin());
    if (differs.first == before.end()) return true;
    add_problem("saved", differs.first - before.begin(),
                "this byte differs where forward recomputes");
    return false;
  }

  /// What is differentiated: the scaled sum of losses, or that of the output with random weights.
  void weigh_output() {
    const std::uint64_t key = math::random_key(settings_.seed, name_ + " output");
    double squares = 0.0;
    for (std::size_t i = 0; i < output_.size(); ++i) {
      weights_.push_back(is_loss()
                             ? UnitTrial<T>::loss_scale
                             : static_cast<T>(random_number(key, static_cast<std::int64_t>(i))));
      const double term = static_cast<double>(weights_[i]) * static_cast<double>(output_[i]);
      squares += term * term;
    }
    rounding_ = 16.0 * std::numeric_limits<T>::epsilon() * std::sqrt(squares);
  }

  double function() {
    const std::vector<T> output = trial_.forward();
    double sum = 0.0;
    for (std::size_t i = 0; i < output.size(); ++i)
      sum += static_cast<double>(weights_[i]) * static_cast<double>(output[i]);
    return sum;
  }

  template <class Set>
  void check_parameters(int owner, const std::string& prefix, const std::vector<T>& values,
                        const std::vector<T>& gradients, const Set& set) {
    for (const Parameter& parameter : chain_.parameters(owner)) {
      if (parameter.frozen) continue;
      const std::string array = prefix + parameter.name;
      const std::vector<std::size_t> places = places_of(parameter);
      std::vector<T> own, own_values;
      for (const std::size_t place : places) {
        own.push_back(gradients[place]);
        own_values.push_back(values[place]);
      }
      if (!is_written(array, own)) continue;
      compare(array, own_values, own, [&](std::int64_t i, T value) {
        set(static_cast<std::int64_t>(places[static_cast<std::size_t>(i)]), value);
      });
    }
  }

  /// `gradients`: of `values`, which `set` hands to the unit.
  template <class Set>
  void compare(const std::string& array, const std::vector<T>& values,
               const std::vector<T>& gradients, const Set& set) {
    struct Compared {
      std::int64_t element;
      double backward, difference, distance;
    };
    std::vector<Compared> all;
    double largest = 0.0;
    const std::uint64_t key = math::random_key(settings_.seed, name_ + " " + array);
    for (const std::int64_t i : pick(gradients, settings_.elements, key)) {
      const T middle = values[static_cast<std::size_t>(i)];
      const double step = settings_.step * std::max(1.0, std::abs(static_cast<double>(middle)));
      const T above = static_cast<T>(middle + step), below = static_cast<T>(middle - step);
      const double distance = static_cast<double>(above) - static_cast<double>(below);
      const auto function_at = [&](T there) {
        set(i, there);
        return function();
      };
      const double difference = (function_at(above) - function_at(below)) / distance;
      set(i, middle);
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
      // Of smaller ones any agree, right or wrong, but for 0 of what the unit does not read.
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

  /// Backward once more, where gradients hold something: a unit that is tied to this one writes
  /// first.
  void check_adding(const std::vector<T>& gradients) {
    bool is_tied_to = false;
    for (int u = unit_ + 1; u < chain_.units(); ++u)
      is_tied_to = is_tied_to || chain_.tied_to(u) == unit_;
    if (!is_tied_to || gradients.empty()) return;
    const std::vector<T> base = base_for(gradients);
    trial_.forward();
    trial_.backward(is_loss() ? std::vector<T>() : weights_, base, Watched::yes);
    if (!is_sound("backward that adds")) return;
    const std::vector<T> sums = trial_.gradients();
    for (const Parameter& parameter : chain_.parameters(unit_)) {
      if (parameter.frozen || has_problem(parameter.name)) continue;
      const std::vector<std::size_t> places = places_of(parameter);
      for (std::int64_t i = 0; i < parameter.elements(); ++i) {
        const std::size_t at = places[static_cast<std::size_t>(i)];
        const auto before = static_cast<double>(base[at]);
        const double expected = before + static_cast<double>(gradients[at]);
        const double error = std::abs(static_cast<double>(sums[at]) - expected);
        if (error <= settings_.tolerance * std::max(before, std::abs(expected))) continue;
        add_problem(parameter.name, i,
                    text("with adds_gradients backward leaves ", sums[at], " where ", before,
                         " was, expected ", expected),
                    static_cast<double>(sums[at]), expected);
        break;
      }
    }
  }

  /// What `gradients` are added to: positive, and about as large as they are, so that neither of
  /// the two is lost in the tolerance.
  std::vector<T> base_for(const std::vector<T>& gradients) {
    std::vector<T> base(gradients.size(), T(1));
    for (const Parameter& parameter : chain_.parameters(unit_)) {
      if (parameter.frozen) continue;
      const std::vector<std::size_t> places = places_of(parameter);
      T largest = 0;
      for (const std::size_t place : places)
        largest = std::max(largest, std::abs(gradients[place]));
      if (largest == T(0)) continue;
      for (const std::size_t place : places)
        base[place] = 2 * std::max(std::abs(gradients[place]), largest / 16);
    }
    return base;
  }

  const Chain<T>& chain_;
  int unit_;
  std::string name_;
  GradientCheckSettings settings_;
  GradientReport& report_;
  ParameterValues<T> own_, tied_;
  std::vector<T> input_, output_, weights_;
  double rounding_ = 0.0;  ///< of what is differentiated
  UnitTrial<T> trial_;
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
