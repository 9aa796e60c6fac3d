// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention.hpp>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/math/row_kernel.hpp>
#include <ostrakon/math/scratch.hpp>

namespace ostrakon::math {
namespace {

/// Queries whose scores exist at a time. Smaller blocks waste less above the diagonal, larger ones
/// make better matrix products.
constexpr std::int64_t query_block = on_device ? 256 : 64;

/// Key/value heads in one batched product. On a host one, so that the scores stay in cache; on a
/// device all of them, so that it has enough to do.
std::int64_t heads_at_once(const AttentionShape& shape) { return on_device ? shape.kv_heads : 1; }

std::int64_t score_elements(const AttentionShape& shape) {
  return heads_at_once(shape) * std::min(query_block, shape.tokens) * shape.tokens;
}

/// Elements of the gradient of the keys, or of the values, that backward sums up in float before it
/// is rounded; nothing where T itself is summed.
template <class T>
std::int64_t kv_sum_elements(const AttentionShape& shape) {
  return is_16bit<T> ? heads_at_once(shape) * shape.tokens * shape.head_width : 0;
}

template <class T>
T score_scale(const AttentionShape& shape) {
  return T(1) / std::sqrt(static_cast<T>(shape.head_width));
}

/// One query head of each of `count` key/value heads, one block of queries [begin, end) of one
/// sequence. Query heads that share key/value heads come one after the other, which fixes the order
/// in which their gradients add up.
struct Block {
  std::int64_t sequence;
  std::int64_t begin, end;  ///< queries; keys are [0, end)
  std::int64_t kv_head, count;
  std::int64_t member;  ///< which query head of each group

  std::int64_t queries() const { return end - begin; }
};

/// Where the operands of a block begin, and the stride between its heads.
class Operands {
 public:
  explicit Operands(const AttentionShape& shape)
      : shape_(shape), group_(shape.heads / shape.kv_heads) {}

  std::int64_t query_stride() const { return group_ * shape_.head_width; }
  std::int64_t kv_stride() const { return shape_.head_width; }

  std::int64_t query_head(const Block& block) const {
    return block.kv_head * group_ + block.member;
  }
  /// Queries of the block in qkv, or its rows of out.
  template <class T>
  Matrix<T> queries(const Matrix<T>& x, const Block& block) const {
    return part(x, block.sequence * shape_.tokens + block.begin, block.queries(),
                query_head(block));
  }
  template <class T>
  Matrix<T> keys(const Matrix<T>& qkv, const Block& block) const {
    return part(qkv, block.sequence * shape_.tokens, block.end, shape_.heads + block.kv_head);
  }
  template <class T>
  Matrix<T> values(const Matrix<T>& qkv, const Block& block) const {
    return part(qkv, block.sequence * shape_.tokens, block.end,
                shape_.heads + shape_.kv_heads + block.kv_head);
  }
  /// Of the first query and head of the block; heads lie group() * tokens apart.
  template <class T>
  T* log_sum_exp(T* all, const Block& block) const {
    return all + (block.sequence * shape_.heads + query_head(block)) * shape_.tokens + block.begin;
  }
  std::int64_t log_sum_exp_stride() const { return group_ * shape_.tokens; }

 private:
  template <class T>
  Matrix<T> part(const Matrix<T>& x, std::int64_t row, std::int64_t rows, std::int64_t head) const {
    return {x.row(row) + head * shape_.head_width, rows, shape_.head_width, x.stride};
  }

  AttentionShape shape_;
  std::int64_t group_;
};

/// Runs body(block) for blocks of queries from the last to the first, so that in backward the block
/// that sees all keys comes first and writes what the others add to.
template <class Body>
void for_each_block(const AttentionShape& shape, std::int64_t query_begin, std::int64_t query_end,
                    const Body& body) {
  const std::int64_t at_once = heads_at_once(shape);
  const std::int64_t group = shape.heads / shape.kv_heads;
  for (std::int64_t sequence = 0; sequence < shape.batch; ++sequence)
    for (std::int64_t kv_head = 0; kv_head < shape.kv_heads; kv_head += at_once)
      for (std::int64_t end = query_end; end > query_begin;) {
        const std::int64_t begin = std::max(query_begin, (end - 1) / query_block * query_block);
        for (std::int64_t member = 0; member < group; ++member)
          body(Block{sequence, begin, end, kv_head, at_once, member});
        end = begin;
      }
}

/// probabilities (queries, keys) = the softmax of every row of the scores up to its own token, 0
/// beyond. Scores are clobbered.
template <class T, class C = compute_t<T>>
void softmax_rows(const Exec& exec, const Block& block, C* scores, T* probabilities, C* log_sum_exp,
                  std::int64_t log_sum_exp_stride) {
  const std::int64_t queries = block.queries();
  const std::int64_t begin = block.begin;
  const std::int64_t keys = block.end;
  for_each_row(
      exec, "attend_softmax", block.count * queries,
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const std::int64_t query = index % queries;
        const std::int64_t seen = begin + query + 1;
        C* p = scores + index * keys;
        T* stored = stored_at(p, probabilities + index * keys);
        const C largest =
            row.maximum(seen - 1, p[seen - 1], [&](std::int64_t key) { return p[key]; });
        const C total = row.template sum<C>(seen, [&](std::int64_t key) {
          p[key] = fast_exp(p[key] - largest);
          return p[key];
        });
        const C inverse = C(1) / total;
        row.loop(seen, [&](std::int64_t key) { stored[key] = static_cast<T>(p[key] * inverse); });
        row.loop(keys - seen, [&](std::int64_t key) { stored[seen + key] = T(0); });
        row.once([&] {
          log_sum_exp[index / queries * log_sum_exp_stride + query] = largest + log(total);
        });
      });
}

/// What the rows of the backward kernel read besides the scores.
template <class T>
struct RowOperands {
  const compute_t<T>* log_sum_exp;
  std::int64_t log_sum_exp_stride;
  Matrix<const T> out, dout;  ///< (queries, head_width) of the first head
  std::int64_t head_stride;
};

/// From scores and dprobabilities: probabilities P, and dscores = P (dP - sum(dO O)) scale.
template <class T, class C = compute_t<T>>
void softmax_backward_rows(const Exec& exec, const Block& block, const RowOperands<T>& operands,
                           C scale, C* scores, C* dprobabilities, T* probabilities, T* dscores) {
  const std::int64_t queries = block.queries();
  const std::int64_t begin = block.begin;
  const std::int64_t keys = block.end;
  const RowOperands<T> from = operands;
  for_each_row(
      exec, "attend_backward", block.count * queries,
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const std::int64_t query = index % queries;
        const std::int64_t head = index / queries;
        const std::int64_t seen = begin + query + 1;
        const T* out = from.out.row(query) + head * from.head_stride;
        const T* dout = from.dout.row(query) + head * from.head_stride;
        const C delta =
            row.template sum<C>(from.out.columns, [&](std::int64_t i) { return out[i] * dout[i]; });
        const C shift = from.log_sum_exp[head * from.log_sum_exp_stride + query];
        C* s = scores + index * keys;
        C* dp = dprobabilities + index * keys;
        T* p = stored_at(s, probabilities + index * keys);
        T* ds = stored_at(dp, dscores + index * keys);
        row.loop(seen, [&](std::int64_t key) {
          const C probability = fast_exp(s[key] - shift);
          ds[key] = static_cast<T>(probability * (dp[key] - delta) * scale);
          p[key] = static_cast<T>(probability);
        });
        row.loop(keys - seen, [&](std::int64_t key) {
          p[seen + key] = T(0);
          ds[seen + key] = T(0);
        });
      });
}

/// Where the gradients of keys and values are summed over blocks of queries and heads of a group:
/// in place, in their rows of dqkv.
template <class T, bool apart = is_16bit<T>>
class KvSums {
 public:
  KvSums(const AttentionShape& shape, Scratch<T>&) : stride_(shape.head_width) {}
  Matrix<T> keys(const Matrix<T>& in_place) const { return in_place; }
  Matrix<T> values(const Matrix<T>& in_place) const { return in_place; }
  std::int64_t stride() const { return stride_; }
  void store(const Exec&, const Matrix<T>&, const Matrix<T>&, std::int64_t) const {}

 private:
  std::int64_t stride_;
};

/// In 16 bits every block would round what the others summed up: apart, in float.
template <class T>
class KvSums<T, true> {
 public:
  using C = compute_t<T>;

  KvSums(const AttentionShape& shape, Scratch<T>& scratch)
      : tokens_(shape.tokens),
        width_(shape.head_width),
        keys_(scratch.template take<C>(kv_sum_elements<T>(shape))),
        values_(scratch.template take<C>(kv_sum_elements<T>(shape))) {}
  Matrix<C> keys(const Matrix<T>& in_place) const { return {keys_, in_place.rows, width_}; }
  Matrix<C> values(const Matrix<T>& in_place) const { return {values_, in_place.rows, width_}; }
  std::int64_t stride() const { return tokens_ * width_; }

  /// The sums of `count` heads to where they belong, given by the first head's first row.
  void store(const Exec& exec, Matrix<T> dkeys, Matrix<T> dvalues, std::int64_t count) const {
    const std::int64_t tokens = tokens_;
    const std::int64_t width = width_;
    const C* const keys = keys_;
    const C* const values = values_;
    for_each_row(
        exec, "attend_store", count * tokens, KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
          const std::int64_t token = index % tokens;
          const std::int64_t column = index / tokens * width;
          T* dkey = dkeys.row(token) + column;
          T* dvalue = dvalues.row(token) + column;
          row.loop(width, [=](std::int64_t i) {
            dkey[i] = static_cast<T>(keys[index * width + i]);
            dvalue[i] = static_cast<T>(values[index * width + i]);
          });
        });
  }

 private:
  std::int64_t tokens_;
  std::int64_t width_;
  C* keys_;
  C* values_;
};

template <class T>
void check_shapes(const AttentionShape& shape, const Matrix<const T>& qkv,
                  const Matrix<const T>& out) {
  require(shape.batch >= 0 && shape.tokens >= 1 && shape.heads >= 1 && shape.kv_heads >= 1 &&
              shape.head_width >= 1 && shape.heads % shape.kv_heads == 0,
          "attention: batch ", shape.batch, ", tokens ", shape.tokens, ", heads ", shape.heads,
          ", kv_heads ", shape.kv_heads, ", head width ", shape.head_width,
          ": expected positive sizes, and kv_heads a divisor of heads");
  const std::int64_t rows = shape.batch * shape.tokens;
  const std::int64_t out_columns = shape.heads * shape.head_width;
  const std::int64_t qkv_columns = out_columns + 2 * shape.kv_heads * shape.head_width;
  require(qkv.rows == rows && qkv.columns == qkv_columns && out.rows == rows &&
              out.columns == out_columns,
          "attention: qkv (", qkv.rows, ", ", qkv.columns, ") and out (", out.rows, ", ",
          out.columns, "), expected (", rows, ", ", qkv_columns, ") and (", rows, ", ", out_columns,
          ")");
}

}  // namespace

template <class T>
std::int64_t attention_forward_workspace(const AttentionShape& shape) {
  const std::int64_t scores = score_elements(shape);
  return scratch_elements<T, compute_t<T>>(scores) + (is_16bit<T> ? scores : 0);
}

template <class T>
std::int64_t attention_backward_workspace(const AttentionShape& shape) {
  const std::int64_t scores = 2 * score_elements(shape);
  const std::int64_t sums = 2 * kv_sum_elements<T>(shape);
  return scratch_elements<T, compute_t<T>>(scores + sums) + (is_16bit<T> ? scores : 0);
}

template <class T>
void attention_forward(const Exec& exec, const AttentionShape& shape, ConstMatrix<T> qkv,
                       std::int64_t query_begin, std::int64_t query_end, Matrix<T> out,
                       compute_t<T>* log_sum_exp, T* workspace) {
  using C = compute_t<T>;
  check_shapes<T>(shape, qkv, out);
  require(0 <= query_begin && query_begin <= query_end && query_end <= shape.tokens,
          "attention: queries [", query_begin, ", ", query_end, ") of ", shape.tokens, " tokens");
  const Operands operands(shape);
  const C scale = score_scale<C>(shape);
  Scratch<T> scratch(workspace);
  C* const scores = scratch.template take<C>(score_elements(shape));
  T* const probabilities = stored_at(scores, scratch.template take<T>(0));
  for_each_block(shape, query_begin, query_end, [&](const Block& block) {
    const std::int64_t queries = block.queries();
    const std::int64_t score_stride = queries * block.end;
    gemm_batched<T>(exec, Transpose::no, Transpose::yes, scale, operands.queries(qkv, block),
                    operands.query_stride(), operands.keys(qkv, block), operands.kv_stride(), C(0),
                    Matrix<C>(scores, queries, block.end), score_stride, block.count);
    softmax_rows(exec, block, scores, probabilities, operands.log_sum_exp(log_sum_exp, block),
                 operands.log_sum_exp_stride());
    gemm_batched<T>(exec, Transpose::no, Transpose::no, C(1),
                    Matrix<T>(probabilities, queries, block.end), score_stride,
                    operands.values(qkv, block), operands.kv_stride(), C(0),
                    operands.queries(out, block), operands.query_stride(), block.count);
  });
}

template <class T>
void attention_backward(const Exec& exec, const AttentionShape& shape, ConstMatrix<T> qkv,
                        ConstMatrix<T> out, const compute_t<T>* log_sum_exp, ConstMatrix<T> dout,
                        Matrix<T> dqkv, T* workspace) {
  using C = compute_t<T>;
  check_shapes<T>(shape, qkv, out);
  check_shapes<T>(shape, dqkv, dout);
  const Operands operands(shape);
  const C scale = score_scale<C>(shape);
  Scratch<T> scratch(workspace);
  const std::int64_t size = score_elements(shape);
  C* const all_scores = scratch.template take<C>(2 * size);
  KvSums<T> sums(shape, scratch);
  T* const all_stored = stored_at(all_scores, scratch.template take<T>(0));
  for_each_block(shape, 0, shape.tokens, [&](const Block& block) {
    const std::int64_t score_stride = block.queries() * block.end;
    const std::int64_t q_stride = operands.query_stride();
    const std::int64_t kv_stride = operands.kv_stride();
    const std::int64_t second = block.count * score_stride;
    const Matrix<C> scores(all_scores, block.queries(), block.end);
    const Matrix<C> dprobabilities(all_scores + second, block.queries(), block.end);
    const Matrix<T> probabilities(all_stored, block.queries(), block.end);
    const Matrix<T> dscores(all_stored + second, block.queries(), block.end);
    const Matrix<const T> dblock = operands.queries(dout, block);
    const auto multiply = [&](Transpose transpose_a, Transpose transpose_b, C alpha,
                              Matrix<const T> a, std::int64_t a_stride, Matrix<const T> b,
                              std::int64_t b_stride, C beta, auto c, std::int64_t c_stride) {
      gemm_batched<T>(exec, transpose_a, transpose_b, alpha, a, a_stride, b, b_stride, beta, c,
                      c_stride, block.count);
    };
    const Matrix<const T> queries = operands.queries(qkv, block);
    const Matrix<const T> keys = operands.keys(qkv, block);
    multiply(Transpose::no, Transpose::yes, scale, queries, q_stride, keys, kv_stride, C(0), scores,
             score_stride);
    multiply(Transpose::no, Transpose::yes, C(1), dblock, q_stride, operands.values(qkv, block),
             kv_stride, C(0), dprobabilities, score_stride);
    softmax_backward_rows<T>(
        exec, block,
        {operands.log_sum_exp(log_sum_exp, block), operands.log_sum_exp_stride(),
         operands.queries(out, block), dblock, q_stride},
        scale, scores.data, dprobabilities.data, probabilities.data, dscores.data);
    multiply(Transpose::no, Transpose::no, C(1), dscores, score_stride, keys, kv_stride, C(0),
             operands.queries(dqkv, block), q_stride);
    const bool first = block.end == shape.tokens && block.member == 0;
    const C beta = first ? C(0) : C(1);
    multiply(Transpose::yes, Transpose::no, C(1), dscores, score_stride, queries, q_stride, beta,
             sums.keys(operands.keys(dqkv, block)), sums.stride());
    multiply(Transpose::yes, Transpose::no, C(1), probabilities, score_stride, dblock, q_stride,
             beta, sums.values(operands.values(dqkv, block)), sums.stride());
    const bool last = block.begin == 0 && block.member == shape.heads / shape.kv_heads - 1;
    if (last)
      sums.store(exec, operands.keys(dqkv, block), operands.values(dqkv, block), block.count);
  });
}

#define OSTRAKON_INSTANTIATE(T)                                                                 \
  template std::int64_t attention_forward_workspace<T>(const AttentionShape&);                  \
  template std::int64_t attention_backward_workspace<T>(const AttentionShape&);                 \
  template void attention_forward<T>(const Exec&, const AttentionShape&, ConstMatrix<T>,        \
                                     std::int64_t, std::int64_t, Matrix<T>, compute_t<T>*, T*); \
  template void attention_backward<T>(const Exec&, const AttentionShape&, ConstMatrix<T>,       \
                                      ConstMatrix<T>, const compute_t<T>*, ConstMatrix<T>,      \
                                      Matrix<T>, T*);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
