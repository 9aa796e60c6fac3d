// SPDX-License-Identifier: Apache-2.0
#pragma once

// The decoders whose steps are timed to find the numbers of a machine.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ostrakon::bench {

/// A decoder with the layers of real ones in other proportions. It has enough layers that weights
/// and activations come from memory, as in real ones. A step has one micro-batch.
struct TimedModel {
  std::string name;
  std::string settings;        ///< keys of model and training: "key=value", separated by blanks
  std::int64_t sequences = 0;  ///< sequences per step
};

/// Models for a host: with 512, 1024 or 2048 rows, as the overhead of a product does not grow with
/// rows.
std::vector<TimedModel> host_models();

/// Properties of a device that determine sizes.
struct DeviceFacts {
  double products = 0.0;        ///< 16-bit FLOP/s in large products
  std::int64_t free_bytes = 0;  ///< free device memory per rank
};

/// The cost of a model's step.
struct StepNeeds {
  double flops = 0.0;
  std::int64_t bytes = 0;  ///< device memory
};

/// Models for a device: they fill it, with so many sequences that a step takes about as long on any
/// device, and fit into its memory; and a small one, which shows how long launches take. A model
/// whose single sequence is too slow, or too large, for the device is replaced by one for a host.
std::vector<TimedModel> device_models(const DeviceFacts& device,
                                      const std::function<StepNeeds(const TimedModel&)>& needs_of);

}  // namespace ostrakon::bench
