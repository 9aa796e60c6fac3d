// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

enum class Rotation { forward, inverse };

/// Applies rotary position embedding (Su et al. 2021) in place to x (rows, heads * head_width),
/// head by head; element i < head_width / 2 pairs with element i + head_width / 2 (the "rotate
/// half" convention of Hugging Face's Llama), angle = position * base^(-2 i / head_width). The
/// position of row r is first_position + r % tokens. `inverse` rotates back, for backward.
template <class T>
void rotate(const Exec& exec, Rotation rotation, View<T**> x, std::int64_t head_width, double base,
            std::int64_t tokens, std::int64_t first_position);

}  // namespace ostrakon::math
