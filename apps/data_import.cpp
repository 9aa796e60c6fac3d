// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/file_type.hpp>
#include <ostrakon/base/files.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/data/token_file.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "data_commands.hpp"
#include "output_file.hpp"

namespace ostrakon::apps::data_program {
namespace {

/// What RAW is, and what is known of its tokens.
struct RawTokens {
  std::size_t bytes = 2;                     ///< of a number
  std::optional<std::int64_t> end;           ///< the token that ends a document
  std::vector<std::int32_t> bytes_of_token;  ///< of text, by id; empty: unknown
};

void append_tokens(const std::vector<std::int32_t>& tokens, const RawTokens& raw,
                   data::TokenFileWriter& writer) {
  writer.append(tokens.data(), static_cast<std::int64_t>(tokens.size()));
  if (raw.bytes_of_token.empty()) return;
  std::int64_t bytes = 0;
  for (const std::int32_t token : tokens)
    bytes += raw.bytes_of_token[static_cast<std::size_t>(token)];
  writer.add_text_bytes(bytes);
}

/// Adds little-endian numbers.
void append_raw(const std::vector<unsigned char>& block, const RawTokens& raw,
                data::TokenFileWriter& writer) {
  std::vector<std::int32_t> document;
  for (std::size_t at = 0; at < block.size(); at += raw.bytes) {
    std::uint32_t token = 0;
    for (std::size_t byte = raw.bytes; byte-- > 0;) token = token << 8 | block[at + byte];
    document.push_back(static_cast<std::int32_t>(token));
    if (raw.end != token) continue;
    append_tokens(document, raw, writer);
    writer.end_document();
    document.clear();
  }
  append_tokens(document, raw, writer);
}

void read_raw(const std::string& path, const RawTokens& raw, data::TokenFileWriter& writer) {
  const PlainFile file(path, PlainFile::Mode::read);
  constexpr std::int64_t block_bytes = 1 << 20;
  std::vector<unsigned char> block;
  for (std::int64_t at = 0, got = block_bytes; got == block_bytes; at += got) {
    block.resize(block_bytes);
    got = file.read_up_to(at, block_bytes, block.data());
    block.resize(static_cast<std::size_t>(got));
    require(block.size() % raw.bytes == 0, "'", path, "' ends inside a number of ", raw.bytes,
            " bytes");
    append_raw(block, raw, writer);
  }
}

/// A number for each id of the vocabulary, in order, with white space between them.
std::vector<std::int32_t> read_bytes_of_token(const std::string& path, std::int64_t vocabulary) {
  const std::string where = "--token-bytes '" + path + "'";
  require(is_there(path), where, " does not exist");
  require(!is_folder(path), where, " is a folder; expected a file");
  require(type_of(path) != std::filesystem::file_type::fifo, where, " is not a plain file");
  const PlainFile looked_at(path, PlainFile::Mode::read);  // throws where it is a Git LFS pointer
  errno = 0;
  std::ifstream stream(path);
  require(stream.is_open(), where, " can't be read: ", system_error());
  std::vector<std::int32_t> bytes;
  for (std::string word; stream >> word;) {
    std::int32_t number = -1;
    const char* const end = word.data() + word.size();
    const auto [stopped, failure] = std::from_chars(word.data(), end, number);
    require(failure == std::errc() && stopped == end && number >= 0, where,
            ": the number of bytes of token ", bytes.size(), " is '", word.substr(0, 40),
            "'; expected a whole number from 0 on");
    bytes.push_back(number);
    require(static_cast<std::int64_t>(bytes.size()) <= vocabulary, where, " has more than ",
            vocabulary, " numbers; expected one for each id of the vocabulary");
  }
  require(!stream.bad(), where, " can't be read: ", system_error());
  require(static_cast<std::int64_t>(bytes.size()) == vocabulary, where, " has ", bytes.size(),
          " numbers; expected one for each id of the vocabulary, ", vocabulary);
  return bytes;
}

std::size_t raw_bytes(const CommandLine& arguments, std::int64_t vocabulary) {
  const std::string type =
      arguments.text_option("--dtype").value_or(vocabulary <= 1 << 16 ? "uint16" : "uint32");
  require(type == "uint16" || type == "uint32", "--dtype is '", type,
          "'; expected uint16 or uint32");
  return type == "uint16" ? 2 : 4;
}

}  // namespace

void import_tokens(int argc, char** argv) {
  const CommandLine arguments(
      program, argc, argv,
      {"--output", "--vocabulary", "--dtype", "--end-of-text", "--bytes", "--token-bytes"},
      {"--overwrite"});
  require_utf8_arguments(argc, argv);
  const std::string output =
      output_option(arguments, "import needs --output FILE", "a file, such as ");
  const auto vocabulary = arguments.integer_option<std::int64_t>("--vocabulary");
  require(vocabulary.has_value(), "import needs --vocabulary V");
  require(*vocabulary >= 1 && *vocabulary <= std::numeric_limits<std::int32_t>::max(),
          "--vocabulary is ", *vocabulary, "; expected 1 to ",
          std::numeric_limits<std::int32_t>::max());
  RawTokens raw;
  raw.bytes = raw_bytes(arguments, *vocabulary);
  raw.end = arguments.integer_option<std::int64_t>("--end-of-text");
  require(raw.end.value_or(0) >= 0 && raw.end.value_or(0) < *vocabulary, "--end-of-text is ",
          raw.end.value_or(0), "; expected a token of the vocabulary, 0 to ", *vocabulary - 1);
  const auto text_bytes = arguments.integer_option<std::int64_t>("--bytes");
  require(text_bytes.value_or(1) >= 1, "--bytes is ", text_bytes.value_or(1),
          "; expected at least 1");
  const auto token_bytes = arguments.text_option("--token-bytes");
  require(!text_bytes || !token_bytes, "--bytes and --token-bytes are both given");
  require(arguments.files().size() == 1, "import takes one file of raw tokens; found ",
          arguments.files().size());
  const std::string& path = arguments.files()[0];
  require(is_there(path), "'", path, "' does not exist");
  require(type_of(path) == std::filesystem::file_type::regular, "'", path, "' is not a plain file");
  require(!are_same(path, output), "--output is the file to read, '", path, "'");
  require_free_name(output, arguments.flag("--overwrite"));
  if (token_bytes) raw.bytes_of_token = read_bytes_of_token(*token_bytes, *vocabulary);

  make_parent_folder(output);
  data::TokenFileWriter writer(output, "external", *vocabulary,
                               {{path}, text("ostrakon-data ", version()), join(argc, argv)});
  read_raw(path, raw, writer);
  if (text_bytes) writer.add_text_bytes(*text_bytes);
  require(!token_bytes || writer.byte_count() > 0, "--token-bytes '", token_bytes.value_or(""),
          "': all tokens of '", path, "' have 0 bytes in it");
  writer.finish();
  std::cout << "wrote\n";
  print_written(output, writer);
}

}  // namespace ostrakon::apps::data_program
