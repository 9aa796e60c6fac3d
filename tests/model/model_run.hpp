// SPDX-License-Identifier: Apache-2.0
#pragma once

// Runs a decoder's units with buffers of exactly the size that their descriptions name.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/plan/description.hpp>
#include <random>
#include <string>
#include <vector>

#include "support/device_array.hpp"

namespace ostrakon::test {

/// The bytes of an array: NaN equals NaN here, and 0 is not -0.
template <class T>
std::vector<unsigned char> bits(const std::vector<T>& values) {
  std::vector<unsigned char> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// A DeviceArray between guards: holds NaN until it is written.
template <class T>
class GuardedArray {
 public:
  explicit GuardedArray(std::int64_t count)
      : count_(count), all_(count + 2 * guard, guard_value()) {
    assign_unwritten();
  }
  static GuardedArray of_bytes(std::int64_t bytes) { return GuardedArray(bytes / sizeof(T)); }

  T* data() const { return all_.data() + guard; }
  View<T*> view() const { return all_.view().range(guard, all_.size() - guard); }
  View<std::byte*> bytes() const { return view_as<std::byte>(view()); }
  operator View<T*>() const { return view(); }
  operator View<const T*>() const { return view(); }
  std::int64_t size() const { return count_; }

  std::vector<T> values() const {
    const std::vector<T> all = all_.host();
    return {all.begin() + guard, all.end() - guard};
  }
  void assign(const std::vector<T>& values) {
    std::vector<T> all = all_.host();
    std::copy(values.begin(), values.end(), all.begin() + guard);
    all_.assign(all);
  }
  void assign_unwritten() { assign(std::vector<T>(count_, unwritten())); }

  bool guards_intact() const {
    const std::vector<T> all = all_.host();
    for (std::int64_t i = 0; i < guard; ++i)
      if (all[i] != guard_value() || all[all.size() - 1 - i] != guard_value()) return false;
    return true;
  }

 private:
  static constexpr std::int64_t guard = 64;
  static T guard_value() { return T(-12345); }
  static T unwritten() {
    if constexpr (std::is_integral<T>::value)
      return T(0);
    else
      return T(std::numeric_limits<compute_t<T>>::quiet_NaN());
  }

  std::int64_t count_;
  DeviceArray<T> all_;
};

/// Settings with a name for messages.
struct ModelCase {
  std::string name;
  model::DecoderSettings settings;
  model::LeafShape leaf;
};

/// Both families, what is between them and mixtures of experts, at odd sizes, with one block a unit
/// and with several.
inline std::vector<ModelCase> model_cases() {
  using math::NormKind;
  using model::Activation;
  using model::Positions;
  model::DecoderSettings gpt2;
  gpt2.norm = NormKind::layernorm;
  gpt2.positions = Positions::learned;
  gpt2.activation = Activation::gelu;
  gpt2.bias = true;
  gpt2.tie_embeddings = true;
  gpt2.layers = 2;
  gpt2.width = 24;
  gpt2.heads = 3;
  gpt2.kv_heads = 3;
  gpt2.ffn_width = 37;
  gpt2.vocabulary = 29;
  gpt2.initializer_deviation = 0.3;

  model::DecoderSettings llama = gpt2;
  llama.norm = NormKind::rmsnorm;
  llama.positions = Positions::rotary;
  llama.activation = Activation::swiglu;
  llama.bias = false;
  llama.tie_embeddings = false;
  llama.heads = 6;
  llama.kv_heads = 2;
  llama.ffn_width = 19;
  llama.vocabulary = 31;
  llama.rotary_base = 500.0;

  model::DecoderSettings one_head = gpt2;
  one_head.width = 7;
  one_head.heads = one_head.kv_heads = 1;
  one_head.ffn_width = 5;
  one_head.layers = 3;

  model::DecoderSettings llama_one_head = llama;
  llama_one_head.width = 6;
  llama_one_head.heads = llama_one_head.kv_heads = 1;

  model::DecoderSettings rms_learned = gpt2;
  rms_learned.norm = NormKind::rmsnorm;
  rms_learned.activation = Activation::swiglu;
  rms_learned.kv_heads = 1;

  model::DecoderSettings layer_rotary = gpt2;
  layer_rotary.positions = Positions::rotary;
  layer_rotary.bias = false;
  layer_rotary.tie_embeddings = false;

  model::DecoderSettings gpt2_stacked = gpt2;
  gpt2_stacked.layers = 3;
  gpt2_stacked.blocks_per_unit = 2;

  model::DecoderSettings llama_stacked = llama;
  llama_stacked.layers = llama_stacked.blocks_per_unit = 3;

  model::DecoderSettings mixtral = llama;
  mixtral.experts.count = 6;
  mixtral.experts.per_token = 2;
  mixtral.experts.width = 11;

  model::DecoderSettings deepseek = llama;
  deepseek.experts = {12, 3, 2, 5, math::RouterScore::sigmoid, true, 2.5};
  deepseek.experts.groups = 4;
  deepseek.experts.groups_per_token = 2;

  model::DecoderSettings gpt2_experts = gpt2_stacked;
  gpt2_experts.experts = {4, 1, 1, 9, math::RouterScore::softmax, false, 1.0};

  model::DecoderSettings qwen3 = llama;
  qwen3.query_key_norm = true;
  qwen3.own_head_width = 6;

  model::DecoderSettings qwen3_experts = qwen3;
  qwen3_experts.experts = {6, 2, 0, 11};

  model::DecoderSettings narrow_heads = llama_stacked;
  narrow_heads.query_key_norm = true;
  narrow_heads.heads = 3;
  narrow_heads.kv_heads = 1;
  narrow_heads.own_head_width = 6;

  model::DecoderSettings gpt2_head_norms = gpt2;
  gpt2_head_norms.query_key_norm = true;
  gpt2_head_norms.own_head_width = 11;

  model::DecoderSettings attention_bias = llama;
  attention_bias.bias = true;
  attention_bias.own_mlp_bias = false;

  model::DecoderSettings mlp_bias = llama_stacked;
  mlp_bias.own_mlp_bias = true;

  model::DecoderSettings long_table = gpt2;
  long_table.max_positions = 23;

  return {{"gpt2", gpt2, {3, 7}},
          {"llama", llama, {2, 9}},
          {"gpt2, one head, batch 1", one_head, {1, 5}},
          {"llama, one head, batch 1", llama_one_head, {1, 11}},
          {"gpt2, one token", gpt2, {3, 1}},
          {"llama, one token, batch 1", llama, {1, 1}},
          {"rmsnorm, learned, swiglu, bias, tied", rms_learned, {2, 5}},
          {"layernorm, rotary, gelu, no bias, untied", layer_rotary, {1, 6}},
          {"gpt2, 2 blocks a unit", gpt2_stacked, {2, 5}},
          {"llama, 3 blocks a unit", llama_stacked, {1, 9}},
          {"gpt2, sequences as leaves", gpt2, {3, 7, 1, 1, true}},
          {"llama, pieces as leaves", llama, {1, 16, 1, 4, false}},
          {"gpt2, pieces of sequences as leaves", gpt2_stacked, {3, 12, 1, 2, true}},
          {"llama, experts", mixtral, {2, 9}},
          {"llama, experts, one token", mixtral, {1, 1}},
          {"llama, experts and shared ones, sequences as leaves", deepseek, {3, 6, 1, 1, true}},
          {"gpt2, experts and a shared one, 2 blocks a unit", gpt2_experts, {1, 12}},
          {"qwen3", qwen3, {2, 9}},
          {"qwen3, experts, pieces as leaves", qwen3_experts, {1, 16, 1, 4, false}},
          {"qwen3, narrow heads, sequences as leaves, 3 blocks a unit",
           narrow_heads,
           {3, 6, 1, 1, true}},
          {"gpt2, norms of wide heads", gpt2_head_norms, {2, 5}},
          {"llama, biases of attention alone", attention_bias, {2, 9}},
          {"llama, biases of MLPs alone, 3 blocks a unit", mlp_bias, {1, 9}},
          {"gpt2, more positions than tokens", long_table, {3, 7}},
          {"gpt2, more positions than tokens, pieces of sequences as leaves",
           long_table,
           {3, 8, 1, 2, true}}};
}

/// Whom a unit's parameters belong to, in order: one name a unit, or one for each of its blocks.
template <class T>
std::vector<std::string> owners(const model::Unit<T>& unit) {
  std::vector<std::string> names;
  for (const model::Parameter& parameter : unit.parameters())
    if (names.empty() || names.back() != parameter.owner) names.push_back(parameter.owner);
  return names;
}

/// All choices of what blocks compute again.
inline std::vector<model::Recompute> recompute_choices() {
  std::vector<model::Recompute> choices;
  for (int i = 0; i < 8; ++i) choices.push_back({(i & 1) != 0, (i & 2) != 0, (i & 4) != 0});
  return choices;
}

inline std::string to_string(const model::Recompute& recompute) {
  std::string text = "recompute:";
  if (!recompute.attention && !recompute.norms && !recompute.mlp) text += " nothing";
  if (recompute.attention) text += " attention";
  if (recompute.norms) text += " norms";
  if (recompute.mlp) text += " mlp";
  return text;
}

/// A decoder with all its buffers. Parameters are random, norms and biases too, and the same
/// whichever are frozen.
template <class T>
class ModelRun {
 public:
  using Element = T;
  using Compute = compute_t<T>;

  explicit ModelRun(const ModelCase& which, model::Recompute recompute = {},
                    const model::Frozen& frozen_names = {})
      : decoder(which.settings, which.leaf, recompute, frozen_names),
        description(decoder.description()),
        tokens(which.leaf.rows()),
        targets(which.leaf.rows()),
        gradient(description.gradient_bytes / static_cast<std::int64_t>(sizeof(T))),
        generator_(1) {
    for (const plan::UnitDescription& unit : description.units) {
      parameters.emplace_back(unit.trained_elements());
      frozen.emplace_back(unit.frozen_elements);
      gradients.emplace_back(unit.trained_elements());
      outputs.push_back(GuardedArray<T>::of_bytes(unit.output_bytes));
      saved.push_back(GuardedArray<T>::of_bytes(unit.saved_bytes));
      deferred.push_back(GuardedArray<T>::of_bytes(unit.deferred_bytes));
    }
    for (int u = 0; u < decoder.units(); ++u) initialize(u);
    std::uniform_int_distribution<std::int32_t> id(
        0, static_cast<std::int32_t>(which.settings.vocabulary) - 1);
    token_ids.resize(tokens.size());
    target_ids.resize(tokens.size());
    for (auto& value : token_ids) value = id(generator_);
    for (auto& value : target_ids) value = id(generator_);
    tokens.assign(token_ids);
    targets.assign(target_ids);
  }

  int units() const { return decoder.units(); }
  int head() const { return decoder.units() - 1; }
  std::int64_t rows() const { return decoder.leaf().rows(); }

  model::UnitBuffers<T> buffers(int u) const {
    model::UnitBuffers<T> b;
    if (u == 0) b.tokens = tokens;
    if (u == head()) b.targets = targets;
    b.parameters = view_of(parameters[u]);
    b.frozen = view_of(frozen[u]);
    if (u > 0) b.input = outputs[u - 1];
    b.output = outputs[u];
    b.saved = saved[u].bytes();
    const int tied_to = description.units[u].tied_to;
    if (tied_to >= 0) {
      b.tied_parameters = view_of(parameters[tied_to]);
      b.tied_frozen = view_of(frozen[tied_to]);
    }
    return b;
  }

  /// Runs one unit forward with an exact workspace.
  void forward(int u, std::int64_t begin, std::int64_t end) {
    auto workspace =
        GuardedArray<T>::of_bytes(description.units[u].forward.front().workspace_bytes);
    model::UnitBuffers<T> b = buffers(u);
    b.workspace = workspace.bytes();
    decoder.unit(u).forward(exec, b, {begin, end});
    exec.fence();
    EXPECT_TRUE(workspace.guards_intact()) << "forward workspace of unit " << u;
  }
  void forward(int u) { forward(u, 0, rows()); }
  void forward() {
    for (int u = 0; u < units(); ++u) forward(u);
  }

  /// Whether backward of a unit that is tied to this one writes its gradients first.
  bool opened(int u) const {
    const plan::UnitDescription& last = description.units[head()];
    return last.tied_to == u && last.tied_gradients;
  }

  /// The first unit that has anything to train; the number of units where none has.
  int first_trained() const {
    int u = 0;
    while (u < units() && gradients[u].size() == 0) ++u;
    return u;
  }

  /// Runs one unit backward with an exact workspace, but what it defers. A tied head opens the
  /// embedding's gradients.
  void backward(int u, Compute loss_scale, bool gradients_opened) {
    const plan::UnitDescription& unit = description.units[u];
    deferred[u].assign_unwritten();
    model::UnitBuffers<T> b = buffers(u);
    if (!unit.backward_reads_parameters) b.parameters = b.frozen = {};
    b.gradient = gradient;
    if (unit.deferred_phases == 0) b.parameter_gradients = view_of(gradients[u]);
    const int tied_to = unit.tied_to;
    if (tied_to >= 0 && opened(tied_to)) b.tied_gradients = gradients[tied_to];
    backward_phase(u, 0, b, loss_scale, gradients_opened);
  }
  /// Down to the first unit that has anything to train; then what all of them have deferred, the
  /// first unit first.
  void backward(Compute loss_scale) {
    for (int u = head(); u >= first_trained(); --u) backward(u, loss_scale, opened(u));
    for (int u = first_trained(); u < units(); ++u)
      if (description.units[u].deferred_phases > 0) backward_deferred(u);
  }
  /// With nothing that a plan does not give it.
  void backward_deferred(int u) {
    model::UnitBuffers<T> b = buffers(u);
    b.parameters = b.frozen = b.tied_parameters = b.tied_frozen = {};
    b.output = {};
    b.parameter_gradients = view_of(gradients[u]);
    backward_phase(u, 1, b, Compute(1), false);
  }
  void backward_phase(int u, int phase, model::UnitBuffers<T>& b, Compute loss_scale,
                      bool gradients_opened) {
    auto workspace = GuardedArray<T>::of_bytes(
        description.units[u].backward[static_cast<std::size_t>(phase)].workspace_bytes);
    b.workspace = workspace.bytes();
    if (description.units[u].deferred_bytes > 0) b.deferred = deferred[u].bytes();
    b.phase = phase;
    decoder.unit(u).backward(exec, b, loss_scale, gradients_opened);
    exec.fence();
    EXPECT_TRUE(workspace.guards_intact()) << "backward workspace of unit " << u;
  }

  /// Forgets what the unit saved, and lets forward write it again without an output.
  void recompute(int u) {
    saved[u].assign_unwritten();
    auto workspace =
        GuardedArray<T>::of_bytes(description.units[u].forward.front().workspace_bytes);
    model::UnitBuffers<T> b = buffers(u);
    b.workspace = workspace.bytes();
    b.output = {};
    decoder.unit(u).forward(exec, b, {0, rows()});
    exec.fence();
    EXPECT_TRUE(workspace.guards_intact()) << "forward workspace of unit " << u;
  }
  void recompute_and_backward(Compute loss_scale) {
    for (int u = head(); u >= first_trained(); --u) {
      recompute(u);
      backward(u, loss_scale, opened(u));
    }
  }

  /// The head's output: losses, or where a sequence is decoded the logits of its last row.
  std::vector<Compute> head_output() const {
    const std::vector<T> output = outputs[head()].values();
    std::vector<Compute> values(output.size() * sizeof(T) / sizeof(Compute));
    std::memcpy(values.data(), output.data(), values.size() * sizeof(Compute));
    return values;
  }
  std::vector<Compute> losses() const {
    const std::vector<Compute> values = head_output();
    EXPECT_EQ(static_cast<std::int64_t>(values.size()), rows());
    return values;
  }

  /// The same parameters as another run's, in this one's type.
  template <class U>
  void take_parameters(const ModelRun<U>& other) {
    const auto take = [](const GuardedArray<U>& from, GuardedArray<T>& to) {
      std::vector<T> flat;
      for (U value : from.values()) flat.push_back(static_cast<T>(value));
      to.assign(flat);
    };
    for (int u = 0; u < units(); ++u) {
      take(other.parameters[u], parameters[u]);
      take(other.frozen[u], frozen[u]);
    }
  }

  /// The segment that holds a parameter of unit u.
  GuardedArray<T>& segment(int u, const model::Parameter& parameter) {
    return parameter.frozen ? frozen[u] : parameters[u];
  }

  void expect_guards_intact() const {
    for (int u = 0; u < units(); ++u) {
      EXPECT_TRUE(parameters[u].guards_intact()) << "parameters of unit " << u;
      EXPECT_TRUE(frozen[u].guards_intact()) << "frozen parameters of unit " << u;
      EXPECT_TRUE(gradients[u].guards_intact()) << "gradients of unit " << u;
      EXPECT_TRUE(outputs[u].guards_intact()) << "output of unit " << u;
      EXPECT_TRUE(saved[u].guards_intact()) << "saved of unit " << u;
      EXPECT_TRUE(deferred[u].guards_intact()) << "deferred of unit " << u;
    }
    EXPECT_TRUE(gradient.guards_intact());
  }

  std::vector<T> random(std::int64_t count, double deviation = 1.0) {
    std::normal_distribution<double> normal(0.0, deviation);
    std::vector<T> values(count);
    for (T& value : values) value = static_cast<T>(normal(generator_));
    return values;
  }

  Exec exec;
  model::Decoder<T> decoder;
  plan::ModelDescription description;
  std::vector<GuardedArray<T>> parameters, frozen;  ///< the two segments of each unit
  std::vector<GuardedArray<T>> outputs, saved, deferred;
  std::vector<GuardedArray<Compute>> gradients;
  std::vector<std::int32_t> token_ids, target_ids;
  GuardedArray<std::int32_t> tokens, targets;
  GuardedArray<T> gradient;

 private:
  /// Null without elements: then a call must not use it.
  template <class A>
  static View<A*> view_of(const GuardedArray<A>& array) {
    return array.size() == 0 ? View<A*>() : array.view();
  }

  void initialize(int u) {
    for (const model::Parameter& parameter : decoder.unit(u).parameters()) {
      const bool normal = parameter.initializer == model::Initializer::normal;
      const double mean = parameter.initializer == model::Initializer::ones ? 1.0 : 0.0;
      const auto values = random(parameter.elements(), normal ? parameter.deviation : 0.2);
      std::vector<T> flat = segment(u, parameter).values();
      for (std::int64_t i = 0; i < parameter.elements(); ++i)
        flat[parameter.offset + i] = static_cast<T>(values[i] + static_cast<T>(mean));
      segment(u, parameter).assign(flat);
    }
  }

  std::mt19937 generator_;
};

/// The values of one parameter in a flat array.
template <class A>
std::vector<A> part(const std::vector<A>& flat, const model::Parameter& parameter) {
  const auto begin = flat.begin() + parameter.offset;
  return {begin, begin + parameter.elements()};
}

/// A case whose only sequence is decoded at once.
inline ModelCase decoded_at_once(ModelCase which) {
  which.leaf = {1, which.leaf.tokens};
  which.leaf.decoded_rows = which.leaf.tokens;
  return which;
}

/// What each unit outputs for the tokens of `whole`, decoded: a prompt of 4, then token by token.
template <class T>
std::vector<std::vector<T>> decoded_outputs(ModelCase which, const ModelRun<T>& whole) {
  constexpr std::int64_t at_once = 4;
  which.leaf.decoded_rows = at_once;
  ModelRun<T> run(which);
  std::vector<std::vector<T>> outputs(run.outputs.size());
  for (std::int64_t begin = 0, end = at_once; begin < whole.rows(); begin = end++) {
    const auto some = [&](const std::vector<std::int32_t>& ids) {
      std::vector<std::int32_t> values(at_once);
      std::copy(ids.begin() + begin, ids.begin() + end, values.begin());
      return values;
    };
    run.tokens.assign(some(whole.token_ids));
    run.targets.assign(some(whole.target_ids));
    for (int u = 0; u < run.units(); ++u) {
      run.forward(u, begin, end);
      const std::vector<T> values = run.outputs[u].values();
      const auto rows = u == run.head() ? 1 : at_once;
      const auto count = static_cast<std::ptrdiff_t>(values.size()) / rows *
                         std::min<std::ptrdiff_t>(rows, end - begin);
      outputs[u].insert(outputs[u].end(), values.begin(), values.begin() + count);
    }
  }
  run.expect_guards_intact();
  return outputs;
}

}  // namespace ostrakon::test
