// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/scaling/study.hpp>
#include <ostrakon/simulate/machine.hpp>
#include <string>
#include <vector>

#include "command_line.hpp"

namespace ostrakon::apps::scale_program {

/// What a prediction is made with. All that ostrakon-scale knows of machines is in this file.
using Machine = simulate::Machine;
using Prediction = scaling::PredictedStep;

/// Options of the command line that describe a machine: --machine.
const std::vector<std::string>& machine_options();

/// None where none is given. Throws Error.
std::optional<Machine> read_machine(const CommandLine& arguments);

/// How long a step of `settings`, those of a deck that is not yet placed on ranks, takes. Throws
/// Error where it does not fit these ranks.
Prediction predict(const config::Settings& settings, int ranks, int ranks_per_node,
                   const Machine& machine);

}  // namespace ostrakon::apps::scale_program
