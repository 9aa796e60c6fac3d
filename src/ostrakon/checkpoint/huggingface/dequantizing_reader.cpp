// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/huggingface/dequantizing_reader.hpp>

#include <algorithm>
#include <array>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/checkpoint/huggingface/small_floats.hpp>

namespace ostrakon::checkpoint {
namespace {

using Shape = std::vector<std::int64_t>;
using Table = std::array<float, 256>;

constexpr std::int64_t packed_elements = 32;  ///< of MXFP4 that share a scale
constexpr std::int64_t packed_bytes = 16;
constexpr const char* packed_dtype = "MXFP4";

Table table_of(float (*value)(std::uint8_t)) {
  Table table{};
  for (int code = 0; code < 256; ++code) table[code] = value(static_cast<std::uint8_t>(code));
  return table;
}

bool is_float8(const std::string& dtype) { return dtype == "F8_E4M3" || dtype == "F8_E5M2"; }

/// Returns a name without its ending; empty if it ends otherwise.
std::string before(const std::string& ending, const std::string& name) {
  if (name.size() <= ending.size()) return "";
  const std::size_t rest = name.size() - ending.size();
  return name.compare(rest, ending.size(), ending) == 0 ? name.substr(0, rest) : "";
}

std::int64_t divided_up(std::int64_t count, std::int64_t by) { return (count + by - 1) / by; }

/// Returns the shape of scales that are a matrix for each matrix of a tensor.
Shape with_matrix(Shape shape, std::int64_t rows, std::int64_t columns) {
  shape[shape.size() - 2] = rows;
  shape[shape.size() - 1] = columns;
  return shape;
}

}  // namespace

DequantizingReader::DequantizingReader(const std::string& path)
    : file_(path), tensors_(file_.tensors()) {
  find_packed();
  find_scaled();
}

void DequantizingReader::find_packed() {
  for (const auto& [name, tensor] : file_.tensors()) {
    if (tensor.dtype != "U8") continue;
    const std::string where = text("'", path(), "': tensor ", shown(name), " is packed: ");
    if (const std::string of = before("_scales", name); !of.empty())
      require(file_.has(of + "_blocks"), where, "it is the scales of a tensor ",
              shown(of + "_blocks"), ", which is missing");
    const std::string unpacked = before("_blocks", name);
    if (unpacked.empty()) continue;
    const std::string scales = unpacked + "_scales";
    require(!file_.has(unpacked), where, "a tensor ", shown(unpacked),
            " is there, too; expected one of them");
    require(file_.has(scales), where, "its scales, tensor ", shown(scales), ", are missing");
    require(tensor.shape.size() == 4 && tensor.shape[3] == packed_bytes, where, "its shape is ",
            hdf5::shape_text(tensor.shape), "; expected experts, rows, columns / 32, 16");
    const SafetensorsTensor& found = file_.tensor(scales);
    const Shape expected(tensor.shape.begin(), tensor.shape.end() - 1);
    require(found.dtype == "U8" && found.shape == expected, where, "its scales, tensor ",
            shown(scales), ", are ", found.dtype, " ", hdf5::shape_text(found.shape),
            "; expected U8 ", hdf5::shape_text(expected));
    const Packed how = {name, scales, tensor.shape[1], packed_elements * tensor.shape[2]};
    SafetensorsTensor& shown_as = tensors_[unpacked] = tensor;
    shown_as.dtype = packed_dtype;
    shown_as.shape = {tensor.shape[0], how.columns, how.rows};
    packed_[unpacked] = how;
    tensors_.erase(name);
    tensors_.erase(scales);
  }
}

void DequantizingReader::find_scaled() {
  std::optional<Quantization> quantization;
  for (const auto& [name, tensor] : file_.tensors()) {
    if (!is_float8(tensor.dtype)) continue;
    if (!quantization) quantization = quantization_next_to(path());
    const Scaled how = scaled(name, tensor, *quantization);
    tensors_.erase(how.scales);
    tensors_.erase(name + "_activation_scale");
    if (const std::string layer = before("weight", name); !layer.empty())
      for (const char* const scale : {"activation_scale", "input_scale"})
        tensors_.erase(layer + scale);
    scaled_[name] = how;
  }
}

/// Checks the scales of a tensor of 8-bit floats. Throws Error that names both.
DequantizingReader::Scaled DequantizingReader::scaled(const std::string& name,
                                                      const SafetensorsTensor& tensor,
                                                      const Quantization& quantization) const {
  const std::string inverse = name + "_scale_inv", plain = name + "_scale";
  const std::string where =
      text("'", path(), "': tensor ", shown(name), " is ", tensor.dtype, ": ");
  const bool has_inverse = file_.has(inverse), has_plain = file_.has(plain);
  require(has_inverse || has_plain, where, "its scales are missing; expected a tensor ",
          shown(inverse), " or ", shown(plain));
  require(!has_inverse || !has_plain, where, "it has the scales ", shown(inverse), " and ",
          shown(plain), "; expected one of them");
  require(!file_.has(name + "_zero_point"), where, "it has a tensor ", shown(name + "_zero_point"),
          "; expected quantization without zero points");
  Scaled how;
  how.scales = has_inverse ? inverse : plain;
  const SafetensorsTensor& scales = file_.tensor(how.scales);
  const std::string which = text("its scales, tensor ", shown(how.scales), ", are ");
  require(scales.dtype == "F32" || scales.dtype == "BF16" || scales.dtype == "F16" ||
              scales.dtype == "F8_E8M0",
          where, which, scales.dtype, "; expected F32, BF16, F16 or F8_E8M0");

  const Shape& shape = tensor.shape;
  const bool has_matrices = shape.size() >= 2;
  how.rows = has_matrices ? shape[shape.size() - 2] : 1;
  how.columns = has_matrices ? shape[shape.size() - 1] : tensor.elements();
  std::string expected;
  const auto is = [&](const Shape& wanted, const char* what) {
    expected += (expected.empty() ? "" : ", or ") + hdf5::shape_text(wanted) + what;
    return scales.shape == wanted;
  };
  if (quantization.blocks && has_matrices) {
    const ScaleBlocks& block = *quantization.blocks;
    const Shape of_blocks = with_matrix(shape, divided_up(how.rows, block.rows),
                                        divided_up(how.columns, block.columns));
    const std::string what = text(", one for each block of ", block.rows, " x ", block.columns);
    if (is(of_blocks, what.c_str())) {
      how.block = block;
      how.scale_columns = of_blocks[shape.size() - 1];
      how.matrix_scales = of_blocks[shape.size() - 2] * how.scale_columns;
      return how;
    }
    require(!has_inverse, where, which, "of the shape ", hdf5::shape_text(scales.shape),
            "; expected ", expected);
  }
  if (has_plain && has_matrices && is(with_matrix(shape, how.rows, 1), ", one for each row")) {
    how.block = {1, std::max<std::int64_t>(how.columns, 1)};
    how.matrix_scales = how.rows;
    return how;
  }
  how.block = {std::max<std::int64_t>(how.rows, 1), std::max<std::int64_t>(how.columns, 1)};
  if (has_matrices && is(with_matrix(shape, 1, 1), ", one for each matrix")) {
    how.matrix_scales = 1;
    return how;
  }
  require(is({}, "") || is({1}, ", one for all"), where, which, "of the shape ",
          hdf5::shape_text(scales.shape), "; expected ", expected);
  return how;
}

const SafetensorsTensor& DequantizingReader::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? file_.tensor(name) : found->second;
}

void DequantizingReader::read(const std::string& name, std::int64_t first, std::int64_t count,
                              float* values) {
  const auto scaled = scaled_.find(name);
  const auto packed = packed_.find(name);
  if (scaled == scaled_.end() && packed == packed_.end()) {
    file_.read(name, first, count, values);
    return;
  }
  const std::int64_t elements = tensor(name).elements();
  require(first >= 0 && count >= 0 && first <= elements - count, "'", path(), "': elements ", first,
          " to ", first + count, " of tensor ", shown(name), " asked for; it has ", elements);
  if (count == 0) return;
  if (packed != packed_.end())
    read_packed(packed->second, first, count, values);
  else
    read_scaled(name, scaled->second, first, count, values);
}

void DequantizingReader::read_scaled(const std::string& name, const Scaled& how, std::int64_t first,
                                     std::int64_t count, float* values) {
  static const Table e4m3 = table_of(float_of_e4m3), e5m2 = table_of(float_of_e5m2);
  constexpr std::int64_t most = 1 << 16;
  const Table& table = tensor(name).dtype == "F8_E4M3" ? e4m3 : e5m2;
  const std::int64_t elements = how.rows * how.columns;  // of a matrix
  const auto [rows, columns] = how.block;
  codes_.resize(static_cast<std::size_t>(std::min(count, most)));
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t matrix = (first + done) / elements, begin = (first + done) % elements;
    const std::int64_t part = std::min({most, count - done, elements - begin});
    file_.read_bytes(name, first + done, part, codes_.data());
    const std::int64_t first_row = begin / how.columns / rows;
    const std::int64_t last_row = (begin + part - 1) / how.columns / rows;
    read_scales(how.scales, matrix * how.matrix_scales + first_row * how.scale_columns,
                (last_row - first_row + 1) * how.scale_columns);
    for (std::int64_t i = 0; i < part;) {
      const std::int64_t row = (begin + i) / how.columns, column = (begin + i) % how.columns;
      const std::int64_t in_block = std::min(columns - column % columns, how.columns - column);
      const std::int64_t end = std::min(part, i + in_block);
      const float scale = scales_[static_cast<std::size_t>(
          (row / rows - first_row) * how.scale_columns + column / columns)];
      for (; i < end; ++i) values[done + i] = table[codes_[static_cast<std::size_t>(i)]] * scale;
    }
    done += part;
  }
}

/// scales_ = elements [first, first + count) of a tensor of scales.
void DequantizingReader::read_scales(const std::string& name, std::int64_t first,
                                     std::int64_t count) {
  scales_.resize(static_cast<std::size_t>(count));
  if (file_.tensor(name).dtype != "F8_E8M0") {
    file_.read(name, first, count, scales_.data());
    return;
  }
  std::vector<std::uint8_t> powers(scales_.size());
  file_.read_bytes(name, first, count, powers.data());
  std::transform(powers.begin(), powers.end(), scales_.begin(), float_of_e8m0);
}

void DequantizingReader::read_packed(const Packed& how, std::int64_t first, std::int64_t count,
                                     float* values) {
  static const Table e2m1 = table_of(float_of_e2m1), e8m0 = table_of(float_of_e8m0);
  const std::int64_t rows = how.rows, elements = rows * how.columns;
  const std::int64_t groups = how.columns / packed_elements;
  while (count > 0) {
    const std::int64_t begin = first % elements;
    const std::int64_t part = std::min(count, elements - begin), end = begin + part;
    keep_expert(how, first / elements);
    const std::int64_t last_group = (end - 1) / rows / packed_elements;
    // All columns of a group are written in one pass over rows, which reads each byte once.
    for (std::int64_t group = begin / rows / packed_elements; group <= last_group; ++group)
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t at = row * groups + group;
        const float scale = e8m0[kept_scales_[static_cast<std::size_t>(at)]];
        const std::uint8_t* const bytes = kept_blocks_.data() + at * packed_bytes;
        for (std::int64_t k = 0; k < packed_elements; ++k) {
          const std::int64_t element = (group * packed_elements + k) * rows + row;
          if (element < begin || element >= end) continue;
          const int code = bytes[k / 2] >> (k % 2 == 0 ? 0 : 4) & 15;
          values[element - begin] = e2m1[static_cast<std::size_t>(code)] * scale;
        }
      }
    values += part;
    first += part;
    count -= part;
  }
}

void DequantizingReader::keep_expert(const Packed& how, std::int64_t expert) {
  if (kept_name_ == how.blocks && kept_expert_ == expert) return;
  kept_name_.clear();
  const std::int64_t scales = how.rows * how.columns / packed_elements;
  kept_scales_.resize(static_cast<std::size_t>(scales));
  kept_blocks_.resize(static_cast<std::size_t>(scales * packed_bytes));
  file_.read_bytes(how.scales, expert * scales, scales, kept_scales_.data());
  file_.read_bytes(how.blocks, expert * scales * packed_bytes, scales * packed_bytes,
                   kept_blocks_.data());
  kept_name_ = how.blocks;
  kept_expert_ = expert;
}

}  // namespace ostrakon::checkpoint
