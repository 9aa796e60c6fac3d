// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/huggingface/huggingface_tensors.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <utility>

namespace ostrakon::checkpoint {
namespace {

using Shape = std::vector<std::int64_t>;
using model::DecoderSettings;

[[noreturn]] void unknown(const std::string& owner, const std::string& parameter) {
  throw Error(
      text("parameter '", parameter, "' of '", owner, "' has no name in Hugging Face's models"));
}

/// A parameter's name in parts: "mlp.experts.12.down.weight" is layer "mlp.experts.*.down", expert
/// 12, what "weight".
struct ParameterName {
  std::string layer, what;
  std::int64_t expert = -1;
};

ParameterName split_name(const std::string& parameter) {
  ParameterName name = {parameter, "", -1};
  const std::size_t dot = parameter.rfind('.');
  const std::string ending = dot == std::string::npos ? "" : parameter.substr(dot + 1);
  if (ending == "weight" || ending == "bias") {
    name.layer = parameter.substr(0, dot);
    name.what = ending;
  }
  const std::string start = "mlp.experts.";
  const std::size_t end = name.layer.find('.', start.size());
  if (name.layer.rfind(start, 0) != 0 || end == std::string::npos) return name;
  name.expert = std::stoll(name.layer.substr(start.size(), end - start.size()));
  name.layer = start + "*" + name.layer.substr(end);
  return name;
}

/// The norm behind a module is one of the head, and in files one of the module's block.
bool is_module_norm(const std::string& owner, const ParameterName& name) {
  return owner == "head" && name.layer == "multi_token_norm";
}

std::vector<TensorPart> parts_of(const TensorNames& names, const std::string& owner,
                                 const ParameterName& name) {
  if (owner == "embedding" && name.layer == "token") return {{names.token}};
  if (owner == "embedding" && name.layer == "position" && !names.position.empty())
    return {{names.position}};
  if (owner == "embedding" && name.layer == "norm" && !names.embedding_norm.empty())
    return {{names.embedding_norm}};
  if (owner == "head" && name.layer == "norm") return {{names.head_norm}};
  if (owner == "head" && name.layer == "output") return {{names.head}};
  if (is_module_norm(owner, name) && !names.module_norm.empty()) return {{names.module_norm}};
  const auto found = names.layers.find(name.layer);
  if (owner.rfind("block.", 0) != 0 || found == names.layers.end()) return {};
  std::vector<TensorPart> parts = found->second;
  for (TensorPart& part : parts)
    if (const std::size_t star = part.name.find('*'); star != std::string::npos)
      part.name.replace(star, 1, std::to_string(name.expert));
  return parts;
}

std::int64_t rows_of(Rows rows, const DecoderSettings& settings, std::int64_t all) {
  switch (rows) {
    case Rows::all:
      return all;
    case Rows::queries:
      return (settings.attention_gate ? 2 : 1) * settings.heads * settings.head_width();
    case Rows::keys:
    case Rows::values:
      return settings.kv_heads * settings.head_width();
    case Rows::head:
      return settings.head_width();
    case Rows::half:
      return settings.ffn_width;
    case Rows::half_of_expert:
      return settings.experts.width;
    case Rows::half_of_shared:
      return settings.experts.shared_width();
    case Rows::delta_qkv:
      return settings.delta_net.convolved_columns();
    case Rows::delta_gate:
      return settings.delta_net.value_columns();
    case Rows::delta_qkvz:
      return settings.delta_net.convolved_columns() + settings.delta_net.value_columns();
    case Rows::delta_rates:
      return settings.delta_net.value_heads;
    case Rows::delta_both:
      return 2 * settings.delta_net.value_heads;
  }
  throw std::logic_error("unknown rows");
}

/// Returns where element i of `rotated` ones, which may have others behind them, is in theirs.
std::int64_t in_pairs(RotaryPairs pairs, std::int64_t rotated, std::int64_t i) {
  const std::int64_t half = rotated / 2;
  if (pairs == RotaryPairs::halves || i >= 2 * half) return i;
  if (pairs == RotaryPairs::swapped) return (i + half) % (2 * half);
  return i < half ? 2 * i : 2 * (i - half) + 1;
}

/// Returns where element i of a head is in theirs.
std::int64_t in_head(RotaryPairs pairs, const DecoderSettings& settings, std::int64_t i) {
  const auto width = static_cast<double>(settings.head_width());
  // This is int(width * share), but for the rounding of the product.
  const auto rotated = static_cast<std::int64_t>(std::floor(width * settings.rotary.share + 1e-6));
  return in_pairs(pairs, rotated, i);
}

/// Whether rows of ours are those of heads of queries or keys, of which rotary positions turn
/// pairs.
bool is_rotated(const std::string& layer, const TensorPart& part) {
  if (layer == "attention.qkv") return part.rows == Rows::queries || part.rows == Rows::keys;
  return layer == "attention.query_norm" || layer == "attention.key_norm";
}

/// Returns the rows of the tensor that our rows of queries, keys and values are, where each group
/// of heads has its queries, its key and its value side by side.
std::vector<std::int64_t> grouped(const TensorNames& names, const DecoderSettings& s) {
  const std::int64_t d = s.head_width(), group = s.heads / s.kv_heads;
  std::vector<std::int64_t> order;
  const auto add = [&](std::int64_t head_in_theirs, bool is_turned) {
    for (std::int64_t i = 0; i < d; ++i)
      order.push_back(head_in_theirs * d + (is_turned ? in_head(names.pairs, s, i) : i));
  };
  for (std::int64_t h = 0; h < s.heads; ++h) add(h / group * (group + 2) + h % group, true);
  for (std::int64_t h = 0; h < s.kv_heads; ++h) add(h * (group + 2) + group, true);
  for (std::int64_t h = 0; h < s.kv_heads; ++h) add(h * (group + 2) + group + 1, false);
  return order;
}

/// Returns the rows of the tensor that our rows are, where each head has its query and its gate
/// side by side. Ours are all gates, then all queries.
std::vector<std::int64_t> gated(const TensorNames& names, const DecoderSettings& s) {
  const std::int64_t d = s.head_width();
  std::vector<std::int64_t> order;
  for (const bool is_query : {false, true})
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t i = 0; i < d; ++i)
        order.push_back(2 * h * d + (is_query ? in_head(names.pairs, s, i) : d + i));
  return order;
}

/// Returns the rows of the tensor that our rows are, where each head of keys of a delta net has
/// some rows of each kind, which ours have one kind after the other.
std::vector<std::int64_t> of_key_heads(const model::DeltaNetSettings& net, Rows rows) {
  const std::int64_t group = net.value_heads / net.key_heads, values = group * net.value_width;
  const std::vector<std::int64_t> kinds =
      rows == Rows::delta_both
          ? std::vector<std::int64_t>{group, group}
          : std::vector<std::int64_t>{net.key_width, net.key_width, values, values};
  const std::int64_t of_head = std::accumulate(kinds.begin(), kinds.end(), std::int64_t{0});
  std::vector<std::int64_t> order;
  std::int64_t first = 0;
  for (const std::int64_t some : kinds) {
    for (std::int64_t h = 0; h < net.key_heads; ++h)
      for (std::int64_t i = 0; i < some; ++i) order.push_back(h * of_head + first + i);
    first += some;
  }
  return order;
}

/// Returns where row `row` of a parameter of latent attention is in theirs.
std::int64_t of_latents(const TensorNames& names, const DecoderSettings& s, RowOrder order,
                        std::int64_t row) {
  const std::int64_t width = s.head_width(), rotated = s.latent.rotary_width;
  const std::int64_t own = width - rotated, value = s.value_width(), keys = s.heads * own;
  if (order == RowOrder::rotated_last) {
    const std::int64_t i = row % width, head = row - i;
    return head + (i < rotated ? own + in_pairs(names.pairs, rotated, i) : i - rotated);
  }
  if (order == RowOrder::latent_first) {
    const std::int64_t latent = s.latent.kv_rank;
    return row < latent ? row : latent + in_pairs(names.pairs, rotated, row - latent);
  }
  if (row < keys) return row / own * (own + value) + row % own;
  return (row - keys) / value * (own + value) + own + (row - keys) % value;
}

/// What names of tensors in a module begin with, behind the prefix.
std::string start_of_module(const TensorNames& names, const DecoderSettings& settings) {
  return names.block + std::to_string(settings.layers) + ".";
}

std::vector<std::int64_t> order_of(const TensorNames& names, const DecoderSettings& settings,
                                   const std::string& layer, const TensorPart& part,
                                   std::int64_t rows) {
  std::vector<std::int64_t> order;
  if (part.order == RowOrder::grouped) return grouped(names, settings);
  if (part.order == RowOrder::gated) return gated(names, settings);
  if (part.order == RowOrder::of_key_heads) return of_key_heads(settings.delta_net, part.rows);
  if (part.order == RowOrder::interleaved) {
    for (std::int64_t row = 0; row < rows; ++row)
      order.push_back(row < rows / 2 ? 2 * row : 2 * (row - rows / 2) + 1);
    return order;
  }
  if (part.order != RowOrder::same) {
    for (std::int64_t row = 0; row < rows; ++row)
      order.push_back(of_latents(names, settings, part.order, row));
    return order;
  }
  if (names.pairs == RotaryPairs::halves || !is_rotated(layer, part)) return order;
  const std::int64_t d = settings.head_width();
  for (std::int64_t row = 0; row < rows; ++row)
    order.push_back(row - row % d + in_head(names.pairs, settings, row % d));
  return order;
}

}  // namespace

std::vector<HuggingFaceTensor> huggingface_tensors(
    const TensorNames& names, const DecoderSettings& settings, const std::string& prefix,
    const std::string& owner, const std::string& parameter, const Shape& shape) {
  require(shape.size() == 1 || shape.size() == 2, "parameter '", parameter, "' of '", owner,
          "' has the shape ", hdf5::shape_text(shape), "; expected a vector or a matrix");
  const ParameterName name = split_name(parameter);
  const std::vector<TensorPart> parts = parts_of(names, owner, name);
  if (parts.empty()) unknown(owner, parameter);
  const bool is_head = owner == "head" && name.layer == "output";
  std::string start = is_head ? "" : prefix;
  if (owner.rfind("block.", 0) == 0) start += names.block + owner.substr(6) + ".";
  if (is_module_norm(owner, name)) start += start_of_module(names, settings);
  std::vector<HuggingFaceTensor> tensors;
  std::int64_t row = 0;
  for (const TensorPart& part : parts) {
    HuggingFaceTensor tensor;
    tensor.name = start + part.name +
                  (name.what == "weight" ? part.weight
                   : name.what == "bias" ? part.bias
                                         : "");
    tensor.first_row = row;
    tensor.rows = rows_of(part.rows, settings, shape[0]);
    tensor.transposed = part.is_transposed && shape.size() == 2;
    tensor.order = order_of(names, settings, name.layer, part, tensor.rows);
    tensor.shape = shape;
    tensor.shape[0] = tensor.rows;
    if (tensor.transposed) std::swap(tensor.shape[0], tensor.shape[1]);
    if (part.is_convolution) tensor.shape.insert(tensor.shape.begin() + 1, 1);
    if (part.is_by_head)
      tensor.shape = {tensor.rows / settings.head_width(), settings.head_width()};
    if (part.is_stacked) {
      tensor.slice = name.expert;
      tensor.slices = settings.experts.count;
      tensor.shape.insert(tensor.shape.begin(), tensor.slices);
    }
    row += tensor.rows;
    tensors.push_back(std::move(tensor));
  }
  require(row == shape[0], "parameter '", parameter, "' of '", owner, "' has the shape ",
          hdf5::shape_text(shape), "; the model's settings say ", row, " rows");
  return tensors;
}

std::vector<TensorCopy> module_copies(const TensorNames& names, const DecoderSettings& settings,
                                      const std::string& prefix) {
  if (settings.multi_token_depth == 0) return {};
  const std::string start = prefix + start_of_module(names, settings);
  return {{start + names.module_embedding + ".weight", prefix + names.token + ".weight"},
          {start + names.module_head + ".weight", names.head + ".weight"}};
}

namespace {

/// Calls copy(element of ours, element of theirs) for all elements.
template <class Copy>
void for_elements(const HuggingFaceTensor& tensor, std::int64_t columns, const Copy& copy) {
  for (std::int64_t row = 0; row < tensor.rows; ++row) {
    const std::int64_t theirs =
        tensor.order.empty() ? row : tensor.order[static_cast<std::size_t>(row)];
    for (std::int64_t c = 0; c < columns; ++c)
      copy(row * columns + c, tensor.transposed ? c * tensor.rows + theirs : theirs * columns + c);
  }
}

}  // namespace

void to_our_order(const HuggingFaceTensor& tensor, std::int64_t columns, const float* slice,
                  float* ours) {
  for_elements(tensor, columns, [&](std::int64_t a, std::int64_t b) { ours[a] = slice[b]; });
}

void to_their_order(const HuggingFaceTensor& tensor, std::int64_t columns, const float* ours,
                    float* slice) {
  for_elements(tensor, columns, [&](std::int64_t a, std::int64_t b) { slice[b] = ours[a]; });
}

}  // namespace ostrakon::checkpoint
