// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/huggingface/safetensors.hpp>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/checkpoint/huggingface/other_weights.hpp>
#include <ostrakon/checkpoint/huggingface/safetensors_header.hpp>
#include <ostrakon/checkpoint/input_file.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <ostrakon/math/half.hpp>
#include <utility>

namespace ostrakon::checkpoint {

using safetensors::Header;
using safetensors::kind;
using safetensors::length_bytes;
using safetensors::most_header_bytes;

namespace {

using Json = nlohmann::json;

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are read as they lie");

constexpr const char* index_kind = "safetensors index";

/// Returns the weight_map of an index: tensor -> name of a file next to it.
std::map<std::string, std::string> read_index(const std::string& path) {
  const Json index = read_json_object(path, index_kind, most_header_bytes);
  require(index.contains("weight_map"), index_kind, " '", path, "' has no weight_map");
  require(index["weight_map"].is_object(), index_kind, " '", path, "': its weight_map is ",
          index["weight_map"].type_name(), "; expected an object");
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : index["weight_map"].items()) {
    const std::string where = text(index_kind, " '", path, "': tensor ", shown(name), " is in ");
    require(file.is_string(), where, file.type_name(), "; expected a file's name");
    const std::string file_name = file.get<std::string>();
    require(!file_name.empty() && file_name != "." && file_name != ".." &&
                file_name.find_first_of(std::string("/\\\0", 3)) == std::string::npos,
            where, shown(file_name), "; expected the plain name of a file in the same folder");
    files[name] = file_name;
  }
  require(!files.empty(), index_kind, " '", path, "': its weight_map is empty");
  return files;
}

bool is_json(const std::string& path) {
  const std::string ending = ".json";
  return path.size() > ending.size() &&
         path.compare(path.size() - ending.size(), ending.size(), ending) == 0;
}

template <class T>
void read_converted(const PlainFile& file, std::int64_t begin, std::int64_t count, float* values) {
  constexpr std::int64_t block = 1 << 16;
  std::vector<T> numbers(static_cast<std::size_t>(std::min(count, block)));
  for (std::int64_t at = 0; at < count; at += block) {
    const std::int64_t part = std::min(block, count - at);
    const std::int64_t bytes = part * static_cast<std::int64_t>(sizeof(T));
    file.read(begin + at * static_cast<std::int64_t>(sizeof(T)), bytes, numbers.data());
    for (std::int64_t i = 0; i < part; ++i) values[at + i] = numbers[i];
  }
}

/// Opens a file to read it.
Header open_tensors(const std::string& path, std::optional<PlainFile>& file) {
  const std::int64_t size = plain_file_size(path, kind);
  require(size >= length_bytes, kind, " '", path, "' has ", size,
          " bytes; expected at least the 8 of the header's length");
  file.emplace(path, PlainFile::Mode::read);
  return safetensors::read_header(*file, path, size);
}

}  // namespace

std::int64_t SafetensorsTensor::elements() const {
  // If one extent is 0, the others may be arbitrarily large.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1},
                         std::multiplies<std::int64_t>());
}

SafetensorsReader::SafetensorsReader(const std::string& path) : path_(path) {
  require_no_other_weights(path);
  if (!is_folder(path)) {
    if (is_json(path))
      open_index(path);
    else
      open_file(path);
    return;
  }
  const std::filesystem::path folder(path);
  const std::string index = (folder / "model.safetensors.index.json").string();
  const std::string file = (folder / "model.safetensors").string();
  const bool has_index = is_there(index);
  const bool has_any = has_index || is_there(file);
  const std::string weights = (folder / "weights.h5").string();
  require(has_any || !is_there(weights), "folder '", path,
          "' is that of a run; expected its weights, '", weights, "', or one of its checkpoints");
  require(
      has_any, "folder '", path,
      "' has neither model.safetensors.index.json nor model.safetensors; expected one of them, or "
      "a run's weights.h5 or checkpoints");
  if (has_index)
    open_index(index);
  else
    open_file(file);
}

void SafetensorsReader::open_file(const std::string& path) {
  files_.push_back({path, {}});
  Header header = open_tensors(files_.back().path, files_.back().file);
  tensors_ = std::move(header.tensors);
  metadata_ = std::move(header.metadata);
}

void SafetensorsReader::open_index(const std::string& path) {
  std::map<std::string, Header> headers;
  std::map<std::string, std::size_t> numbers;
  for (const auto& [name, file] : read_index(path)) {
    if (numbers.count(file) == 0) {
      numbers[file] = files_.size();
      files_.push_back({(std::filesystem::path(path).parent_path() / file).string(), {}});
      headers[file] = open_tensors(files_.back().path, files_.back().file);
      if (files_.size() == 1) metadata_ = headers[file].metadata;
    }
    const auto& tensors = headers[file].tensors;
    const auto found = tensors.find(name);
    require(found != tensors.end(), index_kind, " '", path, "': tensor ", shown(name),
            " is not in '", file, "', where it is said to be");
    tensors_[name] = found->second;
    tensors_[name].file = numbers[file];
  }
}

const SafetensorsTensor& SafetensorsReader::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  require(found != tensors_.end(), "'", path_, "' has no tensor ", shown(name));
  return found->second;
}

void SafetensorsReader::require_range(const std::string& name, std::int64_t first,
                                      std::int64_t count) const {
  const SafetensorsTensor& found = tensor(name);
  const std::int64_t elements = found.elements();
  require(first >= 0 && count >= 0 && first <= elements - count, kind, " '",
          files_[found.file].path, "': elements ", first, " to ", first + count, " of tensor ",
          shown(name), " asked for; it has ", elements);
}

void SafetensorsReader::read(const std::string& name, std::int64_t first, std::int64_t count,
                             float* values) {
  const SafetensorsTensor& found = tensor(name);
  File& file = files_[found.file];
  const bool is_float = found.dtype == "F32";
  require(is_float || found.dtype == "BF16" || found.dtype == "F16", kind, " '", file.path,
          "': tensor ", shown(name), " is ", found.dtype, "; expected F32, BF16 or F16");
  require_range(name, first, count);
  if (count == 0) return;
  const std::int64_t begin = found.begin + first * (is_float ? 4 : 2);
  if (is_float)
    file.file->read(begin, 4 * count, values);
  else if (found.dtype == "BF16")
    read_converted<bf16>(*file.file, begin, count, values);
  else
    read_converted<fp16>(*file.file, begin, count, values);
}

void SafetensorsReader::read_bytes(const std::string& name, std::int64_t first, std::int64_t count,
                                   std::uint8_t* codes) {
  const SafetensorsTensor& found = tensor(name);
  File& file = files_[found.file];
  const bool is_byte = found.dtype == "U8" || found.dtype == "F8_E4M3" ||
                       found.dtype == "F8_E5M2" || found.dtype == "F8_E8M0";
  require(is_byte, kind, " '", file.path, "': tensor ", shown(name), " is ", found.dtype,
          "; expected U8, F8_E4M3, F8_E5M2 or F8_E8M0");
  require_range(name, first, count);
  if (count > 0) file.file->read(found.begin + first, count, codes);
}

}  // namespace ostrakon::checkpoint
