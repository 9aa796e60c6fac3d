// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/data/known_format.hpp>

#include <algorithm>
#include <cstdint>
#include <ostrakon/base/format.hpp>
#include <string_view>

namespace ostrakon::data {
namespace {

using namespace std::string_view_literals;

struct Mark {
  std::size_t at;  ///< byte offset of the mark
  std::string_view bytes;
  const char* what;
  const char* advice;
};

constexpr const char* unpack_first = "unpack it first";
constexpr std::string_view parquet_mark = "PAR1"sv;
constexpr Mark marks[] = {
    {0, "\x93NUMPY"sv, "a NumPy array", ""},
    {0, "\x89HDF\r\n\x1a\n"sv, "an HDF5 file",
     "`ostrakon-data info` reads it if it is a token file"},
    {0, "PK\x03\x04"sv, "a zip archive, as NumPy's .npz and PyTorch's .pt are", ""},
    {0, "\x28\xb5\x2f\xfd"sv, "compressed by zstd", "decompress it first: unzstd"},
    {0,
     "\xfd"
     "7zXZ\0"sv,
     "compressed by xz", "decompress it first: unxz"},
    {0, "BZh"sv, "compressed by bzip2", "decompress it first: bunzip2"},
    {0, "\x04\x22\x4d\x18"sv, "compressed by lz4", "decompress it first: unlz4"},
    {0, "7z\xbc\xaf\x27\x1c"sv, "a 7z archive", unpack_first},
    {257, "ustar"sv, "a tar archive", unpack_first},
    {0, parquet_mark, "a Parquet file",
     "`ostrakon-data build --field COLUMN` reads it if Ostrakon was built with Arrow "
     "(docs/building.md); or write it as JSON lines, such as by pandas: "
     "read_parquet(FILE).to_json(OUT, orient='records', lines=True)"},
    {0, "ARROW1\0\0"sv, "an Arrow file", ""},
    {0, "MMIDIDX\0\0"sv, "the index of a Megatron-LM data set",
     "the ids are in the .bin file next to it"},
    {0, "TNTIDX\0\0"sv, "the index of a Megatron-LM or fairseq data set",
     "the ids are in the .bin file next to it"},
    {0, "GGUF"sv, "a model in GGUF", ""},
    {0, "Obj\x01"sv, "an Avro file", ""},
    {0, "SQLite format 3\0"sv, "an SQLite data base", ""},
    {0, "%PDF-"sv, "a PDF", ""},
    {0, "\x89PNG\r\n\x1a\n"sv, "a PNG image", ""},
    {0, "\xff\xfe\0\0"sv, "text in UTF-32", "convert it first: iconv -f UTF-32 -t UTF-8"},
    {0, "\0\0\xfe\xff"sv, "text in UTF-32", "convert it first: iconv -f UTF-32 -t UTF-8"},
};

unsigned char byte_at(const std::string& head, std::size_t at) {
  return at < head.size() ? static_cast<unsigned char>(head[at]) : 0;
}

std::uint32_t uint32_at(const std::string& head, std::size_t at) {
  std::uint32_t number = 0;
  for (std::size_t byte = 4; byte-- > 0;) number = number << 8 | byte_at(head, at + byte);
  return number;
}

/// RFC 1952: a mark of two bytes; the method, flags and system after it have few valid values.
bool is_gzip(const std::string& head) {
  const auto flags = byte_at(head, 3), extra = byte_at(head, 8), system = byte_at(head, 9);
  return head.size() >= 18 && head.compare(0, 3, "\x1f\x8b\x08") == 0 && flags < 32 &&
         (extra == 0 || extra == 2 || extra == 4) && (system < 14 || system == 255);
}

bool is_bzip2(const std::string& head) {
  return head.size() >= 10 && byte_at(head, 3) >= '1' && byte_at(head, 3) <= '9' &&
         (head.compare(4, 6, "1AY&SY") == 0 || head.compare(4, 6, "\x17rE8P\x90") == 0);
}

/// A pickle file: a protocol number, one of the instructions that a pickle begins with, and the
/// final instruction.
bool is_pickle(const PlainFile& file, const std::string& head) {
  const auto protocol = byte_at(head, 1);
  if (head.size() < 4 || byte_at(head, 0) != 0x80 || protocol < 2 || protocol > 5) return false;
  if ("\x95]}(c\x8aX)"sv.find(head[2]) == std::string_view::npos) return false;
  char last = 0;
  file.read(file.size() - 1, 1, &last);
  return last == '.' || byte_at(head, 2) == 0x8a;  // PyTorch's, which is followed by tensors
}

/// A safetensors file begins with the length of its JSON header, in eight bytes.
bool is_safetensors(const std::string& head, std::int64_t bytes) {
  const std::int64_t length = uint32_at(head, 0);
  return head.size() > 9 && uint32_at(head, 4) == 0 && length >= 2 && length <= bytes - 8 &&
         head[8] == '{' && (head[9] == '"' || head[9] == '}' || head[9] == ' ');
}

/// A message of an Arrow stream, as in files of Hugging Face's data sets.
bool is_arrow_stream(const std::string& head, std::int64_t bytes) {
  const std::int64_t length = uint32_at(head, 4);
  return head.size() >= 16 && uint32_at(head, 0) == 0xffffffffU && length > 0 && length % 8 == 0 &&
         length < bytes && uint32_at(head, 8) < 64;
}

/// llm.c's header: 256 numbers of 32 bits, beginning with a mark, the version, and the number of
/// ids.
std::optional<KnownFormat> llm_c(const std::string& head, std::int64_t bytes) {
  constexpr std::int64_t header = 1024;
  const std::uint32_t mark = uint32_at(head, 0);
  const std::int64_t width = mark == 20240520U ? 2 : mark == 20240801U ? 4 : 0;
  if (width == 0 || bytes < header || uint32_at(head, 4) > 255) return std::nullopt;
  return KnownFormat{
      "a dump with llm.c's header of 1024 bytes",
      "`tail -c +1025 FILE` writes its ids alone, as uint" + std::to_string(8 * width)};
}

std::string::size_type first_letter(const std::string& head) {
  return head.find_first_not_of(" \t\r\n", begins_with_utf8_mark(head) ? 3 : 0);
}

}  // namespace

std::string head_of(const PlainFile& file) {
  std::string head(head_bytes, '\0');
  head.resize(static_cast<std::size_t>(file.read_up_to(0, head_bytes, head.data())));
  return head;
}

std::optional<KnownFormat> known_format(const PlainFile& file, const std::string& head) {
  const std::int64_t bytes = file.size();
  if (is_gzip(head)) return KnownFormat{"compressed by gzip", "decompress it first: gunzip"};
  const bool is_text = begins_as_text(head);  // text may begin with a word such as GGUF
  for (const Mark& mark : marks) {
    if (is_text && mark.bytes != "%PDF-"sv) continue;
    if (head.size() <= mark.at || head.compare(mark.at, mark.bytes.size(), mark.bytes) != 0)
      continue;
    if (mark.bytes == "BZh"sv && !is_bzip2(head)) continue;
    return KnownFormat{mark.what, mark.advice};
  }
  if (is_pickle(file, head)) return KnownFormat{"a Python pickle", ""};
  if (is_safetensors(head, bytes)) return KnownFormat{"a model in safetensors", ""};
  if (is_arrow_stream(head, bytes)) return KnownFormat{"an Arrow stream", ""};
  const bool has_mark = head.compare(0, 2, "\xff\xfe") == 0 || head.compare(0, 2, "\xfe\xff") == 0;
  if (has_mark && begins_as_utf16(head)) return utf16();
  return llm_c(head, bytes);
}

bool is_parquet(const std::string& head) {
  return head.compare(0, parquet_mark.size(), parquet_mark) == 0 && !begins_as_text(head);
}

KnownFormat utf16() { return {"text in UTF-16", "convert it first: iconv -f UTF-16 -t UTF-8"}; }

bool begins_as_text(const std::string& head) {
  // The last character may be cut off at the end of the head.
  const std::size_t whole = first_not_utf8(head);
  if (whole + 3 < head.size() || (whole < head.size() && head.size() < head_bytes)) return false;
  return std::none_of(head.begin(), head.end(), [](char byte) {
    const auto code = static_cast<unsigned char>(byte);
    return (code < 32 && "\t\n\v\f\r"sv.find(byte) == std::string_view::npos) || code == 127;
  });
}

bool begins_as_utf16(const std::string& head) {
  const bool big_mark = head.compare(0, 2, "\xfe\xff") == 0;
  const bool has_mark = big_mark || head.compare(0, 2, "\xff\xfe") == 0;
  const bool is_big = big_mark || (!has_mark && byte_at(head, 0) == 0);
  const std::size_t units = head.size() / 2;
  std::size_t ascii = 0;
  bool after_high = false;  // whether the last unit was the first half of a surrogate pair
  for (std::size_t i = has_mark ? 1 : 0; i < units; ++i) {
    const unsigned first = byte_at(head, 2 * i), second = byte_at(head, 2 * i + 1);
    const unsigned unit = is_big ? first << 8 | second : second << 8 | first;
    const bool low = unit >= 0xdc00 && unit < 0xe000;
    if (low != after_high) return false;
    after_high = unit >= 0xd800 && unit < 0xdc00;
    if (unit < 32 && (unit < 9 || unit > 13)) return false;
    if (unit < 127) ++ascii;
  }
  return units >= 2 && (has_mark || ascii > units * 3 / 4);
}

bool begins_as_json_lines(const std::string& head) {
  const std::size_t begin = first_letter(head);
  if (begin == std::string::npos || head[begin] != '{') return false;
  const std::size_t key = head.find_first_not_of(" \t", begin + 1);
  if (key == std::string::npos || head[key] != '"') return false;
  const std::size_t newline = head.find('\n', begin);
  // Without a newline the first line is longer than the head, which a program's source never has.
  if (newline == std::string::npos) return head.find("\":", key) != std::string::npos;
  const std::size_t last = head.find_last_not_of(" \t\r", newline - 1);
  const std::size_t next = head.find_first_not_of(" \t\r\n", newline);
  return head[last] == '}' && (next == std::string::npos || head[next] == '{');
}

bool begins_with_utf8_mark(const std::string& head) {
  return head.compare(0, 3, "\xef\xbb\xbf") == 0;
}

}  // namespace ostrakon::data
