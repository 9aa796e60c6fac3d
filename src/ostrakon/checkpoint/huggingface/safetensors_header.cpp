// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/checkpoint/huggingface/safetensors_header.hpp>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <utility>

namespace ostrakon::checkpoint::safetensors {
namespace {

using Json = nlohmann::json;

constexpr std::size_t most_extents = 32;

struct TensorType {
  const char* name;
  std::int64_t bits;
};
constexpr TensorType tensor_types[] = {
    {"F32", 32},    {"BF16", 16},   {"F16", 16},    {"BOOL", 8},    {"U8", 8},
    {"I8", 8},      {"U16", 16},    {"I16", 16},    {"U32", 32},    {"I32", 32},
    {"U64", 64},    {"I64", 64},    {"F64", 64},    {"C64", 64},    {"F8_E5M2", 8},
    {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4}};

const TensorType* find_type(const std::string& name) {
  const auto* const found = std::find_if(std::begin(tensor_types), std::end(tensor_types),
                                         [&](const TensorType& type) { return name == type.name; });
  return found == std::end(tensor_types) ? nullptr : found;
}

/// Handles events of the JSON parser, and keeps only expected values: anything else takes no memory
/// and stops the parser.
class HeaderHandler {
 public:
  struct Entry {
    std::optional<std::string> dtype;
    std::optional<std::vector<std::int64_t>> shape;
    std::optional<std::vector<std::int64_t>> offsets;
  };

  explicit HeaderHandler(const std::string& path) : path_(path) {}

  std::map<std::string, Entry>& entries() { return entries_; }
  std::map<std::string, std::string>& metadata() { return metadata_; }

  bool null() { return refuse("null"); }
  bool boolean(bool value) { return refuse(value ? "true" : "false"); }
  bool number_integer(Json::number_integer_t value) { return refuse(std::to_string(value)); }
  bool number_float(Json::number_float_t, const std::string& written) {
    return refuse(written.substr(0, 40));
  }
  bool binary(Json::binary_t&) { return refuse("binary data"); }

  bool number_unsigned(Json::number_unsigned_t value) {
    std::vector<std::int64_t>* const list = list_to_extend();
    constexpr auto most =
        static_cast<Json::number_unsigned_t>(std::numeric_limits<std::int64_t>::max());
    if (list == nullptr || value > most) return refuse(std::to_string(value));
    const std::size_t longest = scope_ == Scope::shape ? most_extents : 2;
    if (list->size() == longest)
      fail(text(key_, " has more than ", longest, " numbers; expected ",
                scope_ == Scope::shape ? "at most " : "", longest));
    list->push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(const std::string& value) {
    if (scope_ == Scope::metadata) {
      metadata_[key_] = value;
      return true;
    }
    if (scope_ != Scope::tensor || key_ != "dtype") return refuse(shown(value));
    entry_->dtype = value;
    return true;
  }

  bool start_object(std::size_t) {
    if (scope_ == Scope::start) {
      scope_ = Scope::root;
    } else if (scope_ == Scope::root) {
      scope_ = tensor_ == metadata_key ? Scope::metadata : Scope::tensor;
      if (scope_ == Scope::tensor) entry_ = &entries_[tensor_];
    } else {
      return refuse("an object");
    }
    return true;
  }

  bool key(const std::string& name) {
    if (scope_ == Scope::root) {
      tensor_ = name;
      const bool again = name == metadata_key ? saw_metadata_ : entries_.count(name) > 0;
      if (again) fail("is there twice; expected each name once");
      if (name == metadata_key) saw_metadata_ = true;
      return true;
    }
    key_ = name;
    const bool again = scope_ == Scope::metadata ? metadata_.count(name) > 0
                                                 : (name == "dtype" && entry_->dtype) ||
                                                       (name == "shape" && entry_->shape) ||
                                                       (name == "data_offsets" && entry_->offsets);
    if (again) fail(text("the key ", shown(name), " is there twice; expected each once"));
    if (scope_ == Scope::tensor && name != "dtype" && name != "shape" && name != "data_offsets")
      fail(text("unknown key ", shown(name), "; expected dtype, shape and data_offsets"));
    return true;
  }

  bool end_object() {
    if (scope_ == Scope::tensor) {
      const char* const missing = !entry_->dtype     ? "dtype"
                                  : !entry_->shape   ? "shape"
                                  : !entry_->offsets ? "data_offsets"
                                                     : nullptr;
      if (missing != nullptr)
        fail(text("has no ", missing, "; expected dtype, shape and data_offsets"));
    }
    scope_ = scope_ == Scope::root ? Scope::start : Scope::root;
    return true;
  }

  bool start_array(std::size_t) {
    if (scope_ != Scope::tensor || key_ == "dtype") return refuse("an array");
    scope_ = key_ == "shape" ? Scope::shape : Scope::offsets;
    (scope_ == Scope::shape ? entry_->shape : entry_->offsets).emplace();
    return true;
  }

  bool end_array() {
    if (scope_ == Scope::offsets && entry_->offsets->size() != 2)
      fail(text("data_offsets has ", entry_->offsets->size(), " numbers; expected 2"));
    scope_ = Scope::tensor;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) {
    throw Error(text(kind, " '", path_, "': its header is not JSON: ", reason_of(error)));
  }

 private:
  enum class Scope { start, root, metadata, tensor, shape, offsets };

  std::vector<std::int64_t>* list_to_extend() {
    if (scope_ == Scope::shape) return &*entry_->shape;
    if (scope_ == Scope::offsets) return &*entry_->offsets;
    return nullptr;
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(text(kind, " '", path_, "': ", tensor_ == metadata_key ? "" : "tensor ",
                     shown(tensor_), " ", what));
  }

  /// Fails with a message on what was expected in place of `found`.
  bool refuse(const std::string& found) const {
    switch (scope_) {
      case Scope::start:
        throw Error(text(kind, " '", path_, "': its header is ", found, "; expected an object"));
      case Scope::root:
        fail(text("is ", found, "; expected an object"));
      case Scope::metadata:
        fail(text(shown(key_), " is ", found, "; expected text"));
      case Scope::tensor:
        fail(text(key_, " is ", found, "; expected ", key_ == "dtype" ? "text" : "an array"));
      case Scope::shape:
      case Scope::offsets:
        fail(text(key_, " holds ", found, "; expected whole numbers from 0 to 2^63 - 1"));
    }
    return false;
  }

  std::string path_;
  Scope scope_ = Scope::start;
  std::string tensor_;  ///< last key of the header
  std::string key_;     ///< last key in that object
  Entry* entry_ = nullptr;
  bool saw_metadata_ = false;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

/// Returns a * b for non-negative factors; nothing on overflow.
std::optional<std::int64_t> product(std::int64_t a, std::int64_t b) {
  if (b != 0 && a > std::numeric_limits<std::int64_t>::max() / b) return std::nullopt;
  return a * b;
}

/// Whether an extent is 0: the others may then be arbitrarily large.
bool is_empty(const std::vector<std::int64_t>& shape) {
  return std::find(shape.begin(), shape.end(), 0) != shape.end();
}

/// Throws Error for tensors that overlap, leave gaps between them or after the last, or exceed the
/// file.
void check_extents(const std::string& path, const std::map<std::string, SafetensorsTensor>& tensors,
                   std::int64_t data_begin, std::int64_t data_bytes) {
  std::vector<const std::pair<const std::string, SafetensorsTensor>*> in_order;
  for (const auto& tensor : tensors) in_order.push_back(&tensor);
  std::stable_sort(in_order.begin(), in_order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.bytes) <
           std::pair(b->second.begin, b->second.bytes);
  });
  std::int64_t end = 0;
  std::string before = "the start of the data";
  for (const auto* const tensor : in_order) {
    const std::int64_t begin = tensor->second.begin - data_begin;
    require(begin == end, kind, " '", path, "': tensor ", shown(tensor->first), " begins at byte ",
            begin, begin < end ? ", inside " : ", which leaves a hole after ", before,
            "; expected ", end);
    end = begin + tensor->second.bytes;
    before = "tensor " + shown(tensor->first);
  }
  require(end == data_bytes, kind, " '", path, "' has ", data_bytes, " bytes of data; expected ",
          end, ", where its last tensor ends");
}

}  // namespace

std::int64_t bytes_of(const std::string& where, const std::string& dtype_name,
                      const std::vector<std::int64_t>& shape) {
  const TensorType* const type = find_type(dtype_name);
  require(type != nullptr, where, "unknown dtype ", shown(dtype_name),
          "; expected one of the format, such as F32, BF16 or F16");
  std::optional<std::int64_t> bits = is_empty(shape) ? 0 : type->bits;
  for (const std::int64_t extent : shape)
    if (bits) bits = product(*bits, extent);
  require(bits.has_value(), where, "the shape ", hdf5::shape_text(shape), " of ", dtype_name,
          " is too large: expected at most 2^63 - 1 bits");
  require(*bits % 8 == 0, where, "the shape ", hdf5::shape_text(shape), " of ", dtype_name,
          " ends inside a byte; expected whole bytes");
  return *bits / 8;
}

Header read_header(const PlainFile& file, const std::string& path, std::int64_t size) {
  std::uint64_t length = 0;
  file.read(0, length_bytes, &length);
  require(length <= static_cast<std::uint64_t>(most_header_bytes), kind, " '", path,
          "': its header's length is ", length, " bytes; expected at most ", most_header_bytes);
  const auto header_bytes = static_cast<std::int64_t>(length);
  require(header_bytes <= size - length_bytes, kind, " '", path, "': its header's length is ",
          length, " bytes; expected at most the ", size - length_bytes, " that follow");
  std::string json(static_cast<std::size_t>(header_bytes), '\0');
  file.read(length_bytes, header_bytes, json.data());
  require(!json.empty() && json[0] == '{', kind, " '", path,
          "': its header does not begin with '{'; expected a JSON object");

  HeaderHandler handler(path);
  Json::sax_parse(json, &handler);
  const std::int64_t data_begin = length_bytes + header_bytes;
  const std::int64_t data_bytes = size - data_begin;
  Header header;
  header.metadata = std::move(handler.metadata());
  for (const auto& [name, entry] : handler.entries()) {
    const std::string where = text(kind, " '", path, "': tensor ", shown(name), ": ");
    const std::int64_t begin = entry.offsets->at(0);
    const std::int64_t end = entry.offsets->at(1);
    require(begin <= end, where, "data_offsets are [", begin, ", ", end,
            "]; expected the end after the begin");
    require(end <= data_bytes, where, "data_offsets are [", begin, ", ", end,
            "]; expected at most ", data_bytes, ", the bytes of data in the file");
    const std::int64_t bytes = bytes_of(where, *entry.dtype, *entry.shape);
    require(end - begin == bytes, where, "data_offsets [", begin, ", ", end, "] hold ", end - begin,
            " bytes; expected ", bytes, " for the shape ", hdf5::shape_text(*entry.shape), " of ",
            *entry.dtype);
    header.tensors[name] = {*entry.dtype, *entry.shape, data_begin + begin, bytes, 0};
  }
  check_extents(path, header.tensors, data_begin, data_bytes);
  return header;
}

}  // namespace ostrakon::checkpoint::safetensors
