// SPDX-License-Identifier: Apache-2.0
// Gated delta nets, as a Builder describes them.
#include <cmath>
#include <ostrakon/math/delta_net/convolution.hpp>
#include <ostrakon/model/builder_state.hpp>
#include <ostrakon/model/layer_parameters.hpp>

namespace ostrakon::model {

template <class T>
Value Builder<T>::delta_net(const Value& x, const std::string& name,
                            const DeltaNetSettings& settings, const LinearSettings& linear) {
  State& s = *state_;
  const int in = s.take_rows(x, name);
  const std::int64_t heads = settings.value_heads;
  s.require_cut(name, "heads of keys", settings.key_heads);
  s.require_size(name, "columns in a head of keys", settings.key_width);
  s.require_cut(name, "columns in a head of values, which is normed,", settings.value_width);
  s.require_size(name, "heads of values", heads);
  require(heads % settings.key_heads == 0, name, " has ", heads, " heads of values and ",
          settings.key_heads, " of keys; expected a multiple");
  require(settings.convolution >= 1 && settings.convolution <= math::most_taps, name,
          " has a convolution over ", settings.convolution, " tokens; expected 1 to ",
          math::most_taps);
  require(settings.norm_epsilon > 0.0 && std::isfinite(settings.norm_epsilon), name,
          " has an epsilon of ", settings.norm_epsilon, "; expected a number above 0");
  require(!linear.bias, name, " has biases; expected none");
  require(!s.leaf.is_cut(), name,
          " has a state that passes all tokens of a sequence, which is cut "
          "into ",
          s.leaf.context_ranks * s.leaf.pieces(), " parts; expected 1");
  const std::int64_t keys = settings.key_columns(), values = settings.value_columns();
  s.require_size(name, "columns", 2 * keys + 2 * values);
  require(settings.key_width <= largest_chain / (16 * values * s.leaf.rows()), name,
          " has heads of ", settings.key_width, " x ", settings.value_width, " numbers in ", heads,
          " states; expected at most ", largest_chain, " bytes in all units");

  s.declare(linear_parameters(name + ".in", 2 * keys + 2 * values + 2 * heads, s.columns(in),
                              linear, {false, {keys, keys, values, values, heads, heads}}));
  const std::int64_t taps = settings.convolution, convolved = settings.convolved_columns();
  // This is the deviation of numbers that are spread evenly within 1 / sqrt(taps).
  Parameter convolution = Parameter::normal(name + ".convolution.weight", {convolved, taps},
                                            1.0 / std::sqrt(3.0 * static_cast<double>(taps)));
  convolution.cut = {false, {keys, keys, values}};
  convolution.orthogonalize = false;
  s.declare(std::move(convolution));
  Parameter decay = Parameter::zeros(name + ".decay", {heads});
  decay.cut = {false, {heads}};
  Parameter step = decay;
  decay.initializer = Initializer::log_uniform;
  step.name = name + ".step";
  step.initializer = Initializer::ones;
  s.declare(std::move(decay));
  s.declare(std::move(step));
  s.declare_gain(name + ".norm", settings.value_width, math::NormWeight::plain);

  graph::Operations<T>& operations = s.operations;
  const std::vector<int> made = operations.columns({name + ".qkv", name + ".z", name + ".gates"},
                                                   {convolved, values, 2 * heads});
  operations.linear(in, name + ".in", made, {made});
  const int qkv = operations.convolution(made[0], name + ".convolution", taps);
  const int read = operations.delta_rule(qkv, made[2], name, settings);
  return s.make(operations.gated_norm(read, made[1], name + ".norm", settings.value_width,
                                      settings.norm_epsilon),
                name);
}

#define OSTRAKON_INSTANTIATE(T)                                                                   \
  template Value Builder<T>::delta_net(const Value&, const std::string&, const DeltaNetSettings&, \
                                       const LinearSettings&);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model
