// SPDX-License-Identifier: Apache-2.0
#pragma once

// The queries of attention, and the blocks of queries of the product form: the operands of a block,
// and the order of the blocks.

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/attention/attention.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/math/products/ordered_gemm.hpp>
#include <utility>

namespace ostrakon::math {

/// The runs of queries of a part, or one range of queries.
class QueryRuns {
 public:
  explicit QueryRuns(const AttentionQueries& queries)
      : sequence_(queries.sequence),
        part_(queries.part),
        document_begins_(queries.document_begins) {}
  QueryRuns(std::int64_t tokens, std::int64_t begin, std::int64_t end,
            View<const std::int32_t*> document_begins = {})
      : sequence_{tokens},
        range_{begin, begin, end - begin},
        is_range_(true),
        document_begins_(document_begins) {}
  /// Queries from position `begin` on, stored from the first of `rows` rows on.
  static QueryRuns from(std::int64_t tokens, std::int64_t begin, std::int64_t count,
                        std::int64_t rows) {
    QueryRuns runs(tokens, begin, begin + count);
    runs.range_.row = 0;
    runs.rows_ = rows;
    return runs;
  }

  /// Rows, and pieces, of each sequence.
  std::int64_t rows() const { return rows_ > 0 ? rows_ : sequence_.part_tokens(); }
  std::int64_t pieces() const { return sequence_.pieces; }
  std::int64_t runs_of_piece() const { return sequence_.piece_runs(); }
  std::int64_t runs() const { return pieces() * runs_of_piece(); }
  KOKKOS_INLINE_FUNCTION TokenRun run(std::int64_t index) const {
    return is_range_ ? range_ : sequence_.run(part_, index);
  }
  /// AttentionQueries::document_begins of the rows of all sequences; null: none.
  KOKKOS_INLINE_FUNCTION const View<const std::int32_t*>& document_begins() const {
    return document_begins_;
  }
  /// Those from row `row` of a sequence on.
  View<const std::int32_t*> document_begins(std::int64_t sequence, std::int64_t row) const {
    return document_begins_.range(sequence * rows() + row, document_begins_.size());
  }
  void check(const AttentionShape& shape) const {
    require(sequence_.tokens == shape.tokens && sequence_.pieces >= 1 && 0 <= part_ &&
                part_ < sequence_.parts && sequence_.tokens % sequence_.cuts() == 0 &&
                (sequence_.cuts() == 1 || sequence_.piece_tokens() % 2 == 0),
            "attention: queries of part ", part_, " of ", sequence_.parts, ", with ",
            sequence_.pieces, " pieces each of ", sequence_.tokens, " tokens, of sequences of ",
            shape.tokens, " tokens");
    require(
        0 <= range_.position && range_.count >= 0 && range_.position + range_.count <= shape.tokens,
        "attention: queries [", range_.position, ", ", range_.position + range_.count, ") of ",
        shape.tokens, " tokens");
    require(!document_begins_ || document_begins_.size() == shape.batch * rows(),
            "attention: begins of the documents of ", document_begins_.size(), " queries of ",
            shape.batch * rows(), "; expected as many, or none");
  }

 private:
  SequenceParts sequence_;
  std::int64_t part_ = 0;
  TokenRun range_;
  bool is_range_ = false;
  std::int64_t rows_ = 0;  // 0: the rows of a part
  View<const std::int32_t*> document_begins_;
};

/// Returns the first key that the query at `position`, row `row` of a sequence, sees: of its window
/// and its document. For host code that can read where documents begin.
inline std::int64_t first_key_of_row(const AttentionShape& shape, const QueryRuns& queries,
                                     std::int64_t sequence, std::int64_t row,
                                     std::int64_t position) {
  return first_key_of(
      position, shape.scores.window,
      queries.document_begins() ? std::int64_t{queries.document_begins(sequence, row)[0]} : 0);
}

/// Number of queries whose scores exist at a time. Smaller blocks waste less above the diagonal;
/// larger ones make better matrix products, above all on a device, which products of few rows leave
/// mostly idle.
constexpr std::int64_t attention_query_block_of(KernelForm form) {
  return is_of_device(form) ? 512 : 64;
}
constexpr std::int64_t attention_query_block = attention_query_block_of(kernel_form);

/// With a window or documents the keys of a block begin at a multiple of this. So the bits of a
/// query depend on no other of its block: ordered products sum as many terms at a time, and keys
/// that it does not see add zeros.
constexpr std::int64_t attention_key_step = product_chunk;

/// Bound of the keys of a block of queries: with a window those before the block that its first
/// query sees, from a multiple of attention_key_step on.
inline std::int64_t attention_keys_at_once(const AttentionShape& shape,
                                           KernelForm form = kernel_form) {
  const std::int64_t window = shape.scores.window;
  const std::int64_t bound = attention_query_block_of(form) + window + attention_key_step - 2;
  return window > 0 ? std::min(bound, shape.tokens) : shape.tokens;
}

/// Number of key/value heads in one batched product: one on a host, so that the scores stay in
/// cache; all on a device, so that it has enough work.
inline std::int64_t attention_heads_at_once(const AttentionShape& shape,
                                            KernelForm form = kernel_form) {
  return is_of_device(form) ? shape.kv_heads : 1;
}

/// Adjacent key/value heads of a sequence.
struct AttentionHeads {
  std::int64_t sequence;
  std::int64_t kv_head, count;
};

/// One query head of each of some key/value heads, one block of queries [begin, end). Query heads
/// that share key/value heads are processed one after the other, which fixes the order in which
/// their gradients are added; in forward those of a single query may be processed at once, as the
/// rows of one product.
struct AttentionBlock : AttentionHeads {
  std::int64_t row;         ///< row of the first query in the sequence
  std::int64_t begin, end;  ///< positions of the queries; keys are [first_key, end)
  std::int64_t first_key;
  std::int64_t member;       ///< index of the query head in its group
  bool is_first;             ///< whether it is the first block of these key/value heads
  std::int64_t members = 1;  ///< from `member` on, of one query; else 1

  std::int64_t queries() const { return end - begin; }
  /// Rows of scores of each key/value head.
  std::int64_t rows() const { return members * queries(); }
  std::int64_t keys() const { return end - first_key; }
};

/// Returns the operands of a block: the columns of its heads.
class AttentionOperands {
 public:
  /// `query_rows`: number of rows of each sequence.
  AttentionOperands(const AttentionShape& shape, std::int64_t query_rows)
      : shape_(shape), query_rows_(query_rows), group_(shape.heads / shape.kv_heads) {}

  /// Columns from a head of `out` to the next one in a batch.
  std::int64_t output_stride() const { return group_ * shape_.width_of_values(); }

  std::int64_t query_head(const AttentionBlock& block) const {
    return block.kv_head * group_ + block.member;
  }
  template <class T>
  Batch<T> queries(const View<T**>& q, const AttentionBlock& block) const {
    const std::int64_t width = shape_.head_width;
    if (block.members > 1) return members(q, block, width);
    return Batch<T>::of_columns(from_column(query_rows(q, block), query_head(block) * width), width,
                                group_ * width, block.count);
  }
  template <class T>
  Batch<T> outputs(const View<T**>& out, const AttentionBlock& block) const {
    const std::int64_t width = shape_.width_of_values();
    if (block.members > 1) return members(out, block, width);
    return Batch<T>::of_columns(from_column(query_rows(out, block), query_head(block) * width),
                                width, output_stride(), block.count);
  }
  /// Returns the block's rows with the columns of all heads.
  template <class T>
  View<T**> query_rows(const View<T**>& x, const AttentionBlock& block) const {
    const std::int64_t row = block.sequence * query_rows_ + block.row;
    return x.row_range(row, row + block.queries());
  }
  template <class T>
  Batch<T> keys(const View<T**>& kv, const AttentionBlock& block) const {
    const std::int64_t width = shape_.head_width;
    return Batch<T>::of_columns(from_column(key_rows(kv, block), block.kv_head * width), width,
                                width, block.count);
  }
  template <class T>
  Batch<T> values(const View<T**>& kv, const AttentionBlock& block) const {
    return Batch<T>::of_columns(from_column(key_rows(kv, block), value_column(block.kv_head)),
                                shape_.width_of_values(), shape_.value_stride(), block.count);
  }
  /// Return the key heads, and value heads, of all tokens of the sequence.
  template <class T>
  View<T**> all_keys(const View<T**>& kv, const AttentionHeads& heads) const {
    const std::int64_t width = shape_.head_width;
    return all_tokens(kv, heads, heads.kv_head * width, heads.count * width);
  }
  template <class T>
  View<T**> all_values(const View<T**>& kv, const AttentionHeads& heads) const {
    return all_tokens(kv, heads, value_column(heads.kv_head),
                      heads.count * shape_.width_of_values());
  }
  std::int64_t value_column(std::int64_t kv_head) const { return shape_.value_column(kv_head); }
  /// Returns the elements from the block's first query and head on; heads are
  /// log_sum_exp_stride(block) apart.
  template <class T>
  View<T*> log_sum_exp(View<T*> all, const AttentionBlock& block) const {
    return all.range((block.sequence * shape_.heads + query_head(block)) * query_rows_ + block.row,
                     all.size());
  }
  std::int64_t log_sum_exp_stride(const AttentionBlock& block) const {
    return (block.members > 1 ? 1 : group_) * query_rows_;
  }

 private:
  /// The heads of a single query, as rows.
  template <class T>
  Batch<T> members(const View<T**>& x, const AttentionBlock& block, std::int64_t width) const {
    const std::int64_t first = query_head(block) * width;
    return Batch<T>(query_rows(x, block)
                        .row(0)
                        .range(first, first + block.members * width)
                        .matrix(block.members, width));
  }
  template <class T>
  View<T**> key_rows(const View<T**>& kv, const AttentionBlock& block) const {
    const std::int64_t row = block.sequence * shape_.tokens;
    return kv.row_range(row + block.first_key, row + block.end);
  }

  template <class T>
  static View<T**> from_column(const View<T**>& x, std::int64_t first) {
    return x.column_range(first, x.columns());
  }

  template <class T>
  View<T**> all_tokens(const View<T**>& kv, const AttentionHeads& heads, std::int64_t first,
                       std::int64_t columns) const {
    const std::int64_t row = heads.sequence * shape_.tokens;
    return kv.row_range(row, row + shape_.tokens).column_range(first, first + columns);
  }

  AttentionShape shape_;
  std::int64_t query_rows_;
  std::int64_t group_;
};

/// Runs body(heads) for all key/value heads of all sequences.
template <class Body>
void for_each_attention_heads(const AttentionShape& shape, const Body& body) {
  const std::int64_t at_once = attention_heads_at_once(shape);
  for (std::int64_t sequence = 0; sequence < shape.batch; ++sequence)
    for (std::int64_t kv_head = 0; kv_head < shape.kv_heads; kv_head += at_once)
      body(AttentionHeads{sequence, kv_head, at_once});
}

/// Runs body(row, begin, end) for blocks of queries [begin, end), the first at row `row`, of `runs`
/// runs, run_of(index), which are ordered by position. The last block comes first: in backward the
/// block that sees the most keys writes the gradients that the others add to.
template <class RunOf, class Body>
void for_each_query_block(std::int64_t runs, const RunOf& run_of, const Body& body) {
  for (std::int64_t r = runs - 1; r >= 0; --r) {
    const TokenRun run = run_of(r);
    for (std::int64_t end = run.position + run.count; end > run.position;) {
      const std::int64_t begin =
          std::max(run.position, (end - 1) / attention_query_block * attention_query_block);
      body(run.row + begin - run.position, begin, end);
      end = begin;
    }
  }
}

/// Runs body(block) for all blocks that runs [first_run, first_run + runs) of the queries have with
/// these heads. `most_members`: query heads at once where a block has a single query, and there is
/// one key/value head at a time.
template <class Body>
void for_each_attention_block(const AttentionShape& shape, const AttentionHeads& heads,
                              const QueryRuns& queries, std::int64_t first_run, std::int64_t runs,
                              const Body& body, std::int64_t most_members = 1) {
  const std::int64_t group = shape.heads / shape.kv_heads;
  bool is_first = true;
  const auto run_of = [&](std::int64_t index) { return queries.run(first_run + index); };
  for_each_query_block(runs, run_of, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
    const std::int64_t at_once = end - begin == 1 && heads.count == 1 ? most_members : 1;
    const std::int64_t first_key =
        on_device ? first_key_of(begin, shape.scores.window)
                  : first_key_of_row(shape, queries, heads.sequence, row, begin);
    for (std::int64_t member = 0; member < group; member += at_once)
      body(AttentionBlock{heads, row, begin, end,
                          first_key / attention_key_step * attention_key_step, member,
                          std::exchange(is_first, false), std::min(at_once, group - member)});
  });
}

template <class T>
T score_scale(const AttentionShape& shape) {
  return shape.scores.scale > 0.0 ? static_cast<T>(shape.scores.scale)
                                  : T(1) / std::sqrt(static_cast<T>(shape.head_width));
}

/// Returns ALiBi's slope of head `head` of the shape; 0 without.
KOKKOS_INLINE_FUNCTION double slope_of_head(const AttentionScores& scores, std::int64_t head) {
  return scores.slopes > 0 ? alibi_slope(scores.slopes, scores.first_head + head) : 0.0;
}

/// The number of elements of delta, (batch, heads, rows of queries).
inline std::int64_t delta_elements(const AttentionShape& shape) {
  return shape.batch * shape.heads * shape.tokens;
}

}  // namespace ostrakon::math
