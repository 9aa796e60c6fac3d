// SPDX-License-Identifier: Apache-2.0
#pragma once

// This file says which queries attention has, and how it goes through products, block by block:
// what belongs to a block of queries, and the order of the blocks.

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/attention.hpp>
#include <ostrakon/math/gemm.hpp>
#include <utility>

namespace ostrakon::math {

/// The runs of a part's queries, or one range of all queries.
class QueryRuns {
 public:
  explicit QueryRuns(const AttentionQueries& queries)
      : sequence_(queries.sequence), part_(queries.part) {}
  QueryRuns(std::int64_t tokens, std::int64_t begin, std::int64_t end)
      : sequence_{tokens}, range_{begin, begin, end - begin}, is_range_(true) {}
  /// Queries from position `begin` on, which are the first of `rows` rows.
  static QueryRuns from(std::int64_t tokens, std::int64_t begin, std::int64_t count,
                        std::int64_t rows) {
    QueryRuns runs(tokens, begin, begin + count);
    runs.range_.row = 0;
    runs.rows_ = rows;
    return runs;
  }

  /// These count the rows and pieces of each sequence.
  std::int64_t rows() const { return rows_ > 0 ? rows_ : sequence_.part_tokens(); }
  std::int64_t pieces() const { return sequence_.pieces; }
  std::int64_t runs_of_piece() const { return sequence_.piece_runs(); }
  std::int64_t runs() const { return pieces() * runs_of_piece(); }
  KOKKOS_INLINE_FUNCTION TokenRun run(std::int64_t index) const {
    return is_range_ ? range_ : sequence_.run(part_, index);
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
  }

 private:
  SequenceParts sequence_;
  std::int64_t part_ = 0;
  TokenRun range_;
  bool is_range_ = false;
  std::int64_t rows_ = 0;  // 0: those of a part
};

/// Queries whose scores exist at a time. Smaller blocks waste less above the diagonal, larger ones
/// make better matrix products: on a device, where a product of few rows leaves most of it idle.
constexpr std::int64_t attention_query_block_of(KernelForm form) {
  return is_of_device(form) ? 512 : 64;
}
constexpr std::int64_t attention_query_block = attention_query_block_of(kernel_form);

/// Key/value heads in one batched product. On a host one, so that the scores stay in cache; on a
/// device all of them, so that it has enough to do.
inline std::int64_t attention_heads_at_once(const AttentionShape& shape,
                                            KernelForm form = kernel_form) {
  return is_of_device(form) ? shape.kv_heads : 1;
}

/// Some neighbouring key/value heads of a sequence.
struct AttentionHeads {
  std::int64_t sequence;
  std::int64_t kv_head, count;
};

/// One query head of each of these key/value heads, one block of queries [begin, end). Query heads
/// that share key/value heads come one after the other, which fixes the order in which their
/// gradients add up.
struct AttentionBlock : AttentionHeads {
  std::int64_t row;         ///< of the first query, among the sequence's
  std::int64_t begin, end;  ///< positions of the queries; keys are [0, end)
  std::int64_t member;      ///< which query head of each group
  bool is_first;            ///< of the blocks that look at these key/value heads

  std::int64_t queries() const { return end - begin; }
};

/// The operands of a block: those of its heads.
class AttentionOperands {
 public:
  /// `query_rows`: of each sequence.
  AttentionOperands(const AttentionShape& shape, std::int64_t query_rows)
      : shape_(shape), query_rows_(query_rows), group_(shape.heads / shape.kv_heads) {}

  std::int64_t query_stride() const { return group_ * shape_.head_width; }

  std::int64_t query_head(const AttentionBlock& block) const {
    return block.kv_head * group_ + block.member;
  }
  /// Queries of the block in q, or its rows of out.
  template <class T>
  Batch<T> queries(const View<T**>& x, const AttentionBlock& block) const {
    return heads(query_rows(x, block), query_head(block), group_, block.count);
  }
  /// Returns the block's rows with all heads.
  template <class T>
  View<T**> query_rows(const View<T**>& x, const AttentionBlock& block) const {
    const std::int64_t row = block.sequence * query_rows_ + block.row;
    return x.row_range(row, row + block.queries());
  }
  template <class T>
  Batch<T> keys(const View<T**>& kv, const AttentionBlock& block) const {
    return heads(key_rows(kv, block), block.kv_head, 1, block.count);
  }
  template <class T>
  Batch<T> values(const View<T**>& kv, const AttentionBlock& block) const {
    return heads(key_rows(kv, block), shape_.kv_heads + block.kv_head, 1, block.count);
  }
  /// The key heads, and the value heads, of all tokens of the sequence.
  template <class T>
  View<T**> all_keys(const View<T**>& kv, const AttentionHeads& heads) const {
    return all_tokens(kv, heads, heads.kv_head);
  }
  template <class T>
  View<T**> all_values(const View<T**>& kv, const AttentionHeads& heads) const {
    return all_tokens(kv, heads, shape_.kv_heads + heads.kv_head);
  }
  /// From the first query and head of the block on; heads lie log_sum_exp_stride() apart.
  template <class T>
  View<T*> log_sum_exp(View<T*> all, const AttentionBlock& block) const {
    return all.range((block.sequence * shape_.heads + query_head(block)) * query_rows_ + block.row,
                     all.size());
  }
  std::int64_t log_sum_exp_stride() const { return group_ * query_rows_; }

 private:
  template <class T>
  View<T**> key_rows(const View<T**>& kv, const AttentionBlock& block) const {
    const std::int64_t row = block.sequence * shape_.tokens;
    return kv.row_range(row, row + block.end);
  }

  /// `count` of the heads in rows x, `apart` heads from one to the next.
  template <class T>
  Batch<T> heads(const View<T**>& x, std::int64_t first, std::int64_t apart,
                 std::int64_t count) const {
    return Batch<T>::of_columns(x.column_range(first * shape_.head_width, x.columns()),
                                shape_.head_width, apart * shape_.head_width, count);
  }

  template <class T>
  View<T**> all_tokens(const View<T**>& kv, const AttentionHeads& heads, std::int64_t head) const {
    const std::int64_t row = heads.sequence * shape_.tokens;
    return kv.row_range(row, row + shape_.tokens)
        .column_range(head * shape_.head_width, (head + heads.count) * shape_.head_width);
  }

  AttentionShape shape_;
  std::int64_t query_rows_;
  std::int64_t group_;
};

/// Runs body(heads) for all of them.
template <class Body>
void for_each_attention_heads(const AttentionShape& shape, const Body& body) {
  const std::int64_t at_once = attention_heads_at_once(shape);
  for (std::int64_t sequence = 0; sequence < shape.batch; ++sequence)
    for (std::int64_t kv_head = 0; kv_head < shape.kv_heads; kv_head += at_once)
      body(AttentionHeads{sequence, kv_head, at_once});
}

/// Runs body(row, begin, end) for the blocks of queries [begin, end), the first at row `row`, in
/// `runs` runs, run_of(index), which are in the order of positions: from the last block to the
/// first, so that in backward the one that sees the most keys comes first and writes what the
/// others add to.
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

/// Runs body(block) for these blocks of these heads.
template <class RunOf, class Body>
void for_each_attention_block(const AttentionShape& shape, const AttentionHeads& heads,
                              std::int64_t runs, const RunOf& run_of, const Body& body) {
  const std::int64_t group = shape.heads / shape.kv_heads;
  bool is_first = true;
  for_each_query_block(runs, run_of, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
    for (std::int64_t member = 0; member < group; ++member)
      body(AttentionBlock{heads, row, begin, end, member, std::exchange(is_first, false)});
  });
}

}  // namespace ostrakon::math
