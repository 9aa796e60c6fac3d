// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/huggingface/quantization_config.hpp>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <utility>
#include <vector>

namespace ostrakon::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t most_config_bytes = 1 << 20;
constexpr const char* how_to_dequantize =
    "expected weights of fp8, mxfp4, or compressed-tensors in the format float-quantized; take the "
    "model's unquantized weights, or dequantize these with transformers, which can for some "
    "methods, such as bitsandbytes: model = AutoModelForCausalLM.from_pretrained(\"FOLDER\"), "
    "model.dequantize(), model.save_pretrained(\"NEW\")";

/// Returns a value as text that is short enough for a message.
std::string brief(const Json& value) {
  constexpr std::size_t most = 60;
  const std::string all = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return all.size() > most ? all.substr(0, most) + "..." : all;
}

/// Checks keys of an object. Each key has to be asked for, so that none is read over.
class Checked {
 public:
  Checked(const Json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {
    require(object.is_object(), prefix_.empty() ? "it" : prefix_, " is ", brief(object),
            "; expected an object");
  }

  /// Returns the value of a key; null if it is missing.
  const Json& at(const std::string& key) {
    static const Json null;
    known_.push_back(key);
    const auto found = object_.find(key);
    return found == object_.end() ? null : *found;
  }

  /// Takes keys that change nothing in the weights' values.
  void pass_over(std::initializer_list<const char*> keys) {
    known_.insert(known_.end(), keys.begin(), keys.end());
  }

  /// Throws Error unless a key is missing, null, or has one of these values.
  void expect(const std::string& key, std::initializer_list<Json> values) {
    const Json& found = at(key);
    if (found.is_null() || std::find(values.begin(), values.end(), found) != values.end()) return;
    std::string expected;
    for (const Json& value : values) expected += brief(value) + " or ";
    fail(key, expected + "none");
  }

  [[noreturn]] void fail(const std::string& key, const std::string& expected) const {
    const auto found = object_.find(key);
    throw Error(text(prefix_, key, " is ", found == object_.end() ? "missing" : brief(*found),
                     "; expected ", expected));
  }

  void require_all_known() const {
    for (const auto& item : object_.items())
      require(item.value().is_null() ||
                  std::find(known_.begin(), known_.end(), item.key()) != known_.end(),
              prefix_, item.key(), " is ", brief(item.value()),
              ", a key that this program does not know; ", how_to_dequantize);
  }

  std::optional<ScaleBlocks> blocks(const std::string& key) {
    const Json& found = at(key);
    const auto is_extent = [](const Json& extent) {
      return extent.is_number_integer() && extent > 0 && extent <= std::int64_t{1} << 40;
    };
    if (found.is_null()) return std::nullopt;
    if (!found.is_array() || found.size() != 2 || !is_extent(found[0]) || !is_extent(found[1]))
      fail(key, "rows and columns of a block, such as [128, 128]");
    return ScaleBlocks{found[0].get<std::int64_t>(), found[1].get<std::int64_t>()};
  }

 private:
  const Json& object_;
  std::string prefix_;
  std::vector<std::string> known_;
};

Quantization read_fp8(Checked& keys, const Json& config) {
  Quantization quantization;
  // A missing key has transformers' default; null is one scale per tensor.
  if (config.contains("weight_block_size")) quantization.blocks = keys.blocks("weight_block_size");
  keys.expect("fmt", {"e4m3"});
  keys.expect("expert_dtype", {"fp8"});
  keys.expect("scale_fmt", {"float", "ue8m0"});
  keys.pass_over({"activation_scheme", "modules_to_not_convert", "modules_to_convert",
                  "ignored_layers", "dequantize"});
  return quantization;
}

std::optional<ScaleBlocks> read_group(const Json& group, const std::string& name) {
  Checked keys(group, name + ".");
  keys.expect("format", {"float-quantized"});
  keys.pass_over({"input_activations", "output_activations", "targets"});
  const Json& of_weights = keys.at("weights");
  keys.require_all_known();
  Checked weights(of_weights, name + ".weights.");
  if (weights.at("type") != "float") weights.fail("type", "\"float\"");
  if (weights.at("num_bits") != 8) weights.fail("num_bits", "8");
  weights.expect("symmetric", {true});
  weights.expect("dynamic", {false});
  weights.expect("group_size", {});
  weights.expect("actorder", {});
  weights.pass_over({"observer", "observer_kwargs", "scale_dtype", "zp_dtype"});
  const Json& strategy = weights.at("strategy");
  const std::optional<ScaleBlocks> blocks = weights.blocks("block_structure");
  weights.require_all_known();
  if (strategy != "tensor" && strategy != "channel" && strategy != "block")
    weights.fail("strategy", "\"tensor\", \"channel\" or \"block\"");
  if (strategy != "block") return std::nullopt;
  if (!blocks) weights.fail("block_structure", "rows and columns of a block, such as [128, 128]");
  return blocks;
}

Quantization read_compressed_tensors(Checked& keys) {
  if (keys.at("format") != "float-quantized") keys.fail("format", "\"float-quantized\"");
  keys.expect("kv_cache_scheme", {});
  keys.expect("transform_config", {Json::object()});
  const Json& sparsity = keys.at("sparsity_config");
  if (!sparsity.is_null() && sparsity != Json::object() &&
      (!sparsity.is_object() || sparsity.value("format", Json()) != "dense"))
    keys.fail("sparsity_config", "none");
  keys.pass_over({"ignore", "version", "global_compression_ratio", "quantization_status"});
  const Json& groups = keys.at("config_groups");
  if (!groups.is_object() || groups.empty()) keys.fail("config_groups", "an object of groups");
  Quantization quantization;
  quantization.blocks.reset();
  for (const auto& group : groups.items()) {
    const std::string name = "config_groups." + group.key();
    const std::optional<ScaleBlocks> blocks = read_group(group.value(), name);
    const bool differ = blocks && quantization.blocks &&
                        (blocks->rows != quantization.blocks->rows ||
                         blocks->columns != quantization.blocks->columns);
    require(!differ, name,
            ".weights.block_structure is not that of another group; expected one "
            "block_structure in all groups");
    if (blocks) quantization.blocks = blocks;
  }
  return quantization;
}

}  // namespace

Quantization read_quantization(const Json& config) {
  Checked keys(config, "");
  const Json method = keys.at("quant_method");
  Quantization quantization;
  if (method == "fp8")
    quantization = read_fp8(keys, config);
  else if (method == "mxfp4")
    keys.pass_over({"modules_to_not_convert", "dequantize"});
  else if (method == "compressed-tensors")
    quantization = read_compressed_tensors(keys);
  else
    throw Error(text("quant_method is ", method.is_null() ? "missing" : brief(method), "; ",
                     how_to_dequantize));
  keys.require_all_known();
  return quantization;
}

std::string quantization_problem(const Json& config) {
  try {
    read_quantization(config);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Quantization quantization_next_to(const std::string& path) {
  const std::string file = huggingface_config_next_to(path);
  if (file.empty()) return {};
  const Json config = read_json_object(file, "model configuration", most_config_bytes);
  for (const char* const key : {"quantization_config", "compression_config"}) {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) continue;
    try {
      return read_quantization(*found);
    } catch (const Error& error) {
      throw Error(text("model configuration '", file, "': ", key, ": ", error.what()));
    }
  }
  return {};
}

}  // namespace ostrakon::checkpoint
