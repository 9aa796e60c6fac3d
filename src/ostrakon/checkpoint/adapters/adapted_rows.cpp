// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/adapters/adapted_rows.hpp>

namespace ostrakon::checkpoint {

std::vector<AdaptedRows> adaptable_rows(const model::DecoderSettings& settings) {
  const std::int64_t width = settings.width, ffn = settings.ffn_width;
  const std::int64_t queries = settings.heads * settings.head_width();
  const std::int64_t keys = settings.kv_heads * settings.head_width();
  const std::vector<std::int64_t> qkv = {queries + 2 * keys, width};
  const bool is_gated = math::is_gated(settings.activation);
  const std::string up = is_gated ? "mlp.gate_up.weight" : "mlp.up.weight";
  const std::vector<std::int64_t> up_shape = {is_gated ? 2 * ffn : ffn, width};
  std::vector<AdaptedRows> all = {
      {"attention.q", "attention.qkv.weight", qkv, 0, queries},
      {"attention.k", "attention.qkv.weight", qkv, queries, keys},
      {"attention.v", "attention.qkv.weight", qkv, queries + keys, keys},
      {"attention.out", "attention.out.weight", {width, queries}, 0, width}};
  if (is_gated) all.push_back({"mlp.gate", up, up_shape, 0, ffn});
  all.push_back({"mlp.up", up, up_shape, is_gated ? ffn : 0, ffn});
  all.push_back({"mlp.down", "mlp.down.weight", {width, ffn}, 0, width});
  return all;
}

std::vector<AdaptedRows> adapted_rows(const model::DecoderSettings& settings) {
  std::vector<AdaptedRows> adapted;
  for (AdaptedRows& one : adaptable_rows(settings))
    if (settings.lora.has(one.layer)) adapted.push_back(std::move(one));
  return adapted;
}

}  // namespace ostrakon::checkpoint
