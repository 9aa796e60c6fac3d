// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/dtype.hpp>
#include <ostrakon/base/facts.hpp>

namespace ostrakon::math {

/// What the bits of matrix products depend on in this process besides shapes and threads: the
/// library, its version, and the instructions or the device that it uses here.
Facts gemm_facts();

/// XXH3 (64 bits) of a few products of fixed random matrices of `number`, as sixteen hexadecimal
/// digits. Milliseconds.
std::string gemm_digest(DType dtype);

}  // namespace ostrakon::math
