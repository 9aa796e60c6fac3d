// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention, as a Builder describes it.
#include <cmath>
#include <ostrakon/model/builder_state.hpp>
#include <ostrakon/model/layer_parameters.hpp>

namespace ostrakon::model {
namespace {

void require_possible_latent(const std::string& name, const AttentionSettings& settings,
                             const LinearSettings& linear, std::int64_t head) {
  const LatentSettings& latent = settings.latent;
  const auto require_at_least = [&](const char* what, std::int64_t found, std::int64_t least) {
    require(found >= least, name, " has a latent attention with ", what, " of ", found,
            "; expected at least ", least);
  };
  require_at_least("a rank of queries", latent.q_rank, 0);
  require_at_least("a width of values", latent.value_width, 0);
  require(latent.rotary_width >= 1 && latent.rotary_width < head, name, " has heads of ", head,
          " columns, of which ", latent.rotary_width,
          " are those of all heads; expected 1 or more, and fewer than all");
  require(settings.kv_heads == 0 || settings.kv_heads == settings.heads, name, " has ",
          settings.heads, " heads and ", settings.kv_heads,
          " of keys and values, which are made of a latent; expected as many");
  require(settings.query_key_norm == QueryKeyNorm::none, name,
          " has norms of queries and keys, which are made of normed latents; expected none");
  require(settings.rotary.share == 1.0, name, " rotates a share of ", settings.rotary.share,
          " of heads whose keys are made of a latent; expected 1, and latent.rotary_width");
  require(!linear.bias, name,
          " has biases of queries, keys and values, which are made of latents; expected none");
  require(latent.norm_epsilon > 0.0 && std::isfinite(latent.norm_epsilon), name,
          " has norms of latents with an epsilon of ", latent.norm_epsilon,
          "; expected a number above 0");
}

}  // namespace

/// Products down take rows of a rank with whole weights, as their outputs are narrow; tensor ranks
/// gather these, which is less than to gather x. Decoding keeps the keys of all heads and the
/// normed latent, and so returns them in place of the heads' own keys and values.
template <class T>
std::vector<int> Builder<T>::latent_projections(const Value& x, const std::string& name,
                                                const AttentionSettings& settings,
                                                const LinearSettings& linear, bool keeps_latents) {
  State& s = *state_;
  graph::Operations<T>& operations = s.operations;
  const LatentSettings& latent = settings.latent;
  const int in = s.take_rows(x, name);
  const std::int64_t width = s.columns(in), heads = settings.heads;
  const std::int64_t head = settings.head_width > 0 ? settings.head_width : width / heads;
  require_possible_latent(name, settings, linear, head);
  const std::int64_t shared = latent.rotary_width, own = head - shared;
  const std::int64_t value = latent.value_width > 0 ? latent.value_width : head;
  require(value <= largest_chain / (16 * heads * s.leaf.rows()), name, " has ", heads,
          " heads of values of ", value, " columns; expected at most ", largest_chain,
          " bytes in all units");
  const NormSettings normed = {math::NormKind::rmsnorm, false, latent.norm_epsilon,
                               settings.norm_weight};
  const auto down = [&](const std::string& layer, const char* what, std::int64_t columns) {
    s.require_cut(name, what, columns);
    s.declare(linear_parameters(layer, columns, width, linear));
    return operations.row_linear(in, layer, columns);
  };
  s.require_cut(name, "columns", width);

  Value of_queries = x;
  if (latent.q_rank > 0) {
    const std::string layer = name + ".q_down";
    const int made = down(layer, "columns of the latent of queries", latent.q_rank);
    of_queries = norm(s.make(made, layer), layer + "_norm", normed);
  }
  const std::string layer = name + ".kv_down";
  s.require_cut(name, "columns of the latent of keys and values", latent.kv_rank);
  const int both =
      down(layer, "columns of that latent and of keys of all heads", latent.kv_rank + shared);
  const std::vector<int> parts =
      operations.split(both, layer, {layer + ".latent", layer + ".keys"}, {latent.kv_rank, shared});
  const Value of_keys = norm(s.make(parts[0], layer), name + ".kv_norm", normed);

  const int queries_in = s.take(of_queries, name), keys_in = s.take(of_keys, name);
  s.declare(linear_parameters(name + ".q", heads * head, s.columns(queries_in), linear,
                              {false, {heads * head}}));
  s.declare(linear_parameters(name + ".kv_up", heads * (own + value), latent.kv_rank, linear,
                              {false, {heads * own, heads * value}}));
  if (keeps_latents) {
    const int q = operations.columns({"q"}, {heads * head}).front();
    operations.linear(queries_in, name + ".q", {q}, {{q}});
    return {q, parts[1], keys_in};
  }
  const int up = operations.linear(keys_in, name + ".kv_up", heads * (own + value));
  const std::vector<int> qkv =
      operations.columns({"q", "k", "v"}, {heads * head, heads * head, heads * value});
  operations.join_keys(up, parts[1], name + ".keys", qkv[1], qkv[2], head);
  operations.linear(queries_in, name + ".q", {qkv[0]}, {{qkv[0]}});
  return qkv;
}

#define OSTRAKON_INSTANTIATE(T)                             \
  template std::vector<int> Builder<T>::latent_projections( \
      const Value&, const std::string&, const AttentionSettings&, const LinearSettings&, bool);
OSTRAKON_FOR_ALL_NUMBERS(OSTRAKON_INSTANTIATE)
#undef OSTRAKON_INSTANTIATE

}  // namespace ostrakon::model
