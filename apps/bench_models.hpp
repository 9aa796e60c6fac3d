// SPDX-License-Identifier: Apache-2.0
#pragma once

// The decoders whose steps tell the numbers of a machine.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ostrakon::bench {

/// What blocks of real ones are made of, in other proportions. Enough layers that weights and
/// activations come from memory, as those of real ones. A step has one micro-batch.
struct TimedModel {
  std::string name;
  std::string settings;        ///< of sections model and training, "key=value" with blanks between
  std::int64_t sequences = 0;  ///< of a step
};

/// For a host: with 512, 1024 or 2048 rows, as what a product takes besides its operations does not
/// grow with these.
std::vector<TimedModel> host_models();

/// What a device can do, as far as sizes depend on it.
struct DeviceFacts {
  double products = 0.0;  ///< floating-point operations per second in large products, in 16 bits
  std::int64_t free_bytes = 0;  ///< of its memory, for a rank
};

/// What a step of a model takes.
struct StepNeeds {
  double flops = 0.0;
  std::int64_t bytes = 0;  ///< of device memory
};

/// For a device: models that fill it, of so many sequences that a step takes about as long on any,
/// and that fit into its memory; and a small one, which tells how long launches take. Where a
/// device is too slow, or has too little memory, for one sequence of a model, one for a host stands
/// in for it.
std::vector<TimedModel> device_models(const DeviceFacts& device,
                                      const std::function<StepNeeds(const TimedModel&)>& needs_of);

}  // namespace ostrakon::bench
