// SPDX-License-Identifier: Apache-2.0
#include "scale_predict.hpp"

#include <algorithm>
#include <ostrakon/config/machine_file.hpp>

#include "plan_time.hpp"
#include "program.hpp"

namespace ostrakon::apps::scale_program {

const std::vector<std::string>& machine_options() {
  static const std::vector<std::string> options = {"--machine"};
  return options;
}

std::optional<Machine> read_machine(const CommandLine& arguments) {
  const std::optional<std::string> file = arguments.text_option("--machine");
  if (!file) return std::nullopt;
  return config::read_machine(read_file(*file), *file);
}

Prediction predict(const config::Settings& settings, int ranks, int ranks_per_node,
                   const Machine& machine) {
  const simulate::Prediction found =
      apps::predict(plan_step(settings, ranks, ranks_per_node), machine);
  // Factors are those of the ranks that compute longest, as where they are measured.
  const plan::Timing& longest = found.timings[static_cast<std::size_t>(found.busiest)];
  const double host = longest.exposed_host + machine.step_seconds;
  // What all wait for the slowest rank shows in collectives. Where none is slower, rounding may
  // leave a difference below 0.
  const double late = std::max(0.0, found.step_seconds - longest.seconds - machine.step_seconds);
  return {found.step_seconds,
          longest.computing,
          longest.exposed_communication + late,
          host,
          longest.exposed_copies,
          longest.waiting,
          machine.name};
}

}  // namespace ostrakon::apps::scale_program
