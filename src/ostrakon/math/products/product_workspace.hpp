// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostrakon/math/kernel_form.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// The most bytes of device memory that one product of a device's library works in, besides its
/// operands, where kernels have this form; 0: none. A library is asked for algorithms that take no
/// more.
std::int64_t product_workspace_bytes(KernelForm form);
/// The bytes that cuBLASLt may work in: what NVIDIA advises for compute capabilities 9.0 and 10.0,
/// which want most. hipBLASLt gets none, as its algorithms that need a workspace split sums.
constexpr std::int64_t cublaslt_workspace_bytes = std::int64_t{32} << 20;

/// While one exists, products that the calling thread submits work in this memory, which begins at
/// a multiple of 256 bytes. Products of streams that overlap need different memory. Without one, or
/// with no memory, algorithms are those that need none.
class ProductWorkspace {
 public:
  explicit ProductWorkspace(View<std::byte*> memory);
  ~ProductWorkspace();
  ProductWorkspace(const ProductWorkspace&) = delete;
  ProductWorkspace& operator=(const ProductWorkspace&) = delete;

  static View<std::byte*> current();

 private:
  View<std::byte*> outer_;
};

}  // namespace ostrakon::math
