// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// out(r, :) = token_table(ids[r], :) + position_table(first_position + r % tokens, :).
/// position_table need not exist. ids (rows) must lie in [0, token_table.rows()): checked where
/// they were loaded, not here.
template <class T>
void embedding_forward(const Exec& exec, View<const std::int32_t*> ids, std::int64_t tokens,
                       std::int64_t first_position, View<const T**> token_table,
                       View<const T**> position_table, View<T**> out);

/// *Adds* the gradient of both tables, rows in a fixed order. Of a table that does not exist none
/// is computed.
template <class T>
void embedding_backward(const Exec& exec, View<const std::int32_t*> ids, std::int64_t tokens,
                        View<const T**> dout, View<compute_t<T>**> dtoken_table,
                        View<compute_t<T>**> dposition_table);

}  // namespace ostrakon::math
