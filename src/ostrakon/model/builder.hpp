// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostrakon/math/norm.hpp>
#include <ostrakon/model/own_operation.hpp>
#include <string>
#include <vector>

namespace ostrakon::model {

struct LeafShape;
namespace graph {
template <class T>
class Operations;
}

/// A linear layer y = x W^T + b has a W with random initial values of this standard deviation, and
/// may have a b, which is 0 at first.
struct LinearSettings {
  double deviation = 0.02;
  bool bias = true;
};

/// A norm of rows. The bias is layernorm's.
struct NormSettings {
  math::NormKind kind = math::NormKind::layernorm;
  bool bias = true;
  double epsilon = 1e-5;
};

/// Causal attention within each sample.
struct AttentionSettings {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 0;    ///< of keys and values; 0: as many
  std::int64_t head_width = 0;  ///< 0: columns / heads
  double rotary_base = 0.0;     ///< of rotary positions; 0: none
};

/// Describes what a unit computes, operation by operation: a function is given a Builder and calls
/// it. From that follow backward, memory, what is saved or computed again, and how tensor ranks
/// share the work.
///
/// Parameters are declared where they are used, by a name that is used once in a unit: `name` is
/// that of a layer, which has `name`.weight and, with a bias, `name`.bias.
///
/// Over several tensor pieces (LeafSize) a value has rows of each rank, or columns of each piece.
/// linear, gated_linear and attention take rows and make columns. linear and linear_onto take
/// columns and make rows. What computes by element keeps either; all else takes rows. A call with
/// the other one throws Error, which says so. In one piece all go together.
template <class T>
class Builder {
 public:
  /// Finds the embedding table of an earlier unit, laid out; null: it has none.
  using FindTable = std::function<const Parameter*(const std::string& unit)>;

  /// By a Chain. `input`: columns of what the unit before makes; 0: there is none. `frozen`: of the
  /// parameters' full names.
  Builder(std::string unit, const LeafShape& leaf, std::int64_t input, Frozen frozen,
          FindTable find_table);
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;
  ~Builder();

  std::int64_t rows() const;                   ///< of a leaf
  std::int64_t columns(const Value& x) const;  ///< over all ranks

  // ---- of the batch, in the first unit

  /// The floats (rows, columns) that begin at byte `first` of the batch.
  Value floats(std::int64_t columns, std::int64_t first = 0);
  /// Rows of token.weight (words, columns) by token, and with `positions` above 0 + those of
  /// position.weight (positions, columns) by place in the sample. The batch begins with the tokens,
  /// std::int32_t below `words`.
  Value embedding(std::int64_t words, std::int64_t columns, std::int64_t positions = 0,
                  double deviation = 0.02);

  // ---- layers

  /// x W^T + b.
  Value linear(const Value& x, const std::string& name, std::int64_t columns,
               const LinearSettings& settings = {});
  /// onto + x W^T + b, rounded once.
  Value linear_onto(const Value& onto, const Value& x, const std::string& name,
                    const LinearSettings& settings = {});
  /// silu(gate) * up, of which x W^T + b has the columns side by side (SwiGLU).
  Value gated_linear(const Value& x, const std::string& name, std::int64_t columns,
                     const LinearSettings& settings = {});
  Value norm(const Value& x, const std::string& name, const NormSettings& settings = {});
  /// Attention of the queries, keys and values x W^T + b, layer `name`.qkv: (rows, heads *
  /// head_width).
  Value attention(const Value& x, const std::string& name, const AttentionSettings& settings,
                  const LinearSettings& linear = {});

  // ---- without parameters

  Value gelu(const Value& x);
  Value soft_cap(const Value& x, double cap);  ///< cap * tanh(x / cap)
  Value add(const Value& x, const Value& y);

  // ---- operations of one's own

  Value apply(Operation<T> operation);

  // ---- losses, of the last unit: one for each row

  /// Cross-entropy of x W^T, W `name`.weight (words, columns of x), with the targets, in nats. The
  /// batch has the targets behind the tokens, as many.
  Value cross_entropy(const Value& x, const std::string& name, std::int64_t words,
                      double deviation = 0.02);
  /// Cross-entropy with token.weight of the embedding in unit `unit` in place of a weight.
  Value tied_cross_entropy(const Value& x, const std::string& unit);
  /// Losses by an operation of one's own, which writes OperationForward::losses.
  Value losses(Operation<T> operation);

  // ---- by a Chain

  /// The unit's input; in the first unit no value.
  Value input() const;
  /// The unit with this output.
  struct Built {
    std::unique_ptr<const Unit<T>> unit;
    bool is_loss = false, reads_batch = false;
    std::string tied_to = {};      ///< a unit
    std::string table = {};        ///< the parameter to which another unit may be tied
    std::int64_t batch_bytes = 0;  ///< that it reads of a batch, at least
  };
  Built build(const Value& output) &&;

 private:
  struct State;

  std::unique_ptr<State> state_;
};

/// What describes a unit: of a Builder and its input, which in the first unit is no value.
template <class T>
using UnitFunction = std::function<Value(Builder<T>&, const Value& x)>;

}  // namespace ostrakon::model
