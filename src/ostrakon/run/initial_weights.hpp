// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/run/console.hpp>
#include <ostrakon/run/run_options.hpp>
#include <string>

namespace ostrakon::train {

/// Opens the weights that checkpoint.initial_weights names, on each rank, and prints which; rank 0
/// checks whether they are complete, unless in a dry run. The path may be a run's folder or a
/// folder of checkpoints: then they are its weights.h5, or else the newest checkpoint whose
/// manifest is not damaged. Null if the key is empty: weights are random. `tokenizer`: the
/// tokenizer of the training data. Collective; throws CollectiveError where weights can't be read,
/// or are of another model or tokenizer.
std::unique_ptr<checkpoint::ParameterSource> open_initial_weights(const config::Settings& settings,
                                                                  const RunOptions& options,
                                                                  const std::string& tokenizer,
                                                                  comm::Communicator& world,
                                                                  Console& console);

}  // namespace ostrakon::train
