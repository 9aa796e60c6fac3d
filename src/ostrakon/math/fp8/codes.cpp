// SPDX-License-Identifier: Apache-2.0
// What products in 8 bits take. This is compiled once, in the form of what runs: kernels in the
// device form that a host counts or tests are linked with it.
#include <ostrakon/base/text.hpp>
#include <ostrakon/math/block_team.hpp>
#include <ostrakon/math/fp8/blocks.hpp>
#include <ostrakon/math/fp8/cublaslt_fp8.hpp>
#include <ostrakon/math/fp8/product.hpp>
#include <ostrakon/math/fp8/quantize.hpp>
#include <ostrakon/math/team_cluster.hpp>

namespace ostrakon::math {

bool multiplies_codes(KernelForm form) {
  if (form == kernel_form) return OSTRAKON_FP8_CUBLASLT == 1;
  return form == KernelForm::device_on_chip;
}

double device_reads(bool by_columns, std::int64_t inner, std::int64_t bytes) {
  constexpr KernelForm form = KernelForm::device_on_chip;
  const std::int64_t memory = planned_team_memory(form);
  std::int64_t again = 0;
  if (by_columns)
    again = column_parts(inner, memory, planned_teams_of_cluster(form)).read_again(inner);
  else if (inner * bytes > held_bytes_of_row)
    again = inner - kept_of_row(inner, bytes, memory);
  return 1.0 + static_cast<double>(again) / static_cast<double>(inner);
}

std::int64_t numbers_of_scale(ProductDType dtype) {
  return dtype == ProductDType::mxfp8 ? mx_block : 1;
}

std::string fp8_kernel(DType stored) {
  return multiplies_codes(kernel_form) ? "cuBLASLt"
                                       : text("as ", name(stored), ", rounded to 8 bits");
}

}  // namespace ostrakon::math
