// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/portability.hpp>
#include <ostrakon/plan/step_plan.hpp>
#include <vector>

namespace ostrakon::runtime {

/// An execution-space instance for each stream of plans: on a device one of its own, so that
/// kernels and copies of different streams run at the same time. Without a device one for all.
class StreamSpaces {
 public:
  StreamSpaces() : instances_(make_instances(on_device ? plan::streams : 1)) {}

  const Exec& of(plan::Stream stream) const {
    return instances_[instances_.size() == 1 ? 0 : static_cast<std::size_t>(stream)];
  }
  /// Returns when all that was submitted to any of them is done.
  void fence() const {
    for (const Exec& instance : instances_) instance.fence();
  }

 private:
  std::vector<Exec> instances_;
};

}  // namespace ostrakon::runtime
