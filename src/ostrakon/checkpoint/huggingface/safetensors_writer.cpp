// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/checkpoint/huggingface/safetensors.hpp>
#include <ostrakon/checkpoint/huggingface/safetensors_header.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <ostrakon/math/half.hpp>
#include <utility>

namespace ostrakon::checkpoint {

using safetensors::bytes_of;
using safetensors::kind;
using safetensors::length_bytes;
using safetensors::metadata_key;
using safetensors::most_header_bytes;

SafetensorsWriter::SafetensorsWriter(const std::string& path, DType dtype,
                                     std::vector<Tensor> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), dtype_(dtype), tensors_(std::move(tensors)) {
  require(dtype == DType::fp32 || dtype == DType::bf16, "can't write ", kind, " '", path,
          "' with a dtype other than fp32 and bf16");
  require(!is_folder(path), "can't write ", kind, " '", path, "': a folder has that name");
  const std::string type_name = dtype == DType::fp32 ? "F32" : "BF16";
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[metadata_key] = metadata;
  std::int64_t end = 0;
  for (const Tensor& tensor : tensors_) {
    require(tensor.name != metadata_key && !header.contains(tensor.name), "can't write ", kind,
            " '", path, "': the name ", shown(tensor.name), " is taken");
    for (const std::int64_t extent : tensor.shape)
      require(extent >= 0, "can't write ", kind, " '", path, "': tensor ", shown(tensor.name),
              " has the shape ", hdf5::shape_text(tensor.shape), "; expected no extent below 0");
    const std::int64_t begin = end;
    end += bytes_of(text("can't write ", kind, " '", path, "': tensor ", shown(tensor.name), ": "),
                    type_name, tensor.shape);
    header[tensor.name] = {
        {"dtype", type_name}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string json;
  try {
    json = header.dump();
  } catch (const nlohmann::json::exception& error) {
    throw Error(text("can't write ", kind, " '", path, "': ", reason_of(error)));
  }
  // The header is padded so that data begin at a multiple of 8 bytes, for readers that map the
  // file.
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = json.size();
  require(length <= static_cast<std::uint64_t>(most_header_bytes), "can't write ", kind, " '", path,
          "': its header would have ", length, " bytes; expected at most ", most_header_bytes);

  file_ = std::make_unique<NewFile>(path);
  put(&length, length_bytes);
  put(json.data(), static_cast<std::int64_t>(json.size()));
  skip_finished();
}

void SafetensorsWriter::put(const void* data, std::int64_t bytes) { file_->write(data, bytes); }

void SafetensorsWriter::skip_finished() {
  while (next_ < tensors_.size()) {
    const SafetensorsTensor tensor{"", tensors_[next_].shape, 0, 0, 0};
    if (written_ < tensor.elements()) return;
    written_ = 0;
    ++next_;
  }
}

void SafetensorsWriter::write(const std::string& name, const float* values, std::int64_t count) {
  if (count == 0) return;
  require(next_ < tensors_.size(), "can't write tensor ", shown(name), " to ", kind, " '", path_,
          "': all of its tensors are written");
  const Tensor& tensor = tensors_[next_];
  const std::int64_t left = SafetensorsTensor{"", tensor.shape, 0, 0, 0}.elements() - written_;
  require(tensor.name == name && count > 0 && count <= left, "can't write ", count,
          " elements of tensor ", shown(name), " to ", kind, " '", path_, "': expected at most ",
          left, " of ", shown(tensor.name));
  if (dtype_ == DType::fp32) {
    put(values, 4 * count);
  } else {
    constexpr std::int64_t block = 1 << 16;
    rounded_.resize(block);
    for (std::int64_t at = 0; at < count; at += block) {
      const std::int64_t part = std::min(block, count - at);
      for (std::int64_t i = 0; i < part; ++i) rounded_[i] = bf16(values[at + i]).bits;
      put(rounded_.data(), 2 * part);
    }
  }
  written_ += count;
  skip_finished();
}

void SafetensorsWriter::finish() {
  require(file_ != nullptr, kind, " '", path_, "' is finished already");
  require(next_ == tensors_.size(), kind, " '", path_, "': tensor ",
          next_ == tensors_.size() ? "" : shown(tensors_[next_].name), " is not written whole");
  file_->finish();
  file_.reset();
}

}  // namespace ostrakon::checkpoint
