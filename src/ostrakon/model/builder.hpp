// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <ostrakon/math/kernel_form.hpp>
#include <ostrakon/model/layer_settings.hpp>
#include <ostrakon/model/own_operation.hpp>
#include <string>
#include <vector>

namespace ostrakon::model {

struct LeafShape;
struct Recompute;
struct Programs;
template <class T>
class GraphUnit;

/// Programs of units that one function describes, by which of their parameters are frozen.
using SharedPrograms = std::map<std::vector<bool>, Programs>;

/// Describes what a unit computes, operation by operation: a function is given a Builder and calls
/// it. From that follow backward, memory, what is saved or computed again, and how ranks share the
/// work. The units of a Decoder and of a Chain are described so.
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
  /// f(gate) * up (rows, columns): layer `name` makes 2 * columns, those of gate and then those of
  /// up. `activation` has to be a gated one.
  Value gated_linear(const Value& x, const std::string& name, std::int64_t columns,
                     const LinearSettings& settings = {},
                     Activation activation = Activation::swiglu);
  /// A norm of rows: `name`.weight, unless the settings say that there is none, and .bias
  /// (columns).
  Value norm(const Value& x, const std::string& name, const NormSettings& settings = {});
  /// Attention of the queries, keys and values x W^T + b, layer `name`.qkv: (rows, heads *
  /// head_width). With query_key_norm also `name`.query_norm.weight and `name`.key_norm.weight
  /// (head_width), or of each head's own, or of all heads together, (heads * head_width). With
  /// settings.latent: (rows, heads * value_width), of layers `name`.q_down (if queries have a
  /// latent), .q, .kv_down and .kv_up, with norms `name`.q_down_norm and .kv_norm; see Decoder for
  /// their rows.
  Value attention(const Value& x, const std::string& name, const AttentionSettings& settings,
                  const LinearSettings& linear = {});
  /// A gated delta net: (rows, value_heads * value_width). Layer `name`.in makes, in this order,
  /// queries, keys and values of all heads, gates of outputs (value_heads * value_width), and two
  /// numbers for each head of values: the logit of its rate, and its step.
  /// `name`.convolution.weight (columns of queries, keys and values; taps), `name`.decay and
  /// `name`.step (value_heads), `name`.norm.weight (value_width). Sequences are whole.
  Value delta_net(const Value& x, const std::string& name, const DeltaNetSettings& settings,
                  const LinearSettings& linear = {0.02, false});
  /// onto + MLP(x) of so many inner columns: layers `name`.up, or `name`.gate_up of gated ones, and
  /// `name`.down.
  Value mlp_onto(const Value& onto, const Value& x, const std::string& name, std::int64_t columns,
                 const MlpSettings& settings = {});
  /// MLP(x), as mlp_onto, with `outputs` columns.
  Value mlp(const Value& x, const std::string& name, std::int64_t columns, std::int64_t outputs,
            const MlpSettings& settings = {});
  /// The mixture of experts of x, each an MLP `name`.experts.3 with settings.width inner columns.
  /// `name`.router.weight (experts, columns of x) chooses those of a row, and
  /// `name`.router.balance (experts), if a bias balances them; shared experts are the MLP
  /// `name`.shared, times the sigmoid of x w, w `name`.shared_gate.weight (1, columns of x), if
  /// they have a gate. No row is dropped. In one tensor piece, but in a Decoder.
  Value mixture(const Value& x, const std::string& name, const ExpertSettings& settings,
                const MlpSettings& expert = {});
  /// onto + factor * that mixture, rounded once.
  Value mixture_onto(const Value& onto, const Value& x, const std::string& name,
                     const ExpertSettings& settings, const MlpSettings& expert = {},
                     double factor = 1.0);

  // ---- without parameters

  Value gelu(const Value& x);
  Value activation(const Value& x, Activation activation);         ///< one without a gate
  Value soft_cap(const Value& x, double cap);                      ///< cap * tanh(x / cap)
  Value add(const Value& x, const Value& y, double factor = 1.0);  ///< x + factor * y
  Value scale(const Value& x, double factor);                      ///< factor * x

  // ---- operations of one's own

  Value apply(Operation<T> operation);

  // ---- losses, of the last unit: one for each row

  /// Cross-entropy of what `settings` make of x W^T, W `name`.weight (words, columns of x), with
  /// the targets, in nats. A bias is `name`.bias (words). The batch has the targets behind the
  /// tokens, as many.
  Value cross_entropy(const Value& x, const std::string& name, std::int64_t words,
                      const HeadSettings& settings = {});
  /// The losses of rows x, and behind them those of rows `further`, which predict the token behind
  /// the next one by the same weight: 0 for the last row of a sample. Gradients are those of the
  /// mean of the first, and `factor` times the mean of the second but such rows.
  Value cross_entropy(const Value& x, const Value& further, double factor, const std::string& name,
                      std::int64_t words, const HeadSettings& settings = {});
  /// Cross-entropy with token.weight of the embedding in unit `unit` in place of a weight; a bias
  /// is output.bias.
  Value tied_cross_entropy(const Value& x, const std::string& unit,
                           const HeadSettings& settings = {});
  /// Losses by an operation of one's own, which writes OperationForward::losses.
  Value losses(Operation<T> operation);

  // ---- by a Chain or a Decoder

  /// What experts that are a unit of their own take, and `beside`, which they hand on beside the
  /// mixture (rows, 2 * columns).
  Value mixture_beside(const Value& beside, const Value& x, const std::string& name,
                       const ExpertSettings& settings, const MlpSettings& expert);
  /// The input's columns in as many equal parts.
  std::vector<Value> parts_of_input(int parts);

  /// Finds the embedding table of an earlier unit, laid out; null: it has none.
  using FindTable = std::function<const Parameter*(const std::string& unit)>;

  /// `input`: columns of what the unit before makes; 0: there is none. `frozen`: of the parameters'
  /// full names. `inputs`: values of so many columns that the unit before hands over.
  Builder(std::string unit, const LeafShape& leaf, std::int64_t input, Frozen frozen,
          FindTable find_table, const Recompute& recompute, int inputs = 1);

  /// The unit's input, or one of several; in the first unit no value.
  Value input(int index = 0) const;
  /// The unit hands x over to the unit behind it, in front of its output.
  void pass_on(const Value& x);
  /// Rows of token.weight of the embedding in unit `unit` by the token behind each row's, which is
  /// its target.
  Value next_embedding(const std::string& unit);
  /// Columns of x, then those of y.
  Value join(const Value& x, const Value& y);
  /// x W^T of rows, W `name`.weight (columns, columns of x), which every tensor rank takes whole.
  Value row_linear(const Value& x, const std::string& name, std::int64_t columns, double deviation);
  /// What is declared from now on belongs to this part of the model, one of several in the unit:
  /// its parameters' full names, which are different in parts, begin so.
  void begin_part(const std::string& owner);
  /// Linear layers that are declared from now on multiply in this dtype. `quantizes_weights`:
  /// whether their weights are gathered in 8 bits.
  void set_products(math::ProductDType dtype, bool quantizes_weights = false);
  /// Linear layers that are declared from now on have these adapters, and all parameters but
  /// these are frozen.
  void set_lora(const LoraSettings& settings);
  /// The rows whose next tokens are predicted: all, or where sequences are decoded the last one of
  /// each run. A cross-entropy of that row is in fact its logits.
  Value predicting_rows(const Value& x);
  /// What is declared so far.
  const std::vector<Parameter>& parameters() const;

  struct Built {
    std::unique_ptr<GraphUnit<T>> unit;
    bool is_loss = false, reads_batch = false;
    bool has_experts_behind = false;  ///< it hands rows to experts, the unit behind it: ExpertUnit
    std::string tied_to = {};         ///< a unit
    std::string table = {};           ///< the parameter to which another unit may be tied
    std::int64_t batch_bytes = 0;     ///< that it reads of a batch, at least
  };
  /// The unit with this output.
  Built build(const Value& output, SharedPrograms* shared = nullptr) &&;

 private:
  struct State;

  /// Where a mixture goes: nowhere, onto a value, or beside it, see mixture_beside.
  enum class MixtureForm { alone, onto, beside };
  Value describe_mixture(MixtureForm form, const Value& other, const Value& x,
                         const std::string& name, ExpertSettings settings,
                         const MlpSettings& expert, double factor = 1.0);

  /// Queries, keys and values of latent attention, as columns, with their parameters;
  /// `keeps_latents`: queries, the keys that all heads have, and the latent of the others and of
  /// values.
  std::vector<int> latent_projections(const Value& x, const std::string& name,
                                      const AttentionSettings& settings,
                                      const LinearSettings& linear, bool keeps_latents);

  std::unique_ptr<State> state_;
};

/// What describes a unit: of a Builder and its input, which in the first unit is no value.
template <class T>
using UnitFunction = std::function<Value(Builder<T>&, const Value& x)>;

}  // namespace ostrakon::model
