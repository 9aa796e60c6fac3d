// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/names.hpp>

namespace ostrakon {

/// Element types of arrays that are stored or sent.
enum class DType { fp32, bf16, fp16 };

constexpr std::int64_t bytes_of(DType dtype) { return dtype == DType::fp32 ? 4 : 2; }
constexpr Named<DType> dtype_names[] = {
    {DType::fp32, "fp32"}, {DType::bf16, "bf16"}, {DType::fp16, "fp16"}};
constexpr const char* name(DType dtype) { return name_in(dtype_names, dtype); }

}  // namespace ostrakon
