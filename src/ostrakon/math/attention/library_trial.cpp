// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/attention/library_trial.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ostrakon/base/text.hpp>
#include <ostrakon/math/random.hpp>
#include <ostrakon/math/transfer.hpp>
#include <utility>

namespace ostrakon::math {
namespace {

/// Relative error, in the root of the mean square of a row or array, that two ways to compute with
/// 16-bit probabilities and results may differ by: 8 units in the last place of bf16.
constexpr double tolerance = 1.0 / 32.0;
constexpr double sums_tolerance = 1e-3;  ///< of a log-sum-exp, whose products are exact in float

/// Returns all elements from the first of a matrix to its last, with those between its rows.
template <class T>
View<T*> span_of(const View<T**>& x) {
  return {x.data(), (x.rows() - 1) * x.stride() + x.columns()};
}

template <class T>
void fill(const Exec& exec, const View<const T**>& x, std::uint64_t key) {
  const View<const T*> all = span_of(x);
  fill_normal<T>(exec, View<T*>(const_cast<T*>(all.data()), all.size()), key, 0, 1.0);
}

/// Rows on the host, contiguous.
template <class T>
struct HostRows {
  std::vector<T> values;
  std::int64_t columns = 0;

  std::int64_t rows() const { return static_cast<std::int64_t>(values.size()) / columns; }
  const T* row(std::int64_t i) const { return values.data() + i * columns; }
  bool operator==(const HostRows& other) const {
    return values.size() == other.values.size() &&
           std::memcmp(values.data(), other.values.data(), values.size() * sizeof(T)) == 0;
  }
};

template <class T>
HostRows<T> on_host(const Exec& exec, const View<const T**>& x) {
  const View<const T*> all = span_of(x);
  std::vector<T> whole(static_cast<std::size_t>(all.size()));
  copy_to_host(exec, all, HostView<T*>(whole.data(), all.size()));
  HostRows<T> rows{{}, x.columns()};
  for (std::int64_t i = 0; i < x.rows(); ++i)
    rows.values.insert(rows.values.end(), whole.begin() + i * x.stride(),
                       whole.begin() + i * x.stride() + x.columns());
  return rows;
}

/// Sums of squares, of differences and of what should be.
struct Squares {
  double error = 0, all = 0;

  template <class T>
  void add(const T* is, const T* should_be, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const double want = static_cast<double>(static_cast<float>(should_be[i]));
      const double difference = static_cast<double>(static_cast<float>(is[i])) - want;
      error += difference * difference;
      all += want * want;
    }
  }
  /// False for anything that is not a number, too.
  bool agree() const { return error <= tolerance * tolerance * all; }
  std::string text_of() const {
    return text("differs by ", 100.0 * std::sqrt(error / all), " % from own kernels; expected ",
                100.0 * tolerance, " % at most");
  }
};

/// A sequence and a head of keys, with its query heads.
struct Corner {
  std::int64_t sequence, kv_head;
};

/// Returns the first and the last of sequences and heads: most errors of sizes and strides show
/// there.
std::vector<Corner> corners_of(const AttentionShape& shape) {
  std::vector<Corner> all;
  for (const std::int64_t s : {std::int64_t{0}, shape.batch - 1})
    for (const std::int64_t h : {std::int64_t{0}, shape.kv_heads - 1})
      if (std::none_of(all.begin(), all.end(),
                       [&](const Corner& c) { return c.sequence == s && c.kv_head == h; }))
        all.push_back({s, h});
  return all;
}

AttentionShape one_head(const AttentionShape& shape) {
  AttentionShape one = shape;
  one.batch = 1;
  one.heads = shape.heads / shape.kv_heads;
  one.kv_heads = 1;
  return one;
}

/// Returns the rows of a corner's sequence and `width` columns for each of its heads.
template <class T>
View<T**> columns_of(const AttentionShape& shape, const View<T**>& x, const Corner& corner,
                     std::int64_t first, std::int64_t width) {
  const std::int64_t row = corner.sequence * shape.tokens;
  return x.row_range(row, row + shape.tokens).column_range(first, first + width);
}

/// What forward made of a corner.
template <class T>
struct ForwardResult {
  HostRows<T> out;
  HostRows<float> log_sum_exp;

  ForwardResult(const Exec& exec, const AttentionShape& shape, const ForwardArrays<T>& arrays,
                const Corner& corner) {
    const std::int64_t group = shape.heads / shape.kv_heads, width = shape.width_of_values();
    out = on_host<T>(exec, columns_of<T>(shape, arrays.out, corner, corner.kv_head * group * width,
                                         group * width));
    const std::int64_t head = corner.sequence * shape.heads + corner.kv_head * group;
    log_sum_exp = on_host<float>(
        exec,
        View<const float**>(arrays.log_sum_exp.data() + head * shape.tokens, group, shape.tokens));
  }
  bool operator==(const ForwardResult& other) const {
    return out == other.out && log_sum_exp == other.log_sum_exp;
  }
};

template <class T>
std::string compare(const AttentionShape& shape, const ForwardResult<T>& is,
                    const ForwardResult<T>& should_be) {
  const std::int64_t width = shape.width_of_values();
  for (std::int64_t i = 0; i < is.out.rows(); ++i)
    for (std::int64_t c = 0; c < is.out.columns; c += width) {
      Squares squares;
      squares.add(is.out.row(i) + c, should_be.out.row(i) + c, width);
      if (!squares.agree()) return text("query ", i, " ", squares.text_of());
    }
  for (std::size_t i = 0; i < is.log_sum_exp.values.size(); ++i) {
    const float sum = is.log_sum_exp.values[i], own = should_be.log_sum_exp.values[i];
    if (!(std::abs(sum - own) <= sums_tolerance))
      return text("has a log-sum-exp of ", sum, ", own kernels of ", own);
  }
  return {};
}

/// What backward made of a corner: gradients of queries, keys and values.
template <class T>
struct BackwardResult {
  HostRows<T> all[3];

  BackwardResult(const Exec& exec, const AttentionShape& shape, const BackwardArrays<T>& arrays,
                 const Corner& corner) {
    const std::int64_t group = shape.heads / shape.kv_heads, width = shape.head_width;
    const std::int64_t head = corner.kv_head;
    const auto made = [&](std::int64_t first, std::int64_t columns) {
      return on_host<T>(exec, columns_of<T>(shape, arrays.dqkv, corner, first, columns));
    };
    const std::int64_t keys = shape.query_columns();
    all[0] = made(head * group * width, group * width);
    all[1] = made(keys + head * width, width);
    all[2] = made(keys + shape.value_column(head), shape.width_of_values());
  }
  bool operator==(const BackwardResult& other) const {
    return all[0] == other.all[0] && all[1] == other.all[1] && all[2] == other.all[2];
  }
};

template <class T>
std::string compare(const AttentionShape&, const BackwardResult<T>& is,
                    const BackwardResult<T>& should_be) {
  constexpr const char* names[] = {"queries", "keys", "values"};
  for (int i = 0; i < 3; ++i) {
    Squares squares;
    squares.add(is.all[i].values.data(), should_be.all[i].values.data(),
                static_cast<std::int64_t>(is.all[i].values.size()));
    if (!squares.agree()) return text("the gradient of ", names[i], " ", squares.text_of());
  }
  return {};
}

/// The trial, with own(), compute_all() and compute(one head, sequence, head), which compute, and
/// result(corner). wipe() clears what they make, so that nothing made before is found again.
template <class Wipe, class Own, class Result>
std::string compare_all(const AttentionShape& shape, const Wipe& wipe, const Own& own,
                        const std::function<std::string()>& compute_all, const ComputePart& compute,
                        const Result& result) {
  using Made = decltype(result(Corner{}));
  const std::vector<Corner> corners = corners_of(shape);
  const auto results = [&] {
    std::vector<Made> made;
    for (const Corner& corner : corners) made.push_back(result(corner));
    return made;
  };
  own();
  const std::vector<Made> owns = results();
  wipe();
  if (std::string refusal = compute_all(); !refusal.empty()) return refusal;
  const std::vector<Made> whole = results();
  for (std::size_t i = 0; i < corners.size(); ++i)
    if (std::string error = compare(shape, whole[i], owns[i]); !error.empty()) return error;
  wipe();
  if (std::string refusal = compute_all(); !refusal.empty()) return refusal;
  if (!(results() == whole)) return "has other bits when it is computed again";
  for (std::size_t i = 0; i < corners.size(); ++i) {
    const Corner& corner = corners[i];
    wipe();
    std::string refusal = compute(one_head(shape), corner.sequence, corner.kv_head);
    if (!refusal.empty()) return refusal;
    if (!(result(corner) == whole[i]))
      return text("sequence ", corner.sequence, ", head ", corner.kv_head,
                  " of keys has other bits when it is computed alone");
  }
  return {};
}

AttentionShape by_own_kernels(AttentionShape shape) {
  shape.library = LibraryUse::never;
  return shape;
}

template <class T>
void own_forward(const Exec& exec, const AttentionShape& shape, const ForwardArrays<T>& arrays,
                 View<T*> workspace) {
  attention_forward<T>(exec, by_own_kernels(shape), arrays.qkv, 0, shape.tokens, arrays.out,
                       arrays.log_sum_exp, workspace);
}

}  // namespace

std::string describe_attention(const AttentionShape& shape, AttentionPass pass) {
  return text(pass == AttentionPass::forward ? "forward" : "backward", ", heads of ",
              shape.head_width,
              shape.width_of_values() == shape.head_width
                  ? ""
                  : text(" with values of ", shape.width_of_values()),
              shape.scores.window > 0 ? text(", window ", shape.scores.window) : "");
}

template <class T>
std::string try_forward(const Exec& exec, const AttentionShape& shape,
                        const ForwardArrays<T>& arrays, View<T*> workspace,
                        const ComputePart& compute) {
  fill(exec, arrays.qkv, 1);
  return compare_all(
      shape,
      [&] {
        clear(exec, span_of(arrays.out));
        clear(exec, arrays.log_sum_exp);
      },
      [&] { own_forward<T>(exec, shape, arrays, workspace); }, [&] { return compute(shape, 0, 0); },
      compute, [&](const Corner& corner) { return ForwardResult<T>(exec, shape, arrays, corner); });
}

template <class T>
std::string try_backward(const Exec& exec, const AttentionShape& shape,
                         const ForwardArrays<T>& arrays, const BackwardArrays<T>& gradients,
                         View<T*> workspace, const std::function<std::string()>& compute_all,
                         const ComputePart& compute) {
  fill(exec, arrays.qkv, 1);
  fill(exec, gradients.dout, 2);
  own_forward<T>(exec, shape, arrays, workspace);
  const View<const T**> out = arrays.out;
  return compare_all(
      shape, [&] { clear(exec, span_of(gradients.dqkv)); },
      [&] {
        attention_backward<T>(exec, by_own_kernels(shape), arrays.qkv, out, arrays.log_sum_exp,
                              gradients.dout, gradients.dqkv, workspace);
      },
      compute_all, compute,
      [&](const Corner& corner) { return BackwardResult<T>(exec, shape, gradients, corner); });
}

#define OSTRAKON_INSTANTIATE(T)                                                                    \
  template std::string try_forward<T>(const Exec&, const AttentionShape&, const ForwardArrays<T>&, \
                                      View<T*>, const ComputePart&);                               \
  template std::string try_backward<T>(                                                            \
      const Exec&, const AttentionShape&, const ForwardArrays<T>&, const BackwardArrays<T>&,       \
      View<T*>, const std::function<std::string()>&, const ComputePart&);
OSTRAKON_INSTANTIATE(bf16)
OSTRAKON_INSTANTIATE(fp16)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
