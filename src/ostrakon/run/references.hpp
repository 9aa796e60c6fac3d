// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/run/console.hpp>
#include <ostrakon/run/run_data.hpp>
#include <ostrakon/trainer/trainer.hpp>
#include <string>

// This file gives pairs of answers the log-probabilities of DPO's reference: the model with the
// weights that a run begins with.

namespace ostrakon::train {

/// The files of a run's references, of which `prefix` is the beginning.
std::string reference_path(const std::string& prefix, data::Split split);

/// Reads the files of a run that resumes, before its checkpoint is loaded. Does nothing where data
/// have no pairs. Collective; throws CollectiveError where a file is missing or of other pairs, or
/// where they are of different references.
void read_references(const std::string& prefix, RunData& data, comm::Communicator& world);

/// Reads the files of a run that begins with the trainer's weights, or, where there are none,
/// computes the log-probabilities of all pairs with these and writes files. Does nothing where data
/// have no pairs. `settings`: those that the trainer was made from. Collective; throws
/// CollectiveError where a file is of other pairs, of other weights, or of other settings that
/// decide bits of log-probabilities, or where it could not be written.
void make_references(const std::string& prefix, const config::Settings& settings, RunData& data,
                     Trainer& trainer, comm::Communicator& world, Console& console);

}  // namespace ostrakon::train
