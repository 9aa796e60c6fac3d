// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/attention/rotary_frequencies.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

enum class Rotation { forward, inverse };

/// Applies rotary position embedding (Su et al. 2021) in place to x (rows, heads * head_width),
/// head by head; element i < frequencies.pairs() pairs with element i + frequencies.pairs() (the
/// "rotate half" convention of Hugging Face's Llama), angle = position * frequencies.radians[i],
/// and what was rotated is multiplied by frequencies.factor. The position of row r is
/// first_position + r % tokens, or with `document_begins` (rows) that minus document_begins[r].
/// `inverse` rotates back, for backward, and has the same factor.
template <class T>
void rotate(const Exec& exec, Rotation rotation, const RotaryFrequencies& frequencies, View<T**> x,
            std::int64_t head_width, std::int64_t tokens, std::int64_t first_position,
            View<const std::int32_t*> document_begins = {});

}  // namespace ostrakon::math
