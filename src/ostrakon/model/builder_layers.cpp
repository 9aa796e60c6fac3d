// SPDX-License-Identifier: Apache-2.0
// Layers that a Builder describes.
#include <cmath>
#include <ostrakon/math/attention/rotary_frequencies.hpp>
#include <ostrakon/model/builder_state.hpp>
#include <ostrakon/model/layer_parameters.hpp>
#include <ostrakon/model/moe_dispatch_layout.hpp>

namespace ostrakon::model {

template <class T>
Value Builder<T>::linear(const Value& x, const std::string& name, std::int64_t columns,
                         const LinearSettings& settings) {
  State& s = *state_;
  const int v = s.take(x, name);
  const bool makes_rows = s.has_columns(v);
  s.require_size(name, "columns", columns);
  // Rows are of all columns, which only a bias has in pieces.
  if (!makes_rows || settings.bias) s.require_cut(name, "columns", columns);
  const Cut cut = makes_rows ? Cut{true, {}} : Cut{false, {columns}};
  s.declare(linear_parameters(name, columns, s.columns(v), settings, cut));
  const int made = s.operations.linear(v, name, columns, graph::Keep::mlp, true);
  return s.make(s.adapt(made, v, name, columns), name);
}

template <class T>
Value Builder<T>::linear_onto(const Value& onto, const Value& x, const std::string& name,
                              const LinearSettings& settings) {
  State& s = *state_;
  const int to = s.take_rows(onto, name);
  int v = s.take(x, name);
  require(s.pieces() == 1 || s.has_columns(v), name, " takes columns, but of ", s.value(v).name,
          " tensor ranks have rows; expected a linear layer or attention between");
  s.require_cut(name, "columns", s.columns(to));
  s.declare(linear_parameters(name, s.columns(to), s.columns(v), settings, {true, {}}));
  if (v == to) v = s.copy_of(v);  // a gradient can't be added to what the product takes
  const int made = s.operations.linear_onto(to, v, name, name);
  return s.make(s.adapt(made, v, name, s.columns(to)), name);
}

template <class T>
Value Builder<T>::gated_linear(const Value& x, const std::string& name, std::int64_t columns,
                               const LinearSettings& settings, Activation activation) {
  State& s = *state_;
  const int v = s.take_rows(x, name);
  require(math::is_gated(activation), name, " has the activation ", math::name(activation),
          ", which takes no gate; expected a gated one, or linear and activation");
  s.require_cut(name, "columns", columns);
  s.declare(
      linear_parameters(name, 2 * columns, s.columns(v), settings, {false, {columns, columns}}));
  int both = s.operations.linear(v, name, 2 * columns, graph::Keep::mlp, true);
  const std::string mlp = name.substr(0, name.rfind('.') + 1);  // its layers have adapters
  both = s.adapt(both, v, mlp + "gate", columns);
  both = s.adapt(both, v, mlp + "up", columns, columns);
  return s.make(s.operations.activation(both, name + ".activated", activation), name);
}

template <class T>
Value Builder<T>::norm(const Value& x, const std::string& name, const NormSettings& settings) {
  State& s = *state_;
  const int v = s.take_rows(x, name);
  require(settings.epsilon > 0.0 && std::isfinite(settings.epsilon), name, " has an epsilon of ",
          settings.epsilon, "; expected a number above 0");
  if (settings.weight != math::NormWeight::none) {
    s.require_cut(name, "columns", s.columns(v));
    s.declare_gain(name, s.columns(v), settings.weight);
    if (settings.bias && settings.kind == math::NormKind::layernorm)
      s.declare(Parameter::zeros(name + ".bias", {s.columns(v)}));
  }
  return s.make(s.operations.norm(v, name, settings), name);
}

namespace {

/// Throws Error unless attention can have such scores.
void require_scores(const std::string& name, const AttentionSettings& settings) {
  const auto require_number = [&](const char* what, double value, const char* zero) {
    require(value == 0.0 || (value >= least_attention_number && value <= most_attention_number),
            name, " has a ", what, " of ", value, "; expected 0 for ", zero, ", or ",
            least_attention_number, " to ", most_attention_number);
  };
  require_number("scale", settings.scale, "1 / sqrt(head width)");
  require_number("soft cap", settings.soft_cap, "none");
  require_number("clip", settings.clip, "none");
  require(settings.window >= 0, name, " has a window of ", settings.window,
          " tokens; expected 0 for all, or more");
}

}  // namespace

template <class T>
Value Builder<T>::attention(const Value& x, const std::string& name,
                            const AttentionSettings& settings, const LinearSettings& linear) {
  State& s = *state_;
  graph::Operations<T>& operations = s.operations;
  const int in = s.take_rows(x, name);
  const std::int64_t width = s.columns(in), heads = settings.heads;
  const std::int64_t kv_heads = settings.kv_heads == 0 ? heads : settings.kv_heads;
  require(settings.head_width >= 0, name, " has heads of ", settings.head_width,
          " columns; expected 0 for columns / heads, or more");
  require(settings.rotary.base >= 0.0 && std::isfinite(settings.rotary.base), name,
          " has a rotary base of ", settings.rotary.base, "; expected 0 for none, or more");
  s.require_cut(name, "heads", heads);
  s.require_cut(name, "heads of keys and values", kv_heads);
  require(heads % kv_heads == 0, name, " has ", heads, " heads and ", kv_heads,
          " of keys and values; expected a multiple");
  require(settings.head_width > 0 || width % heads == 0, name, " has ", heads, " heads of ", width,
          " columns; expected a divisor, or a head width");
  require_scores(name, settings);
  const bool is_rotary = settings.rotary.base > 0.0;
  const std::int64_t head = settings.head_width > 0 ? settings.head_width : width / heads;
  const bool is_latent = settings.latent.exist();
  require(head <= largest_chain / (16 * heads * s.leaf.rows()), name, " has ", heads, " heads of ",
          head, " columns; expected at most ", largest_chain, " bytes in all units");
  math::RotaryFrequencies frequencies;
  if (is_rotary) {
    const std::int64_t rotated = is_latent ? settings.latent.rotary_width : head;
    math::require_possible(settings.rotary, rotated, name + ": ", "rotary.");
    frequencies = math::make_rotary_frequencies(settings.rotary, rotated, s.leaf.tokens);
  }
  const std::int64_t queries = heads * head, keys = kv_heads * head;
  const std::int64_t gates = settings.has_gate ? queries : 0;
  require(gates == 0 || !is_latent, name,
          " has a gate of outputs and queries of latents; expected one of the two");
  std::vector<std::int64_t> sections = {queries, keys, keys};
  if (gates > 0) sections.insert(sections.begin(), gates);
  if (!is_latent)
    s.declare(linear_parameters(name + ".qkv", gates + queries + 2 * keys, width, linear,
                                {false, sections}));
  const QueryKeyNorm kind = settings.query_key_norm;
  const math::HeadNorm norm = {head, settings.norm_kind, settings.norm_weight,
                               settings.norm_epsilon};
  const bool is_whole = kind == QueryKeyNorm::whole, is_each = kind == QueryKeyNorm::each_head;
  require(!is_whole || norm.kind == math::NormKind::rmsnorm, name,
          " has a layer norm of all heads together; expected RMS norm, or norms of each head");
  for (const auto& [layer, columns] :
       {std::pair{".query_norm", queries}, std::pair{".key_norm", keys}}) {
    if (kind == QueryKeyNorm::none || norm.gain == math::NormWeight::none) continue;
    const bool is_of_columns = is_whole || is_each;
    if (!is_of_columns) s.require_cut(name, "columns in a head, which is normed,", head);
    s.declare_gain(name + layer, is_of_columns ? columns : head, norm.gain,
                   is_of_columns ? Cut{false, {columns}} : Cut{});
  }

  if (settings.sinks) {
    Parameter sinks = Parameter::zeros(name + ".sinks", {heads});
    sinks.cut = {false, {heads}};
    s.declare(std::move(sinks));
  }

  // Decoding keeps latents, which are far fewer columns than what is made of them. A clip of keys
  // and values needs these.
  const bool keeps_latents = is_latent && s.leaf.decodes() && settings.clip == 0.0;
  // Sequences that are cut have two products on any number of ranks: 16 bits may differ otherwise.
  const bool is_apart = s.leaf.is_cut() || keeps_latents;
  int q, k, v, gate = -1;
  if (is_latent) {
    const std::vector<int> qkv = latent_projections(x, name, settings, linear, keeps_latents);
    q = qkv[0], k = qkv[1], v = qkv[2];
  } else {
    std::vector<std::string> names = {"q", "k", "v"};
    if (gates > 0) names.insert(names.begin(), "gate");
    const std::vector<int> made = operations.columns(names, sections);
    using Products = std::vector<std::vector<int>>;
    operations.linear(in, name + ".qkv", made,
                      is_apart
                          ? Products{{made.end() - 2, made.end()}, {made.begin(), made.end() - 2}}
                          : Products{made});
    if (gates > 0) gate = made.front();
    v = s.adapt(made.back(), in, name + ".v", keys);
    k = s.adapt(made.rbegin()[1], in, name + ".k", keys);
    q = s.adapt(made.rbegin()[2], in, name + ".q", queries);
  }
  const auto norm_heads = [&] {
    k = operations.head_norm(k, name + ".key_norm", norm, is_each);
    q = operations.head_norm(q, name + ".query_norm", norm, is_each);
  };
  // Norms of whole rows come before the clip, those of heads behind it.
  if (is_whole) {
    const std::vector<int> normed = operations.row_norms(
        {k, q}, {name + ".key_norm", name + ".query_norm"}, norm.gain, norm.epsilon);
    k = normed[0];
    q = normed[1];
  }
  if (settings.clip > 0.0 && is_apart) {
    const std::vector<int> clipped = operations.clip({k, v}, "clip k, v", settings.clip);
    k = clipped[0];
    v = clipped[1];
    q = operations.clip({q}, "clip q", settings.clip).front();
  } else if (settings.clip > 0.0) {
    const std::vector<int> clipped = operations.clip({q, k, v}, "clip", settings.clip);
    q = clipped[0];
    k = clipped[1];
    v = clipped[2];
  }
  if (kind == QueryKeyNorm::head || is_each) norm_heads();
  if (is_rotary && is_apart) {
    const std::int64_t of_key = keeps_latents ? settings.latent.rotary_width : head;
    k = operations.rotary({k}, "rotary k", of_key, frequencies).front();
    q = operations.rotary({q}, "rotary q", head, frequencies).front();
  } else if (is_rotary) {
    const std::vector<int> rotated = operations.rotary({q, k}, "rotary", head, frequencies);
    q = rotated[0];
    k = rotated[1];
  }
  if (kind == QueryKeyNorm::rotated) norm_heads();
  if (keeps_latents) {
    // Scores and outputs are linear in a head's own keys and values: the weights that make these of
    // the latent go to the queries and to the outputs (DeepSeek-AI 2024, V2, section 2.1.2).
    const LatentSettings& latent = settings.latent;
    const math::LatentHeads of{heads, latent.rotary_width, head - latent.rotary_width,
                               latent.value_width > 0 ? latent.value_width : head};
    AttentionSettings scaled = settings;
    if (scaled.scale == 0.0) scaled.scale = 1.0 / std::sqrt(static_cast<double>(head));
    const int absorbed = operations.absorb_keys(q, name + ".kv_up", of);
    const int latents = operations.latent_attention(absorbed, k, v, name, scaled);
    return s.make(operations.absorb_values(latents, name + ".kv_up", of), name);
  }
  const int attended = operations.attention(q, k, v, name, head, settings);
  return s.make(gate < 0 ? attended : operations.gate(attended, gate, name + ".gated"), name);
}

namespace {

/// What an MLP has activated.
template <class T>
Value activated(Builder<T>& b, const Value& x, const std::string& name, std::int64_t columns,
                const MlpSettings& mlp) {
  const std::string up = name_of_up(mlp.activation, name);
  return is_gated(mlp.activation) ? b.gated_linear(x, up, columns, mlp.up, mlp.activation)
                                  : b.activation(b.linear(x, up, columns, mlp.up), mlp.activation);
}

}  // namespace

template <class T>
Value Builder<T>::mlp_onto(const Value& onto, const Value& x, const std::string& name,
                           std::int64_t columns, const MlpSettings& settings) {
  return linear_onto(onto, activated(*this, x, name, columns, settings), name + ".down",
                     settings.down);
}

template <class T>
Value Builder<T>::mlp(const Value& x, const std::string& name, std::int64_t columns,
                      std::int64_t outputs, const MlpSettings& settings) {
  return linear(activated(*this, x, name, columns, settings), name + ".down", outputs,
                settings.down);
}

template <class T>
Value Builder<T>::mixture(const Value& x, const std::string& name, const ExpertSettings& settings,
                          const MlpSettings& expert) {
  return describe_mixture(MixtureForm::alone, {}, x, name, settings, expert);
}

template <class T>
Value Builder<T>::mixture_onto(const Value& onto, const Value& x, const std::string& name,
                               const ExpertSettings& settings, const MlpSettings& expert,
                               double factor) {
  return describe_mixture(MixtureForm::onto, onto, x, name, settings, expert, factor);
}

template <class T>
Value Builder<T>::mixture_beside(const Value& beside, const Value& x, const std::string& name,
                                 const ExpertSettings& settings, const MlpSettings& expert) {
  return describe_mixture(MixtureForm::beside, beside, x, name, settings, expert);
}

/// The weights of experts have the factor already: it is one of the router's scale.
template <class T>
Value Builder<T>::describe_mixture(MixtureForm form, const Value& other, const Value& x,
                                   const std::string& name, ExpertSettings settings,
                                   const MlpSettings& expert, double factor) {
  State& s = *state_;
  graph::Operations<T>& operations = s.operations;
  const int to = form == MixtureForm::alone ? -1 : s.take_rows(other, name);
  int v = s.take_rows(x, name);
  const std::int64_t width = s.columns(v);
  require(settings.exist(), name, " has ", settings.count, " experts; expected at least 1");
  require_possible(name, settings, s.leaf.rows());
  require(factor > 0.0 && std::isfinite(factor), name, " has a factor of ", factor,
          "; expected a number above 0");
  settings.scale *= factor;
  require(to < 0 || s.columns(to) == width, name, " takes ", width, " columns and goes onto ",
          to < 0 ? width : s.columns(to), "; expected as many");
  s.require_cut(name, "columns", width);
  s.require_size(name, "columns in an expert", settings.width);
  const std::string router = name + ".router";
  s.declare_table(router + ".weight", settings.count, width, expert.up.deviation);
  if (settings.router_bias) s.declare(Parameter::zeros(router + ".bias", {settings.count}));
  if (settings.balance == RouterBalance::bias) {
    Parameter balance = Parameter::zeros(router + ".balance", {settings.count});
    balance.sign_rate = settings.balance_rate;
    s.declare(std::move(balance));
  }
  s.counts.push_back(settings.count);
  graph::Experts experts{settings.router()};
  experts.name = name;
  if (settings.balance == RouterBalance::loss) experts.loss_factor = settings.balance_rate;
  // Gradients by experts are summed before they are added to others of x: so they come where
  // experts are a unit of their own.
  if (v == to || form == MixtureForm::alone) v = s.copy_of(v);
  const auto make_shared = [&] {
    const Value made =
        mlp(Value{v, s.id}, name + ".shared", settings.shared_width(), width, expert);
    if (!settings.shared_gate) return made;
    const std::string gate = name + ".shared_gate";
    s.declare_table(gate + ".weight", 1, width, expert.up.deviation, {true, {}});
    const int logits = operations.row_linear(v, gate, 1);
    return s.make(operations.gate(s.take(made, name), logits, gate + "d"), name);
  };
  const auto take_shared = [&] {
    const Value made = make_shared();
    return s.take(factor == 1.0 ? made : scale(made, factor), name);
  };
  if (!s.leaf.has_expert_units()) {
    s.declare(expert_parameters(name, settings, expert, width));
    const int copies = operations.dispatch(v, router, experts);
    const int shared = settings.shared > 0 ? take_shared() : -1;
    const int up = operations.expert_linear(experts, copies, name_of_up(expert.activation, ""));
    const int activated = operations.activation(up, name + ".experts.activated", expert.activation);
    return s.make(operations.combine(experts, to, shared, activated, ".down"), name);
  }
  require(to >= 0, name, " is of experts that are a unit of their own; expected mixture_onto");
  // In pieces experts find shared ones in what they go onto.
  const MoeDispatchLayout dispatch(settings, width, s.leaf, form == MixtureForm::beside);
  const int rows = operations.route_apart(v, router, dispatch, experts);
  const int shared = dispatch.has_shared ? take_shared() : -1;
  const std::vector<int> made = operations.hand_to_experts(experts, to, shared, rows, dispatch);
  s.handed_besides.push_back(made.back());
  const Value y = s.make(made.front(), name);
  if (settings.shared == 0 || dispatch.has_shared) return y;
  return settings.shared_gate || factor != 1.0
             ? add(y, make_shared(), factor)
             : mlp_onto(y, Value{v, s.id}, name + ".shared", settings.shared_width(), expert);
}

template <class T>
std::vector<Value> Builder<T>::parts_of_input(int parts) {
  State& s = *state_;
  const int x = s.take_rows(input(), "parts of the input");
  std::vector<std::string> names;
  for (int i = 0; i < parts; ++i) names.push_back("x." + std::to_string(i));
  std::vector<Value> made;
  for (int v :
       s.operations.split(x, "x", names,
                          std::vector<std::int64_t>(
                              names.size(), s.columns(x) / static_cast<std::int64_t>(parts)))) {
    s.value(v).keep = graph::Keep::never;  // the input is there
    made.push_back(s.make(v, s.value(v).name));
  }
  return made;
}

#define OSTRAKON_INSTANTIATE(T)                                                                    \
  template Value Builder<T>::linear(const Value&, const std::string&, std::int64_t,                \
                                    const LinearSettings&);                                        \
  template Value Builder<T>::linear_onto(const Value&, const Value&, const std::string&,           \
                                         const LinearSettings&);                                   \
  template Value Builder<T>::gated_linear(const Value&, const std::string&, std::int64_t,          \
                                          const LinearSettings&, Activation);                      \
  template Value Builder<T>::norm(const Value&, const std::string&, const NormSettings&);          \
  template Value Builder<T>::attention(const Value&, const std::string&, const AttentionSettings&, \
                                       const LinearSettings&);                                     \
  template Value Builder<T>::mlp(const Value&, const std::string&, std::int64_t, std::int64_t,     \
                                 const MlpSettings&);                                              \
  template Value Builder<T>::mlp_onto(const Value&, const Value&, const std::string&,              \
                                      std::int64_t, const MlpSettings&);                           \
  template Value Builder<T>::mixture(const Value&, const std::string&, const ExpertSettings&,      \
                                     const MlpSettings&);                                          \
  template Value Builder<T>::mixture_onto(const Value&, const Value&, const std::string&,          \
                                          const ExpertSettings&, const MlpSettings&, double);      \
  template Value Builder<T>::mixture_beside(const Value&, const Value&, const std::string&,        \
                                            const ExpertSettings&, const MlpSettings&);            \
  template std::vector<Value> Builder<T>::parts_of_input(int);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model
