// SPDX-License-Identifier: Apache-2.0
#include "scale_predict.hpp"

#include <algorithm>
#include <ostrakon/base/error.hpp>

#include "plan_ranks.hpp"
#include "stage_plans.hpp"

namespace ostrakon::apps::scale_program {
namespace {

/// An option of ostrakon-plan, with what it is where another one is given.
struct Rate {
  const char* option;
  double value;  ///< in 10^9 a second
  const char* unit;
};
constexpr Rate rates[] = {{"--gflops", 100000.0, " GFLOP/s"},
                          {"--gigabytes-per-second", 25.0, " GB/s across nodes"},
                          {"--copy-gigabytes-per-second", 25.0, " GB/s between host and device"},
                          {"--host-gigabytes-per-second", 12.0, " GB/s on the host"}};

}  // namespace

const std::vector<std::string>& machine_options() {
  static const std::vector<std::string> options = [] {
    std::vector<std::string> names;
    for (const Rate& rate : rates) names.emplace_back(rate.option);
    return names;
  }();
  return options;
}

std::optional<Machine> read_machine(const CommandLine& arguments) {
  Machine machine;
  std::vector<double> values;
  bool is_given = false;
  for (const Rate& rate : rates) {
    const std::optional<double> given = arguments.number_option(rate.option);
    require(!given || (*given > 0.0 && *given <= 1e15), rate.option, " is ",
            arguments.text_option(rate.option).value_or(""),
            "; expected a number above 0, at most 1e15");
    is_given = is_given || given.has_value();
    values.push_back(given.value_or(rate.value));
    machine.source += text(machine.source.empty() ? "rates of " : ", ", values.back(), rate.unit);
  }
  if (!is_given) return std::nullopt;
  // As for ostrakon-plan, a rank sends ten times as fast inside a node.
  machine.rates = {1e9 * values[0], 1e10 * values[1], 1e9 * values[1], 1e9 * values[2],
                   1e9 * values[3]};
  return machine;
}

Prediction predict(const config::Settings& settings, int ranks, int ranks_per_node,
                   const Machine& machine) {
  config::Settings placed = settings;
  place_on_ranks(placed, ranks, ranks_per_node);
  const std::vector<plan::StepPlan> stages = DeckPlans(placed, ranks).of(plan::Purpose::train);
  std::vector<const plan::StepPlan*> pointers;
  for (const plan::StepPlan& stage : stages) pointers.push_back(&stage);
  const std::vector<plan::Timing> timings =
      plan::estimate_times(pointers, ranks_per_node, machine.rates);
  // As measured factors, of the ranks that compute longest.
  const plan::Timing& longest = *std::max_element(
      timings.begin(), timings.end(), [](const plan::Timing& one, const plan::Timing& other) {
        return one.computing < other.computing;
      });
  return {longest.seconds,      longest.computing,      longest.exposed_communication,
          longest.exposed_host, longest.exposed_copies, longest.waiting,
          machine.source};
}

}  // namespace ostrakon::apps::scale_program
