// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/float_mode.hpp>
#include <ostrakon/math/portability.hpp>
#include <vector>

namespace ostrakon::math {

/// Whether kernels can flush subnormal numbers: on the host, where its threads can. Devices compute
/// with them as fast as with others; they are kept there.
constexpr bool kernels_can_flush = can_flush_subnormals && !has_device;

/// What runs do where nothing else is set.
constexpr Subnormals default_subnormals = kernels_can_flush ? Subnormals::flush : Subnormals::keep;

/// While it lives, the calling thread and those that run kernels and matrix products for it flush
/// subnormal numbers, or keep them. At its end all have the modes that they had before. Kokkos has
/// been started; no kernel runs when it begins or ends. Two fork-joins of these threads, where
/// there are several.
class SubnormalsScope {
 public:
  explicit SubnormalsScope(Subnormals subnormals);
  ~SubnormalsScope();
  SubnormalsScope(const SubnormalsScope&) = delete;
  SubnormalsScope& operator=(const SubnormalsScope&) = delete;

 private:
  std::vector<FloatMode> before_;  // of all threads, where there are several
  FloatModeScope own_;
};

}  // namespace ostrakon::math
