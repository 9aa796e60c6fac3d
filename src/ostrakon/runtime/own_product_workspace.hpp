// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/products/product_workspace.hpp>
#include <ostrakon/runtime/arena.hpp>

namespace ostrakon::runtime {

/// A math::ProductWorkspace with memory of its own, as large as one in a plan of this build: for
/// what multiplies without a plan.
class OwnProductWorkspace {
 private:
  const Arena memory_{math::product_workspace_bytes(math::kernel_form)};
  const math::ProductWorkspace workspace_{View<std::byte*>(memory_.data(), memory_.bytes())};
};

}  // namespace ostrakon::runtime
