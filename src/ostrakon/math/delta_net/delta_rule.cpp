// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/math/delta_net/delta_rule.hpp>

#include <cmath>
#include <ostrakon/math/elementary.hpp>
#include <ostrakon/math/equal_sizes.hpp>
#include <ostrakon/math/rows/row_kernel.hpp>

namespace ostrakon::math {
namespace {

constexpr std::int64_t chunk = delta_rule_chunk;

/// A matrix that a product takes: element (i, j) at data[i * row + j * column].
template <class C>
struct Factor {
  const C* data;
  std::int64_t row, column;
};
template <class C>
KOKKOS_INLINE_FUNCTION Factor<C> rows_of(const C* data, std::int64_t row) {
  return {data, row, 1};
}
template <class C>
KOKKOS_INLINE_FUNCTION Factor<C> columns_of(const C* data, std::int64_t row) {
  return {data, 1, row};
}

#if !OSTRAKON_ON_DEVICE
/// Rows and columns of c of which sums are in registers.
constexpr int tile_rows = 4, tile_columns = 32;

/// c (m, n) = a (m, k) b (k, n), added to what is there if `adds`, for a tile or a part of one.
template <class C>
void multiply_tile(std::int64_t m, std::int64_t n, std::int64_t k, const Factor<C>& a, const C* b,
                   std::int64_t b_row, C* c, std::int64_t c_row, bool adds) {
  C sum[tile_rows][tile_columns] = {};
  if (m == tile_rows && n == tile_columns) {
    if (adds)
      for (int i = 0; i < tile_rows; ++i)
        for (int j = 0; j < tile_columns; ++j) sum[i][j] = c[i * c_row + j];
    for (std::int64_t p = 0; p < k; ++p) {
      const C* const of = b + p * b_row;
      for (int i = 0; i < tile_rows; ++i) {
        const C factor = a.data[i * a.row + p * a.column];
        for (int j = 0; j < tile_columns; ++j) sum[i][j] = multiply_add(factor, of[j], sum[i][j]);
      }
    }
    for (int i = 0; i < tile_rows; ++i)
      for (int j = 0; j < tile_columns; ++j) c[i * c_row + j] = sum[i][j];
    return;
  }
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; adds && j < n; ++j) sum[i][j] = c[i * c_row + j];
    for (std::int64_t p = 0; p < k; ++p) {
      const C factor = a.data[i * a.row + p * a.column];
      for (std::int64_t j = 0; j < n; ++j)
        sum[i][j] = multiply_add(factor, b[p * b_row + j], sum[i][j]);
    }
    for (std::int64_t j = 0; j < n; ++j) c[i * c_row + j] = sum[i][j];
  }
}
#endif

/// c (m, n) = a (m, k) b (k, n), added to what is there if `adds`. Each element is one chain of
/// sums over k.
template <class C>
KOKKOS_FUNCTION void multiply(const Row& row, std::int64_t m, std::int64_t n, std::int64_t k,
                              const Factor<C>& a, const C* b, std::int64_t b_row, C* c,
                              std::int64_t c_row, bool adds) {
#if OSTRAKON_ON_DEVICE
  row.loop(m * n, [=](std::int64_t at) {
    const std::int64_t i = at / n, j = at % n;
    C sum = adds ? c[i * c_row + j] : C(0);
    for (std::int64_t p = 0; p < k; ++p)
      sum = multiply_add(a.data[i * a.row + p * a.column], b[p * b_row + j], sum);
    c[i * c_row + j] = sum;
  });
#else
  static_cast<void>(row);
  for (std::int64_t j = 0; j < n; j += tile_columns)
    for (std::int64_t i = 0; i < m; i += tile_rows)
      multiply_tile<C>(smaller(tile_rows, m - i), smaller(tile_columns, n - j), k,
                       {a.data + i * a.row, a.row, a.column}, b + j, b_row, c + i * c_row + j,
                       c_row, adds);
#endif
}

/// The sum of a[i] b[i], in the lanes of HostRow::sum.
template <class C>
KOKKOS_INLINE_FUNCTION C dot(std::int64_t count, const C* a, const C* b) {
  constexpr int lanes = 16;
  C lane[lanes] = {};
  const std::int64_t whole = count / lanes * lanes;
  for (std::int64_t i = 0; i < whole; i += lanes)
    for (int l = 0; l < lanes; ++l) lane[l] = multiply_add(a[i + l], b[i + l], lane[l]);
  for (std::int64_t i = whole; i < count; ++i)
    lane[i - whole] = multiply_add(a[i], b[i], lane[i - whole]);
  for (int width = lanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) lane[l] += lane[l + width];
  return lane[0];
}

template <class C>
KOKKOS_INLINE_FUNCTION C softplus(C x) {
  return x > C(20) ? x : std::log1p(fast_exp(x));
}

/// 1 / sqrt(the sum of squares + 1e-6).
template <class C>
KOKKOS_INLINE_FUNCTION C over_length(std::int64_t count, const C* x) {
  return C(1) / sqrt(dot(count, x, x) + C(1e-6));
}

/// x (count, width) = columns from `column` on of rows from `first` on.
template <class T>
KOKKOS_FUNCTION void load(const Row& row, const View<const T**>& from, std::int64_t first,
                          std::int64_t column, std::int64_t count, std::int64_t width,
                          compute_t<T>* x) {
  row.loop(count, [=](std::int64_t t) {
    const T* const in = &from(first + t, column);
    for (std::int64_t i = 0; i < width; ++i) x[t * width + i] = static_cast<compute_t<T>>(in[i]);
  });
}

/// to (columns, rows) = from (rows, columns).
template <class C>
KOKKOS_FUNCTION void transpose(const Row& row, std::int64_t rows, std::int64_t columns,
                               const C* from, C* to, std::int64_t to_row) {
  row.loop(rows, [=](std::int64_t i) {
    for (std::int64_t j = 0; j < columns; ++j) to[j * to_row + i] = from[i * columns + j];
  });
}

/// Normed queries and keys of a chunk, and what follows from them alone.
template <class C>
struct Keys {
  C *q, *k;    // (count, key_width)
  C* columns;  // of keys: (key_width, chunk)
  C *qk, *kk;  // (count, chunk): products of each with all keys
};

template <class T>
KOKKOS_FUNCTION void load_keys(const Row& row, const DeltaRuleShape& s, const View<const T**>& x,
                               std::int64_t first, std::int64_t head, std::int64_t count,
                               const Keys<compute_t<T>>& keys) {
  using C = compute_t<T>;
  const std::int64_t width = s.key_width;
  load<T>(row, x, first, head * width, count, width, keys.q);
  load<T>(row, x, first, s.key_columns() + head * width, count, width, keys.k);
  const C of_queries = C(1) / sqrt(static_cast<C>(width));
  row.loop(2 * count, [=](std::int64_t t) {
    C* const one = t < count ? keys.q + t * width : keys.k + (t - count) * width;
    const C factor = over_length(width, one) * (t < count ? of_queries : C(1));
    for (std::int64_t i = 0; i < width; ++i) one[i] *= factor;
  });
  transpose<C>(row, count, width, keys.k, keys.columns, chunk);
  multiply<C>(row, count, count, width, rows_of(keys.q, width), keys.columns, chunk, keys.qk, chunk,
              false);
  multiply<C>(row, count, count, width, rows_of(keys.k, width), keys.columns, chunk, keys.kk, chunk,
              false);
}

/// Gates of a head's tokens in a chunk. Decays are those from the start of the chunk on.
template <class C>
struct Gates {
  C *beta, *logs, *decays;  // (count); the last is e^log
  C* between;               // (count, chunk): e^(log t - log j) for j <= t, else 0
};

template <class T>
KOKKOS_FUNCTION void load_gates(const Row& row, const DeltaRuleShape& s,
                                const View<const T**>& gates, const View<const T*>& decay,
                                const View<const T*>& bias, std::int64_t first, std::int64_t head,
                                std::int64_t count, const Gates<compute_t<T>>& to) {
  using C = compute_t<T>;
  const C rate = fast_exp(C(decay[head])), shift = C(bias[head]);
  row.loop(count, [=](std::int64_t t) {
    to.beta[t] = fast_sigmoid(C(gates(first + t, head)));
    to.logs[t] = -rate * softplus(C(gates(first + t, s.value_heads + head)) + shift);
  });
  row.once([=] {
    for (std::int64_t t = 1; t < count; ++t) to.logs[t] += to.logs[t - 1];
  });
  row.loop(count, [=](std::int64_t t) {
    to.decays[t] = fast_exp(to.logs[t]);
    for (std::int64_t j = 0; j < count; ++j) {
      const C between = fast_exp(to.logs[t] - to.logs[j < t ? j : t]);
      to.between[t * chunk + j] = j <= t ? between : C(0);
    }
  });
}

/// d_t = beta_t y_t, y_t = y_t - the sum over j < t of between_tj (k_t k_j) d_j: what the state
/// before the chunk leaves of values is in y at first.
template <class C>
KOKKOS_FUNCTION void solve(const Row& row, std::int64_t count, std::int64_t width, const C* kk,
                           const Gates<C>& gates, C* y, C* d) {
  const auto columns = [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = 0; t < count; ++t) {
      C* const of = y + t * width;
      for (std::int64_t j = 0; j < t; ++j) {
        const C factor = -gates.between[t * chunk + j] * kk[t * chunk + j];
        for (std::int64_t i = begin; i < end; ++i)
          of[i] = multiply_add(factor, d[j * width + i], of[i]);
      }
      for (std::int64_t i = begin; i < end; ++i) d[t * width + i] = gates.beta[t] * of[i];
    }
  };
#if OSTRAKON_ON_DEVICE
  row.loop(width, [=](std::int64_t i) { columns(i, i + 1); });
#else
  static_cast<void>(row);
  columns(0, width);
#endif
}

/// The other way round: from the gradient of d, which is complete but for what later tokens take
/// of it, to that; `to` = that times beta.
template <class C>
KOKKOS_FUNCTION void solve_back(const Row& row, std::int64_t count, std::int64_t width, const C* kk,
                                const Gates<C>& gates, C* dd, C* to) {
  const auto columns = [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = count - 1; t >= 0; --t) {
      for (std::int64_t i = begin; i < end; ++i)
        to[t * width + i] = gates.beta[t] * dd[t * width + i];
      for (std::int64_t j = 0; j < t; ++j) {
        const C factor = -gates.between[t * chunk + j] * kk[t * chunk + j];
        for (std::int64_t i = begin; i < end; ++i)
          dd[j * width + i] = multiply_add(factor, to[t * width + i], dd[j * width + i]);
      }
    }
  };
#if OSTRAKON_ON_DEVICE
  row.loop(width, [=](std::int64_t i) { columns(i, i + 1); });
#else
  static_cast<void>(row);
  columns(0, width);
#endif
}

/// y (count, value_width) = values - decays * (k S), d and y of all tokens of the chunk.
template <class T>
KOKKOS_FUNCTION void find_changes(const Row& row, const DeltaRuleShape& s, const View<const T**>& x,
                                  std::int64_t first, std::int64_t head, std::int64_t count,
                                  const Keys<compute_t<T>>& keys, const Gates<compute_t<T>>& gates,
                                  const compute_t<T>* state, compute_t<T>* y, compute_t<T>* d) {
  using C = compute_t<T>;
  const std::int64_t width = s.value_width, column = 2 * s.key_columns() + head * width;
  multiply<C>(row, count, width, s.key_width, rows_of(keys.k, s.key_width), state, width, y, width,
              false);
  row.loop(count, [=](std::int64_t t) {
    const T* const value = &x(first + t, column);
    for (std::int64_t i = 0; i < width; ++i)
      y[t * width + i] = multiply_add(-gates.decays[t], y[t * width + i], C(value[i]));
  });
  solve<C>(row, count, width, keys.kk, gates, y, d);
}

/// scaled (count, key_width) = the keys times the decays from their tokens to the chunk's end.
template <class C>
KOKKOS_FUNCTION void scale_keys(const Row& row, std::int64_t count, std::int64_t width, const C* k,
                                const Gates<C>& gates, C* scaled) {
  row.loop(count, [=](std::int64_t t) {
    const C factor = gates.between[(count - 1) * chunk + t];
    for (std::int64_t i = 0; i < width; ++i) scaled[t * width + i] = factor * k[t * width + i];
  });
}

/// a (count, chunk) = between * b.
template <class C>
KOKKOS_FUNCTION void decay_between(const Row& row, std::int64_t count, const Gates<C>& gates,
                                   const C* b, C* a) {
  row.loop(count, [=](std::int64_t t) {
    for (std::int64_t j = 0; j < count; ++j)
      a[t * chunk + j] = gates.between[t * chunk + j] * b[t * chunk + j];
  });
}

/// Cuts the memory of an item of work.
template <class C>
struct Room {
  C* next;
  KOKKOS_INLINE_FUNCTION C* take(std::int64_t elements) {
    C* const taken = next;
    next += elements;
    return taken;
  }
  KOKKOS_INLINE_FUNCTION Keys<C> take_keys(std::int64_t width) {
    Keys<C> keys;
    keys.q = take(chunk * width);
    keys.k = take(chunk * width);
    keys.columns = take(chunk * width);
    keys.qk = take(chunk * chunk);
    keys.kk = take(chunk * chunk);
    return keys;
  }
  KOKKOS_INLINE_FUNCTION Gates<C> take_gates() {
    Gates<C> gates;
    gates.beta = take(chunk);
    gates.logs = take(chunk);
    gates.decays = take(chunk);
    gates.between = take(chunk * chunk);
    return gates;
  }
};

constexpr std::int64_t keys_elements(const DeltaRuleShape& s) {
  return chunk * (3 * s.key_width + 2 * chunk);
}
constexpr std::int64_t gates_elements() { return chunk * (3 + chunk); }

/// Elements of scratch of an item of forward: a head of values of a sequence.
std::int64_t forward_item(const DeltaRuleShape& s) {
  return keys_elements(s) + gates_elements() + chunk * (2 * s.value_width + s.key_width + chunk);
}

/// Elements of scratch of an item of backward: a head of keys of a sequence, with its heads of
/// values.
std::int64_t backward_item(const DeltaRuleShape& s) {
  const std::int64_t states = s.key_width * s.value_width;
  return keys_elements(s) + gates_elements() +
         chunk * (5 * s.value_width + 4 * s.key_width + 3 * chunk + 2) + s.key_width + 2 * states +
         s.value_heads / s.key_heads * states;
}

template <class T>
void require_shapes(const char* name, const DeltaRuleShape& s, const View<const T**>& x,
                    const View<const T**>& gates, const View<const T*>& decay,
                    const View<const T*>& bias) {
  require_shape(name, "x", x, s.rows(), s.columns());
  require_shape(name, "gates", gates, s.rows(), 2 * s.value_heads);
  require_size(name, "decay", decay, s.value_heads);
  require_size(name, "bias", bias, s.value_heads);
}

}  // namespace

std::int64_t delta_rule_forward_workspace(const DeltaRuleShape& s) {
  return s.sequences * s.value_heads * forward_item(s);
}

std::int64_t delta_rule_backward_workspace(const DeltaRuleShape& s) {
  return s.sequences * s.key_heads * backward_item(s);
}

template <class T>
void delta_rule_forward(const Exec& exec, const DeltaRuleShape& s, bool continues,
                        View<const T**> x, View<const T**> gates, View<const T*> decay,
                        View<const T*> bias, View<compute_t<T>**> state,
                        View<compute_t<T>**> states, View<T**> out, View<compute_t<T>*> workspace) {
  using C = compute_t<T>;
  const char* const name = "delta_rule";
  require_shapes<T>(name, s, x, gates, decay, bias);
  require_shape(name, "state", state, s.sequences, s.state_columns());
  if (states) require_shape(name, "states", states, s.sequences * s.chunks(), s.state_columns());
  require_shape(name, "out", out, s.rows(), s.value_columns());
  const std::int64_t item = forward_item(s), chunks = s.chunks();
  const std::int64_t keys = s.key_width, values = s.value_width, of_state = keys * values;
  for_each_row(
      exec, name, s.sequences * s.value_heads, chunk * values,
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const std::int64_t sequence = index / s.value_heads, head = index % s.value_heads;
        const std::int64_t key_head = head / (s.value_heads / s.key_heads);
        Room<C> room{&workspace[index * item]};
        const Keys<C> of_keys = room.take_keys(keys);
        const Gates<C> of_gates = room.take_gates();
        C* const y = room.take(chunk * values);
        C* const d = room.take(chunk * values);
        C* const scaled = room.take(chunk * keys);
        C* const shares = room.take(chunk * chunk);
        C* const now = &state(sequence, head * of_state);
        if (!continues) row.loop(of_state, [=](std::int64_t i) { now[i] = C(0); });
        for (std::int64_t c = 0; c < chunks; ++c) {
          const std::int64_t count = smaller(chunk, s.tokens - c * chunk);
          const std::int64_t first = sequence * s.tokens + c * chunk;
          if (states) {
            C* const before = &states(sequence * chunks + c, head * of_state);
            row.loop(of_state, [=](std::int64_t i) { before[i] = now[i]; });
          }
          load_keys<T>(row, s, x, first, key_head, count, of_keys);
          load_gates<T>(row, s, gates, decay, bias, first, head, count, of_gates);
          find_changes<T>(row, s, x, first, head, count, of_keys, of_gates, now, y, d);
          // Outputs: of the state before the chunk, and of the changes since.
          multiply<C>(row, count, values, keys, rows_of<C>(of_keys.q, keys), now, values, y, values,
                      false);
          row.loop(count, [=](std::int64_t t) {
            for (std::int64_t i = 0; i < values; ++i) y[t * values + i] *= of_gates.decays[t];
          });
          decay_between<C>(row, count, of_gates, of_keys.qk, shares);
          multiply<C>(row, count, values, count, rows_of<C>(shares, chunk), d, values, y, values,
                      true);
          row.loop(count, [=](std::int64_t t) {
            T* const to = &out(first + t, head * values);
            for (std::int64_t i = 0; i < values; ++i) to[i] = static_cast<T>(y[t * values + i]);
          });
          const C decayed = of_gates.decays[count - 1];
          row.loop(of_state, [=](std::int64_t i) { now[i] *= decayed; });
          scale_keys<C>(row, count, keys, of_keys.k, of_gates, scaled);
          multiply<C>(row, keys, values, count, columns_of<C>(scaled, keys), d, values, now, values,
                      true);
        }
      });
}

template <class T>
void delta_rule_backward(const Exec& exec, const DeltaRuleShape& s, View<const T**> x,
                         View<const T**> gates, View<const T*> decay, View<const T*> bias,
                         View<const compute_t<T>**> states, View<const T**> dout, View<T**> dx,
                         View<T**> dgates, View<compute_t<T>**> terms,
                         View<compute_t<T>*> workspace) {
  using C = compute_t<T>;
  const char* const name = "delta_rule_dx";
  require_shapes<T>(name, s, x, gates, decay, bias);
  require_shape(name, "states", states, s.sequences * s.chunks(), s.state_columns());
  require_shape(name, "dout", dout, s.rows(), s.value_columns());
  require_shape(name, "dx", dx, s.rows(), s.columns());
  require_shape(name, "dgates", dgates, s.rows(), 2 * s.value_heads);
  require_shape(name, "terms", terms, s.rows(), 2 * s.value_heads);
  const std::int64_t item = backward_item(s), chunks = s.chunks();
  const std::int64_t group = s.value_heads / s.key_heads;
  const std::int64_t keys = s.key_width, values = s.value_width, of_state = keys * values;
  for_each_row(
      exec, name, s.sequences * s.key_heads, chunk * values,
      KOKKOS_LAMBDA(const Row& row, std::int64_t index) {
        const std::int64_t sequence = index / s.key_heads, key_head = index % s.key_heads;
        Room<C> room{&workspace[index * item]};
        const Keys<C> of = room.take_keys(keys);
        const Gates<C> gate = room.take_gates();
        C *const y = room.take(chunk * values), *const d = room.take(chunk * values);
        C *const dd = room.take(chunk * values), *const dy = room.take(chunk * values);
        C* const out = room.take(chunk * values);  // its gradient
        C *const dq = room.take(chunk * keys), *const dk = room.take(chunk * keys);
        C *const scaled = room.take(chunk * keys), *const some = room.take(chunk * keys);
        C *const shares = room.take(chunk * chunk), *const by_out = room.take(chunk * chunk);
        C* const by_change = room.take(chunk * chunk);
        C *const dlog = room.take(chunk), *const dbeta = room.take(chunk);
        C* const products = room.take(keys);
        C *const turned = room.take(of_state), *const dturned = room.take(of_state);
        C* const dstates = room.take(group * of_state);
        row.loop(group * of_state, [=](std::int64_t i) { dstates[i] = C(0); });
        for (std::int64_t c = chunks - 1; c >= 0; --c) {
          const std::int64_t count = smaller(chunk, s.tokens - c * chunk), last = count - 1;
          const std::int64_t first = sequence * s.tokens + c * chunk;
          load_keys<T>(row, s, x, first, key_head, count, of);
          row.loop(count * keys, [=](std::int64_t i) { dq[i] = dk[i] = C(0); });
          for (std::int64_t g = 0; g < group; ++g) {
            const std::int64_t head = key_head * group + g;
            const C* const before = &states(sequence * chunks + c, head * of_state);
            C* const dstate = dstates + g * of_state;
            load_gates<T>(row, s, gates, decay, bias, first, head, count, gate);
            find_changes<T>(row, s, x, first, head, count, of, gate, before, y, d);
            load<T>(row, dout, first, head * values, count, values, out);
            // Gradients of the changes d: by outputs of this chunk, and by the state behind it.
            decay_between<C>(row, count, gate, of.qk, shares);
            scale_keys<C>(row, count, keys, of.k, gate, scaled);
            multiply<C>(row, count, values, count, columns_of<C>(shares, chunk), out, values, dd,
                        values, false);
            multiply<C>(row, count, values, keys, rows_of<C>(scaled, keys), dstate, values, dd,
                        values, true);
            solve_back<C>(row, count, values, of.kk, gate, dd, dy);
            row.loop(count, [=](std::int64_t t) {
              dbeta[t] = dot(values, dd + t * values, y + t * values);
              T* const to = &dx(first + t, 2 * s.key_columns() + head * values);
              for (std::int64_t i = 0; i < values; ++i) to[i] = static_cast<T>(dy[t * values + i]);
            });
            // Gradients of what passes from one token of the chunk to another.
            transpose<C>(row, count, values, d, dd, chunk);
            multiply<C>(row, count, count, values, rows_of<C>(out, values), dd, chunk, by_out,
                        chunk, false);
            multiply<C>(row, count, count, values, rows_of<C>(dy, values), dd, chunk, by_change,
                        chunk, false);
            row.loop(count, [=](std::int64_t t) {
              C sum = C(0);
              for (std::int64_t j = 0; j < t; ++j)
                sum +=
                    by_out[t * chunk + j] * shares[t * chunk + j] -
                    by_change[t * chunk + j] * gate.between[t * chunk + j] * of.kk[t * chunk + j];
              for (std::int64_t i = t + 1; i < count; ++i)
                sum -=
                    by_out[i * chunk + t] * shares[i * chunk + t] -
                    by_change[i * chunk + t] * gate.between[i * chunk + t] * of.kk[i * chunk + t];
              dlog[t] = sum;
            });
            row.loop(count, [=](std::int64_t t) {
              for (std::int64_t j = 0; j < count; ++j) {
                by_out[t * chunk + j] *= gate.between[t * chunk + j];
                by_change[t * chunk + j] *= j < t ? -gate.between[t * chunk + j] : C(0);
              }
              for (std::int64_t i = 0; i < values; ++i) {
                out[t * values + i] *= gate.decays[t];
                dy[t * values + i] *= -gate.decays[t];
              }
            });
            // Through the state before the chunk: of queries, then of keys.
            transpose<C>(row, keys, values, before, turned, keys);
            multiply<C>(row, count, keys, values, rows_of<C>(out, values), turned, keys, some, keys,
                        false);
            row.loop(count, [=](std::int64_t t) {
              dlog[t] += dot(keys, some + t * keys, of.q + t * keys);
              for (std::int64_t i = 0; i < keys; ++i) dq[t * keys + i] += some[t * keys + i];
            });
            multiply<C>(row, count, keys, values, rows_of<C>(dy, values), turned, keys, some, keys,
                        false);
            row.loop(count, [=](std::int64_t t) {
              dlog[t] += dot(keys, some + t * keys, of.k + t * keys);
              for (std::int64_t i = 0; i < keys; ++i) dk[t * keys + i] += some[t * keys + i];
            });
            // Through the state behind it.
            transpose<C>(row, keys, values, dstate, dturned, keys);
            multiply<C>(row, count, keys, values, rows_of<C>(d, values), dturned, keys, some, keys,
                        false);
            row.loop(keys, [=](std::int64_t i) {
              products[i] = dot(values, before + i * values, dstate + i * values);
            });
            row.loop(count, [=](std::int64_t t) {
              const C factor = gate.between[last * chunk + t];
              for (std::int64_t i = 0; i < keys; ++i) some[t * keys + i] *= factor;
              dd[t] = dot(keys, some + t * keys, of.k + t * keys);
              for (std::int64_t i = 0; i < keys; ++i) dk[t * keys + i] += some[t * keys + i];
            });
            row.once([=] {
              C sum = C(0);
              for (std::int64_t i = 0; i < keys; ++i) sum += products[i];
              sum *= gate.decays[last];
              for (std::int64_t t = 0; t < last; ++t) {
                dlog[t] -= dd[t];
                sum += dd[t];
              }
              dlog[last] += sum;
              for (std::int64_t t = last; t > 0; --t) dlog[t - 1] += dlog[t];
            });
            multiply<C>(row, count, keys, count, rows_of<C>(by_out, chunk), of.k, keys, dq, keys,
                        true);
            multiply<C>(row, count, keys, count, columns_of<C>(by_out, chunk), of.q, keys, dk, keys,
                        true);
            multiply<C>(row, count, keys, count, rows_of<C>(by_change, chunk), of.k, keys, dk, keys,
                        true);
            multiply<C>(row, count, keys, count, columns_of<C>(by_change, chunk), of.k, keys, dk,
                        keys, true);
            const C decayed = gate.decays[last];
            row.loop(of_state, [=](std::int64_t i) { dstate[i] *= decayed; });
            multiply<C>(row, keys, values, count, columns_of<C>(of.q, keys), out, values, dstate,
                        values, true);
            multiply<C>(row, keys, values, count, columns_of<C>(of.k, keys), dy, values, dstate,
                        values, true);
            const C rate = fast_exp(C(decay[head])), shift = C(bias[head]);
            row.loop(count, [=](std::int64_t t) {
              const C step = C(gates(first + t, s.value_heads + head)) + shift;
              dgates(first + t, head) =
                  static_cast<T>(dbeta[t] * gate.beta[t] * (C(1) - gate.beta[t]));
              // The log of the decay is g = -rate softplus(step), so its gradients by decay and
              // step are g and -rate sigmoid(step).
              const C by_step = -rate * fast_sigmoid(step) * dlog[t];
              dgates(first + t, s.value_heads + head) = static_cast<T>(by_step);
              terms(first + t, head) = -rate * softplus(step) * dlog[t];
              terms(first + t, s.value_heads + head) = by_step;
            });
          }
          // With n = x / length: dx = (dn - n (n dn)) / length; queries are divided by a number
          // besides.
          const C of_queries = C(1) / sqrt(static_cast<C>(keys));
          row.loop(2 * count, [=](std::int64_t at) {
            const bool is_query = at < count;
            const std::int64_t t = is_query ? at : at - count;
            const std::int64_t column = (is_query ? 0 : s.key_columns()) + key_head * keys;
            const T* const in = &x(first + t, column);
            C* const raw = (is_query ? some : scaled) + t * keys;
            const C* const gradient = (is_query ? dq : dk) + t * keys;
            for (std::int64_t i = 0; i < keys; ++i) raw[i] = C(in[i]);
            const C over = over_length(keys, raw), factor = is_query ? of_queries : C(1);
            const C along = dot(keys, raw, gradient) * over * over;
            T* const to = &dx(first + t, column);
            for (std::int64_t i = 0; i < keys; ++i)
              to[i] = static_cast<T>(factor * over * multiply_add(-along, raw[i], gradient[i]));
          });
        }
      });
}

#define OSTRAKON_INSTANTIATE(T)                                                                    \
  template void delta_rule_forward<T>(                                                             \
      const Exec&, const DeltaRuleShape&, bool, View<const T**>, View<const T**>, View<const T*>,  \
      View<const T*>, View<compute_t<T>**>, View<compute_t<T>**>, View<T**>, View<compute_t<T>*>); \
  template void delta_rule_backward<T>(const Exec&, const DeltaRuleShape&, View<const T**>,        \
                                       View<const T**>, View<const T*>, View<const T*>,            \
                                       View<const compute_t<T>**>, View<const T**>, View<T**>,     \
                                       View<T**>, View<compute_t<T>**>, View<compute_t<T>*>);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::math
