// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/new_file.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::checkpoint {

// The safetensors format (https://github.com/huggingface/safetensors): the header's length as a
// little-endian number of 8 bytes; the header, a JSON object of tensor name -> {dtype, shape,
// data_offsets: [begin, end)} and, under __metadata__, text -> text; then the bytes of all tensors
// without gaps, row-major and little-endian. A large model consists of several such files and an
// index, JSON whose weight_map gives the file of each tensor.

/// Position and type of a tensor.
struct SafetensorsTensor {
  std::string dtype;  ///< a dtype of the format: "F32", "BF16", "I64"
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  ///< offset of its bytes in its file
  std::int64_t bytes = 0;
  std::size_t file = 0;  ///< number of its file

  std::int64_t elements() const;
};

/// Reads tensors in one process: only the requested slices. A file's header is checked completely
/// before it is used.
class SafetensorsReader {
 public:
  /// `path`: a safetensors file, an index, or a folder with model.safetensors.index.json or
  /// model.safetensors. Throws Error that names the file and, if one is invalid, the tensor.
  explicit SafetensorsReader(const std::string& path);

  const std::string& path() const { return path_; }
  const std::map<std::string, SafetensorsTensor>& tensors() const { return tensors_; }
  /// Returns the metadata of the first file.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool has(const std::string& name) const { return tensors_.count(name) > 0; }
  /// Throws Error if there is no such tensor.
  const SafetensorsTensor& tensor(const std::string& name) const;

  /// values (host memory) = elements [first, first + count) of a tensor of F32, BF16 or F16.
  void read(const std::string& name, std::int64_t first, std::int64_t count, float* values);

  /// codes (host memory) = elements [first, first + count) of a tensor of U8, F8_E4M3, F8_E5M2 or
  /// F8_E8M0, as they are stored. Such numbers have scales elsewhere: see DequantizingReader.
  void read_bytes(const std::string& name, std::int64_t first, std::int64_t count,
                  std::uint8_t* codes);

 private:
  struct File {
    std::string path;
    std::optional<PlainFile> file;  ///< set while it is open
  };

  void require_range(const std::string& name, std::int64_t first, std::int64_t count) const;

  void open_file(const std::string& path);
  void open_index(const std::string& path);

  std::string path_;
  std::vector<File> files_;
  std::map<std::string, SafetensorsTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// Writes one safetensors file from one process, sequentially in the order of its tensors. The file
/// appears under its name only after finish().
class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    std::vector<std::int64_t> shape;
  };

  /// All elements are stored as `dtype`, fp32 or bf16 (rounded to nearest, ties to even).
  SafetensorsWriter(const std::string& path, DType dtype, std::vector<Tensor> tensors,
                    const std::map<std::string, std::string>& metadata);

  /// Appends `count` elements of the current tensor. `name` is the tensor that the caller expects:
  /// throws Error if it is another, has fewer elements left, or can't be written.
  void write(const std::string& name, const float* values, std::int64_t count);

  /// Completes the file. Throws Error if elements are missing.
  void finish();

 private:
  void put(const void* data, std::int64_t bytes);
  void skip_finished();

  std::string path_;
  DType dtype_;
  std::vector<Tensor> tensors_;
  std::size_t next_ = 0;      ///< current tensor
  std::int64_t written_ = 0;  ///< elements of the current tensor written
  std::vector<std::uint16_t> rounded_;
  std::unique_ptr<NewFile> file_;  ///< null after finish()
};

}  // namespace ostrakon::checkpoint
