// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention.hpp>

#include <algorithm>
#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/gemm.hpp>
#include <ostrakon/math/row_kernel.hpp>

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

/// Where the operands of a block begin, and how far its heads lie apart.
class Layout {
 public:
  explicit Layout(const AttentionShape& shape)
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

/// scores (queries, keys) -> probabilities: the softmax of every row up to its own token, 0 beyond.
template <class T>
void softmax_rows(const Exec& exec, const Block& block, T* scores, T* log_sum_exp,
                  std::int64_t log_sum_exp_stride) {
  const std::int64_t queries = block.queries();
  const std::int64_t begin = block.begin;
  const std::int64_t keys = block.end;
  for_each_row(
      exec, "attend_softmax", block.count * queries,
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const std::int64_t query = index % queries;
        const std::int64_t seen = begin + query + 1;
        T* p = scores + index * keys;
        const T largest =
            row.maximum(seen - 1, p[seen - 1], [&](std::int64_t key) { return p[key]; });
        const T total = row.template sum<T>(seen, [&](std::int64_t key) {
          p[key] = fast_exp(p[key] - largest);
          return p[key];
        });
        const T inverse = T(1) / total;
        row.loop(seen, [&](std::int64_t key) { p[key] *= inverse; });
        row.loop(keys - seen, [&](std::int64_t key) { p[seen + key] = 0; });
        row.once([&] {
          log_sum_exp[index / queries * log_sum_exp_stride + query] = largest + log(total);
        });
      });
}

/// What the rows of the backward kernel read beside the scores.
template <class T>
struct RowOperands {
  const T* log_sum_exp;
  std::int64_t log_sum_exp_stride;
  Matrix<const T> out, dout;  ///< (queries, head_width) of the first head
  std::int64_t head_stride;
};

/// scores -> probabilities P, and dprobabilities -> dscores = P (dP - sum(dO O)) scale.
template <class T>
void softmax_backward_rows(const Exec& exec, const Block& block, const RowOperands<T>& operands,
                           T scale, T* scores, T* dscores) {
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
        const T delta =
            row.template sum<T>(from.out.columns, [&](std::int64_t i) { return out[i] * dout[i]; });
        const T shift = from.log_sum_exp[head * from.log_sum_exp_stride + query];
        T* p = scores + index * keys;
        T* ds = dscores + index * keys;
        row.loop(seen, [&](std::int64_t key) {
          const T probability = fast_exp(p[key] - shift);
          ds[key] = probability * (ds[key] - delta) * scale;
          p[key] = probability;
        });
        row.loop(keys - seen, [&](std::int64_t key) {
          p[seen + key] = 0;
          ds[seen + key] = 0;
        });
      });
}

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

std::int64_t attention_forward_workspace(const AttentionShape& shape) {
  return score_elements(shape);
}

std::int64_t attention_backward_workspace(const AttentionShape& shape) {
  return 2 * score_elements(shape);
}

template <class T>
void attention_forward(const Exec& exec, const AttentionShape& shape, ConstMatrix<T> qkv,
                       std::int64_t query_begin, std::int64_t query_end, Matrix<T> out,
                       T* log_sum_exp, T* workspace) {
  check_shapes<T>(shape, qkv, out);
  require(0 <= query_begin && query_begin <= query_end && query_end <= shape.tokens,
          "attention: queries [", query_begin, ", ", query_end, ") of ", shape.tokens, " tokens");
  const Layout layout(shape);
  const T scale = score_scale<T>(shape);
  for_each_block(shape, query_begin, query_end, [&](const Block& block) {
    const std::int64_t score_stride = block.queries() * block.end;
    const Matrix<T> scores(workspace, block.queries(), block.end);
    gemm_batched<T>(exec, Transpose::no, Transpose::yes, scale, layout.queries(qkv, block),
                    layout.query_stride(), layout.keys(qkv, block), layout.kv_stride(), T(0),
                    scores, score_stride, block.count);
    softmax_rows(exec, block, workspace, layout.log_sum_exp(log_sum_exp, block),
                 layout.log_sum_exp_stride());
    gemm_batched<T>(exec, Transpose::no, Transpose::no, T(1), scores, score_stride,
                    layout.values(qkv, block), layout.kv_stride(), T(0), layout.queries(out, block),
                    layout.query_stride(), block.count);
  });
}

template <class T>
void attention_backward(const Exec& exec, const AttentionShape& shape, ConstMatrix<T> qkv,
                        ConstMatrix<T> out, const T* log_sum_exp, ConstMatrix<T> dout,
                        Matrix<T> dqkv, T* workspace) {
  check_shapes<T>(shape, qkv, out);
  check_shapes<T>(shape, dqkv, dout);
  const Layout layout(shape);
  const T scale = score_scale<T>(shape);
  for_each_block(shape, 0, shape.tokens, [&](const Block& block) {
    const std::int64_t score_stride = block.queries() * block.end;
    const std::int64_t q_stride = layout.query_stride();
    const std::int64_t kv_stride = layout.kv_stride();
    const Matrix<T> scores(workspace, block.queries(), block.end);
    const Matrix<T> dscores(workspace + block.count * score_stride, block.queries(), block.end);
    const Matrix<const T> dblock = layout.queries(dout, block);
    const auto multiply = [&](Transpose transpose_a, Transpose transpose_b, T alpha,
                              Matrix<const T> a, std::int64_t a_stride, Matrix<const T> b,
                              std::int64_t b_stride, T beta, Matrix<T> c, std::int64_t c_stride) {
      gemm_batched<T>(exec, transpose_a, transpose_b, alpha, a, a_stride, b, b_stride, beta, c,
                      c_stride, block.count);
    };
    const Matrix<const T> queries = layout.queries(qkv, block);
    const Matrix<const T> keys = layout.keys(qkv, block);
    multiply(Transpose::no, Transpose::yes, scale, queries, q_stride, keys, kv_stride, T(0), scores,
             score_stride);
    multiply(Transpose::no, Transpose::yes, T(1), dblock, q_stride, layout.values(qkv, block),
             kv_stride, T(0), dscores, score_stride);
    softmax_backward_rows<T>(exec, block,
                             {layout.log_sum_exp(log_sum_exp, block), layout.log_sum_exp_stride(),
                              layout.queries(out, block), dblock, q_stride},
                             scale, scores.data, dscores.data);
    multiply(Transpose::no, Transpose::no, T(1), dscores, score_stride, keys, kv_stride, T(0),
             layout.queries(dqkv, block), q_stride);
    const bool first = block.end == shape.tokens && block.member == 0;
    const T beta = first ? T(0) : T(1);
    multiply(Transpose::yes, Transpose::no, T(1), dscores, score_stride, queries, q_stride, beta,
             layout.keys(dqkv, block), kv_stride);
    multiply(Transpose::yes, Transpose::no, T(1), scores, score_stride, dblock, q_stride, beta,
             layout.values(dqkv, block), kv_stride);
  });
}

#define OSTRAKON_INSTANTIATE(T)                                                           \
  template void attention_forward<T>(const Exec&, const AttentionShape&, ConstMatrix<T>,  \
                                     std::int64_t, std::int64_t, Matrix<T>, T*, T*);      \
  template void attention_backward<T>(const Exec&, const AttentionShape&, ConstMatrix<T>, \
                                      ConstMatrix<T>, const T*, ConstMatrix<T>, Matrix<T>, T*);
OSTRAKON_INSTANTIATE(float)
OSTRAKON_INSTANTIATE(double)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
