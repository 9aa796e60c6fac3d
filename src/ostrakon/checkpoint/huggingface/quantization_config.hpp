// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace ostrakon::checkpoint {

/// Extents of the blocks of a matrix whose elements share a scale.
struct ScaleBlocks {
  std::int64_t rows = 128, columns = 128;
};

/// What a config.json says of quantized weights beyond what their tensors' dtypes and shapes say.
struct Quantization {
  /// None: one scale per tensor. The default is that of transformers.
  std::optional<ScaleBlocks> blocks = ScaleBlocks{};
};

/// Reads `quantization_config` of a config.json: quant_method fp8 (DeepSeek-V3's), mxfp4
/// (gpt-oss'), and compressed-tensors in the format float-quantized. Throws Error that names the
/// key within it, its value and what is expected, also for keys that are not known.
Quantization read_quantization(const nlohmann::json& config);

/// Returns the Error's text of read_quantization; empty if DequantizingReader reads such weights.
std::string quantization_problem(const nlohmann::json& config);

/// Returns the quantization that the config.json next to `path` (a file or its folder) describes;
/// the default if there is none, or it describes none. Throws Error that names the file.
Quantization quantization_next_to(const std::string& path);

}  // namespace ostrakon::checkpoint
