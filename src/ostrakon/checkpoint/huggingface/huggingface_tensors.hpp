// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/checkpoint/families/family.hpp>
#include <ostrakon/model/decoder.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// Some rows of one of our parameters, as a tensor of Hugging Face or one of its slices. Ours are
/// matrices (out, in), or vectors, whose elements are rows.
struct HuggingFaceTensor {
  std::string name;
  std::vector<std::int64_t> shape;  ///< of the tensor
  std::int64_t first_row = 0;       ///< row in our parameter
  std::int64_t rows = 0;
  bool transposed = false;  ///< the tensor's slice is (in, out)
  /// The tensor is as many equal slices along its first dimension; this is one of them.
  std::int64_t slice = 0, slices = 1;
  /// The row in the slice of each of our rows, counted from first_row; empty: the same.
  std::vector<std::int64_t> order;

  /// Whether elements are in the tensor in the order of ours.
  bool is_plain() const { return !transposed && order.empty(); }
};

/// Returns the tensors that a parameter consists of, in the order of its rows. `prefix`: prefix of
/// the names. Throws Error if the family has no such parameter.
std::vector<HuggingFaceTensor> huggingface_tensors(
    const TensorNames& names, const model::DecoderSettings& settings, const std::string& prefix,
    const std::string& owner, const std::string& parameter, const std::vector<std::int64_t>& shape);

/// A tensor that files have besides those of parameters: a copy of another one.
struct TensorCopy {
  std::string name, of;
};
/// Those of modules of multi-token prediction.
std::vector<TensorCopy> module_copies(const TensorNames& names,
                                      const model::DecoderSettings& settings,
                                      const std::string& prefix);

/// ours = the rows of a slice, both (rows, columns); or back.
void to_our_order(const HuggingFaceTensor& tensor, std::int64_t columns, const float* slice,
                  float* ours);
void to_their_order(const HuggingFaceTensor& tensor, std::int64_t columns, const float* ours,
                    float* slice);

}  // namespace ostrakon::checkpoint
