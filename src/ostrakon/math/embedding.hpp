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

/// Elements of the workspace of embedding_backward_by_piece().
std::int64_t embedding_by_piece_workspace(std::int64_t rows, std::int64_t vocabulary);

/// *Adds* the gradient of the token table as a sum over `pieces` equal runs of rows by the tree of
/// piece_tree.hpp; a piece without a token adds nothing to the token's row.
template <class T>
void embedding_backward_by_piece(const Exec& exec, View<const std::int32_t*> ids,
                                 View<const T**> dout, View<compute_t<T>**> dtoken_table,
                                 std::int64_t pieces, View<std::int32_t*> workspace);

/// *Adds* to dpositions, some neighbouring rows of the position table's gradient: row i is the sum
/// over `pieces` equal runs of rows of dout, by the same tree, of each one's row first + i.
template <class T>
void embedding_positions_backward(const Exec& exec, View<const T**> dout, std::int64_t pieces,
                                  std::int64_t first, View<compute_t<T>**> dpositions);

}  // namespace ostrakon::math
