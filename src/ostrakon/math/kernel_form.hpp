// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/names.hpp>
#include <ostrakon/math/portability.hpp>

namespace ostrakon::math {

/// The form of kernels, by the hardware that they run on. It determines their workspace, so a plan
/// is made for one form; plans for GPUs can be made on any machine.
enum class KernelForm {
  host,
  device,         ///< for a GPU: larger blocks, as it needs more parallel work
  device_on_chip  ///< device, attention on chip: NVIDIA from sm_80 on
};

/// Names by the hardware.
constexpr Named<KernelForm> kernel_form_names[] = {
    {KernelForm::host, "cpu"}, {KernelForm::device_on_chip, "nvidia"}, {KernelForm::device, "gpu"}};

/// The form of this build, the only one that it can run.
constexpr KernelForm kernel_form = !on_device         ? KernelForm::host
                                   : has_matrix_tiles ? KernelForm::device_on_chip
                                                      : KernelForm::device;

constexpr bool is_of_device(KernelForm form) { return form != KernelForm::host; }

/// Whether products are those of a device where kernels have this form: a product is added to C as
/// a finished sum then. The fake device has kernels of the host's form.
constexpr bool multiplies_on_device(KernelForm form) {
  return form == kernel_form ? has_device : is_of_device(form);
}

/// The dtype in which products multiply. Sums are in fp32, or double of double, in any case.
enum class ProductDType {
  as_stored,  ///< as their operands are stored
  fp8,        ///< operands are rounded to 8 bits, rows and columns are scaled; see math/fp8
  mxfp8       ///< operands are rounded to 8 bits, blocks of 32 of their numbers are scaled
};
constexpr Named<ProductDType> product_dtype_names[] = {
    {ProductDType::as_stored, "auto"}, {ProductDType::fp8, "fp8"}, {ProductDType::mxfp8, "mxfp8"}};
constexpr bool is_8bit(ProductDType dtype) { return dtype != ProductDType::as_stored; }
constexpr const char* name(ProductDType dtype) { return name_in(product_dtype_names, dtype); }

/// Formats of 8 bits, by their bits of exponent and mantissa; see math/fp8/formats.hpp.
enum class Fp8Format {
  e4m3,  ///< up to 448
  e5m2   ///< up to 57344
};
constexpr Named<Fp8Format> fp8_format_names[] = {{Fp8Format::e4m3, "e4m3"},
                                                 {Fp8Format::e5m2, "e5m2"}};
constexpr const char* name(Fp8Format format) { return name_in(fp8_format_names, format); }

}  // namespace ostrakon::math
