// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_tokenizer.hpp>
#include <ostrakon/data/id_dump.hpp>
#include <ostrakon/data/token_file.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "data_commands.hpp"
#include "output_file.hpp"

namespace ostrakon::apps::data_program {
namespace {

/// Known properties of RAW's ids.
struct KnownOfIds {
  std::optional<std::int64_t> end;           ///< the id that ends a document
  std::vector<std::int32_t> bytes_of_token;  ///< bytes of text per id; empty: unknown
};

void append_tokens(const std::vector<std::int32_t>& tokens, const KnownOfIds& known,
                   data::TokenFileWriter& writer) {
  writer.append(tokens.data(), static_cast<std::int64_t>(tokens.size()));
  if (known.bytes_of_token.empty()) return;
  std::int64_t bytes = 0;
  for (const std::int32_t token : tokens)
    bytes += known.bytes_of_token[static_cast<std::size_t>(token)];
  writer.add_text_bytes(bytes);
}

void append_documents(const std::vector<std::int32_t>& ids, const KnownOfIds& known,
                      data::TokenFileWriter& writer) {
  std::vector<std::int32_t> document;
  for (const std::int32_t id : ids) {
    document.push_back(id);
    if (known.end != id) continue;
    append_tokens(document, known, writer);
    writer.end_document();
    document.clear();
  }
  append_tokens(document, known, writer);
}

/// Reads one number per id of the vocabulary, in order, separated by white space.
std::vector<std::int32_t> read_bytes_of_token(const std::string& path, std::int64_t vocabulary) {
  const std::string where = "--token-bytes '" + path + "'";
  require(is_there(path), where, " does not exist");
  require(!is_folder(path), where, " is a folder; expected a file");
  require(type_of(path) != std::filesystem::file_type::fifo, where, " is not a plain file");
  const PlainFile looked_at(path, PlainFile::Mode::read);  // throws for a Git LFS pointer
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

std::optional<data::IdType> id_type(const CommandLine& arguments) {
  const auto type = arguments.text_option("--dtype");
  if (!type) return std::nullopt;
  const auto found = find_named(data::id_type_names, *type);
  require(found.has_value(), "--dtype is '", *type, "'; expected uint8, uint16, uint32 or uint64");
  return found;
}

/// Returns the name given by --tokenizer, or that of the Hugging Face tokenizer in that folder or
/// file.
std::string tokenizer_name(const CommandLine& arguments) {
  const auto option = arguments.text_option("--tokenizer");
  if (!option) return data::unknown_tokenizer;
  require(!option->empty(), "--tokenizer is ''; expected a name, or a Hugging Face folder");
  require(*option != data::ByteTokenizer::name && *option != data::no_tokenizer, "--tokenizer is '",
          *option, "', whose tokens are not imported; expected the name of another tokenizer");
  if (checkpoint::is_huggingface_tokenizer(*option) || is_folder(*option)) {
    const std::string name = checkpoint::huggingface_tokenizer(*option);
    require(!name.empty(), "--tokenizer is '", *option, "', a folder without ",
            checkpoint::huggingface_tokenizer_files, "; expected one that has it, or a name");
    return name;
  }
  return *option;
}

}  // namespace

void import_tokens(int argc, char** argv) {
  const CommandLine arguments(program, argc, argv,
                              {"--output", "--vocabulary", "--dtype", "--end-of-text", "--bytes",
                               "--token-bytes", "--tokenizer"},
                              {"--overwrite"});
  require_utf8_arguments(argc, argv);
  const std::string output =
      output_option(arguments, "import needs --output FILE", "a file, such as ");
  const auto vocabulary = arguments.integer_option<std::int64_t>("--vocabulary");
  require(vocabulary.has_value(), "import needs --vocabulary V");
  require(*vocabulary >= 1 && *vocabulary <= std::numeric_limits<std::int32_t>::max(),
          "--vocabulary is ", *vocabulary, "; expected 1 to ",
          std::numeric_limits<std::int32_t>::max());
  data::IdDump::Settings settings;
  settings.vocabulary = *vocabulary;
  settings.type = id_type(arguments);
  const auto end = settings.end_of_text = arguments.integer_option<std::int64_t>("--end-of-text");
  require(end.value_or(0) >= 0 && end.value_or(0) < *vocabulary, "--end-of-text is ",
          end.value_or(0), "; expected a token of the vocabulary, 0 to ", *vocabulary - 1);
  const std::string tokenizer = tokenizer_name(arguments);
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
  KnownOfIds known;
  known.end = end;
  if (token_bytes) known.bytes_of_token = read_bytes_of_token(*token_bytes, *vocabulary);

  data::IdDump dump(path, settings);
  make_parent_folder(output);
  data::TokenFileWriter writer(output, tokenizer, *vocabulary,
                               {{path}, text("ostrakon-data ", version()), join(argc, argv)});
  dump.read([&](const std::vector<std::int32_t>& ids) { append_documents(ids, known, writer); });
  if (text_bytes) writer.add_text_bytes(*text_bytes);
  require(!token_bytes || writer.byte_count() > 0, "--token-bytes '", token_bytes.value_or(""),
          "': all tokens of '", path, "' have 0 bytes in it");
  writer.finish();
  for (const std::string& doubt : dump.doubts()) warn(doubt);
  std::cout << "wrote\n";
  print_written(output, writer);
  std::cout << "  tokenizer " << printable(tokenizer)
            << (tokenizer == data::unknown_tokenizer
                    ? ": unknown; --tokenizer NAME says whose ids these are\n"
                    : "\n");
}

}  // namespace ostrakon::apps::data_program
