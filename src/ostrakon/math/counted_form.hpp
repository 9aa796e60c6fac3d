// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/kernel_form.hpp>

namespace ostrakon::math {

/// The form of the kernels that a LaunchCount of this program counts: kernel_form, but where a
/// program is linked with kernels of another form, which it can't run.
KernelForm counted_form();

}  // namespace ostrakon::math
