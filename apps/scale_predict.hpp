// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/plan/timing.hpp>
#include <ostrakon/scaling/study.hpp>
#include <string>
#include <vector>

#include "command_line.hpp"

namespace ostrakon::apps::scale_program {

/// What a prediction is made with. All that ostrakon-scale knows of machines is in this file.
struct Machine {
  plan::Rates rates;
  std::string source;  ///< for people: "rates of 30 GFLOP/s, ..."
};

using Prediction = scaling::PredictedStep;

/// Options of the command line that describe a machine.
const std::vector<std::string>& machine_options();

/// None where none of them is given. Throws Error.
std::optional<Machine> read_machine(const CommandLine& arguments);

/// How long a step of `settings`, those of a deck that is not yet placed on ranks, takes. Throws
/// Error where it does not fit these ranks.
Prediction predict(const config::Settings& settings, int ranks, int ranks_per_node,
                   const Machine& machine);

}  // namespace ostrakon::apps::scale_program
