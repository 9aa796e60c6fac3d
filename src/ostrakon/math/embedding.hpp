// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>

namespace ostrakon::math {

/// out(r, :) = token_table(ids[r], :) + position_table(first_position + r % tokens, :).
/// position_table.data may be null. ids (rows) must lie in [0, token_table.rows): checked where
/// they were loaded, not here.
template <class T>
void embedding_forward(const Exec& exec, const std::int32_t* ids, std::int64_t tokens,
                       std::int64_t first_position, ConstMatrix<T> token_table,
                       ConstMatrix<T> position_table, Matrix<T> out);

/// *Adds* the gradient of both tables, rows in a fixed order. That of a table whose data is null is
/// not computed.
template <class T>
void embedding_backward(const Exec& exec, const std::int32_t* ids, std::int64_t tokens,
                        ConstMatrix<T> dout, Matrix<compute_t<T>> dtoken_table,
                        Matrix<compute_t<T>> dposition_table);

}  // namespace ostrakon::math
