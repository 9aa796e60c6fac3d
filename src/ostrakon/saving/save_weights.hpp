// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/trainer/trainer.hpp>
#include <string>

namespace ostrakon::train {

/// Metadata of a weights file: see checkpoint::WeightsWriter.
struct WeightsOrigin {
  std::string deck;
  std::int64_t step = 0;
  std::string tokenizer;
  std::string huggingface_config;
};

/// Writes the parameters of a trainer to a weights file on rank 0, unit by unit. `check` is called
/// on rank 0 before the file gets its name, and throws Error to prevent that. Collective; throws
/// CollectiveError, and makes no file then.
void save_weights(Trainer& trainer, comm::Communicator& world, const std::string& path,
                  const WeightsOrigin& origin, const std::function<void()>& check);

}  // namespace ostrakon::train
