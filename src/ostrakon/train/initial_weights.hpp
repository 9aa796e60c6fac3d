// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/train/console.hpp>
#include <ostrakon/train/run_options.hpp>
#include <string>

namespace ostrakon::train {

/// Opens the weights that checkpoint.initial_weights names, each rank for itself, and says so; rank
/// 0 looks whether they are whole, but not in a dry run. Of a run's folder, or a folder of
/// checkpoints, they are its weights.h5 or else those of the newest checkpoint whose manifest is
/// not damaged. Null where the key is empty: weights are
/// random. `tokenizer`: whose tokens the model will be trained on. Collective; throws AgreedError
/// where they can't be read, or are of another model or tokenizer.
std::unique_ptr<checkpoint::ParameterSource> open_initial_weights(const config::Settings& settings,
                                                                  const RunOptions& options,
                                                                  const std::string& tokenizer,
                                                                  comm::Communicator& world,
                                                                  Console& console);

}  // namespace ostrakon::train
