// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/math/half.hpp>
#include <ostrakon/math/kernel_form.hpp>
#include <ostrakon/math/view.hpp>

namespace ostrakon::math {

/// out(r, :) = token_table(ids[r], :) + position_table(first_position + r % tokens, :), or with
/// `document_begins` (rows) of the position minus document_begins[r]. position_table may be empty.
/// ids (rows) must be in [0, token_table.rows()); this is checked when they are loaded, not here.
template <class T>
void embedding_forward(const Exec& exec, View<const std::int32_t*> ids, std::int64_t tokens,
                       std::int64_t first_position, View<const T**> token_table,
                       View<const T**> position_table, View<T**> out,
                       View<const std::int32_t*> document_begins = {});

/// out(r, :) = table(ids[r] - first_word, :) for rows whose word is in the table; other rows are
/// unchanged.
template <class T>
void embedding_forward_some(const Exec& exec, View<const std::int32_t*> ids,
                            std::int64_t first_word, View<const T**> table,
                            View<compute_t<T>**> out);

/// out(r, :) += table(first_position + r % tokens, :), or with `document_begins` (rows) of the
/// position minus document_begins[r].
template <class T>
void add_positions(const Exec& exec, std::int64_t tokens, std::int64_t first_position,
                   View<const T**> table, View<compute_t<T>**> out,
                   View<const std::int32_t*> document_begins = {});

/// positions[r] = first_position + r % tokens - document_begins[r]: rows of a position table, whose
/// gradient is that of a table of tokens with these ids.
void find_positions(const Exec& exec, std::int64_t tokens, std::int64_t first_position,
                    View<const std::int32_t*> document_begins, View<std::int32_t*> positions);

/// own[r] = ids[r] - first_word if that is in [0, words), else -1 for a word of another table.
void find_own_words(const Exec& exec, View<const std::int32_t*> ids, std::int64_t first_word,
                    std::int64_t words, View<std::int32_t*> own);

/// *Adds* the gradients of both tables, summing rows in a fixed order. Rows with a negative id are
/// skipped. An empty table gets no gradient.
template <class T>
void embedding_backward(const Exec& exec, View<const std::int32_t*> ids, std::int64_t tokens,
                        View<const T**> dout, View<compute_t<T>**> dtoken_table,
                        View<compute_t<T>**> dposition_table);

/// Elements of workspace for embedding_backward_by_piece().
std::int64_t embedding_by_piece_workspace(std::int64_t rows, std::int64_t vocabulary,
                                          KernelForm form = kernel_form);

/// *Adds* the gradient of the token table as a sum over `pieces` equal runs of rows by the tree of
/// piece_tree.hpp; a piece without a token adds nothing to the token's row. Rows with a negative id
/// are skipped.
template <class T>
void embedding_backward_by_piece(const Exec& exec, View<const std::int32_t*> ids,
                                 View<const T**> dout, View<compute_t<T>**> dtoken_table,
                                 std::int64_t pieces, View<std::int32_t*> workspace);

/// *Adds* to dpositions, adjacent rows of the position table's gradient: row i is the sum, by the
/// tree of piece_tree.hpp, over `pieces` equal runs of rows of dout, of row first + i of each run.
template <class T>
void embedding_positions_backward(const Exec& exec, View<const T**> dout, std::int64_t pieces,
                                  std::int64_t first, View<compute_t<T>**> dpositions);

}  // namespace ostrakon::math
