// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/counted_form.hpp>

namespace ostrakon::math {

KernelForm counted_form() { return kernel_form; }

}  // namespace ostrakon::math
