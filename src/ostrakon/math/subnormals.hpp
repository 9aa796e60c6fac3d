// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/float_mode.hpp>
#include <ostrakon/math/portability.hpp>
#include <vector>

namespace ostrakon::math {

/// Whether kernels can flush subnormal numbers: on the host, if its threads can. Devices keep them,
/// as they are not slower there.
constexpr bool kernels_can_flush = can_flush_subnormals && !has_device;

/// The default of runs.
constexpr Subnormals default_subnormals = kernels_can_flush ? Subnormals::flush : Subnormals::keep;

/// During its lifetime, the calling thread and the threads of its kernels and matrix products flush
/// subnormal numbers, or keep them. At its end all have their former modes again. Kokkos must be
/// initialised, and no kernel may run when it begins or ends. Takes two fork-joins if there are
/// several threads.
class SubnormalsScope {
 public:
  explicit SubnormalsScope(Subnormals subnormals);
  ~SubnormalsScope();
  SubnormalsScope(const SubnormalsScope&) = delete;
  SubnormalsScope& operator=(const SubnormalsScope&) = delete;

 private:
  std::vector<FloatMode> before_;  // of all threads; empty if there is one
  FloatModeScope own_;
};

}  // namespace ostrakon::math
