// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <ostrakon/checkpoint/huggingface/quantization_config.hpp>
#include <ostrakon/checkpoint/huggingface/safetensors.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// Reads tensors as SafetensorsReader does; quantized ones are dequantized, in fp32, and appear
/// under the names and in the shapes that they have in files without quantization:
///
/// - X of F8_E4M3 or F8_E5M2, (..., rows, columns), with scales X_scale_inv or X_scale: each value
///   is multiplied by its scale. There is one scale for all; or one for each block of a matrix,
///   (..., ceil(rows / block rows), ceil(columns / block columns)), as in DeepSeek-V3
///   (arXiv:2412.19437); or in X_scale one for each row, (..., rows, 1), as compressed-tensors has
///   them. Scales are F32, BF16, F16 or F8_E8M0.
/// - X_blocks of U8, (experts, rows, columns / 32, 16), with X_scales of U8, (experts, rows,
///   columns / 32): MXFP4, as in gpt-oss. A byte has two elements of a row, E2M1, the first one in
///   its lower four bits, and 32 share a scale, E8M0. They appear as X, (experts, columns, rows),
///   as transformers has them.
///
/// Scales are no tensors of their own here. Nor are those of activations next to a quantized X,
/// X_activation_scale, or activation_scale and input_scale next to a `weight`: they change no
/// weights.
class DequantizingReader {
 public:
  /// `path`: as for SafetensorsReader. Block extents are those of the config.json next to it, or
  /// 128 x 128. Throws Error that names the tensor whose scales are missing, or have another dtype
  /// or shape; also where SafetensorsReader and quantization_next_to do.
  explicit DequantizingReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  /// Returns the tensors by name. Those of MXFP4 have this for a dtype, and position and bytes of
  /// their blocks.
  const std::map<std::string, SafetensorsTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return file_.metadata(); }
  bool has(const std::string& name) const { return tensors_.count(name) > 0; }
  /// Throws Error if there is no such tensor.
  const SafetensorsTensor& tensor(const std::string& name) const;

  /// values (host memory) = elements [first, first + count) of a tensor. Only they and their scales
  /// are read; of MXFP4, whose elements lie in another order, each expert that has some of them,
  /// and the last one's bytes are kept for the next call.
  void read(const std::string& name, std::int64_t first, std::int64_t count, float* values);

 private:
  /// How scales of a tensor of 8-bit floats are arranged.
  struct Scaled {
    std::string scales;     ///< name of their tensor
    std::int64_t rows = 1;  ///< of each matrix of the tensor
    std::int64_t columns = 1;
    ScaleBlocks block;               ///< extents of what has one scale
    std::int64_t scale_columns = 1;  ///< scales per row of blocks
    std::int64_t matrix_scales = 0;  ///< scales per matrix; 0: all share one
  };
  struct Packed {
    std::string blocks, scales;  ///< names of their tensors
    std::int64_t rows = 0, columns = 0;
  };

  void find_packed();
  void find_scaled();
  Scaled scaled(const std::string& name, const SafetensorsTensor& tensor,
                const Quantization& quantization) const;
  void read_scaled(const std::string& name, const Scaled& how, std::int64_t first,
                   std::int64_t count, float* values);
  void read_scales(const std::string& name, std::int64_t first, std::int64_t count);
  void read_packed(const Packed& how, std::int64_t first, std::int64_t count, float* values);
  void keep_expert(const Packed& how, std::int64_t expert);

  SafetensorsReader file_;
  std::map<std::string, SafetensorsTensor> tensors_;
  std::map<std::string, Scaled> scaled_;
  std::map<std::string, Packed> packed_;
  std::vector<std::uint8_t> codes_;  ///< of 8-bit floats being read
  std::vector<float> scales_;        ///< of these
  std::string kept_name_;            ///< name of the blocks of the last expert read; empty: none
  std::int64_t kept_expert_ = 0;
  std::vector<std::uint8_t> kept_blocks_, kept_scales_;
};

}  // namespace ostrakon::checkpoint
