// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/names.hpp>

namespace ostrakon {

/// Formats in which numbers are stored and sent.
enum class Number { fp32, bf16, fp16 };

constexpr std::int64_t bytes_of(Number number) { return number == Number::fp32 ? 4 : 2; }
constexpr Named<Number> number_names[] = {
    {Number::fp32, "fp32"}, {Number::bf16, "bf16"}, {Number::fp16, "fp16"}};
constexpr const char* name(Number number) { return name_in(number_names, number); }

}  // namespace ostrakon
