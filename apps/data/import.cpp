// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_tokenizer.hpp>
#include <ostrakon/data/id_dump.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <system_error>

#include "../common/output_file.hpp"
#include "commands.hpp"

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

/// Takes the name of a tokenizer, or that of the Hugging Face tokenizer in a folder or a file.
Value tokenizer_name(std::string& to) {
  return {[&to](const std::string& value) -> std::string {
    to = value;
    if (value.empty()) return "a name, or a Hugging Face folder";
    if (value == data::ByteTokenizer::name || value == data::no_tokenizer)
      return "the name of another tokenizer: tokens of this one are not imported";
    if (!checkpoint::is_huggingface_tokenizer(value) && !is_folder(value)) return "";
    to = checkpoint::huggingface_tokenizer(value);
    return !to.empty()
               ? ""
               : text("a folder with ", checkpoint::huggingface_tokenizer_files, ", or a name");
  }};
}

struct Import {
  Written output;
  data::IdDump::Settings settings;
  std::string tokenizer = data::unknown_tokenizer;
  std::optional<std::int64_t> bytes;
  std::optional<std::string> token_bytes;
};

int import_tokens(const Import& line, const Given& given) {
  const data::Provenance provenance = provenance_of(given);
  const data::IdDump::Settings& settings = line.settings;
  const std::int64_t vocabulary = settings.vocabulary;
  const std::string &path = given.operands[0], &output = line.output.path;
  require(settings.end_of_text.value_or(0) < vocabulary, "--end-of-text ",
          settings.end_of_text.value_or(0), ": expected a token of the vocabulary, 0 to ",
          vocabulary - 1);
  require(is_there(path), "'", path, "' does not exist");
  require(type_of(path) == std::filesystem::file_type::regular, "'", path, "' is not a plain file");
  require(!are_same(path, output), "--output is the file to read, '", path, "'");
  require_free_name(output, line.output.overwrite);
  KnownOfIds known;
  known.end = settings.end_of_text;
  if (line.token_bytes) known.bytes_of_token = read_bytes_of_token(*line.token_bytes, vocabulary);

  data::IdDump dump(path, settings);
  make_folder(parent_folder(output));
  data::TokenFileWriter writer(output, line.tokenizer, vocabulary, provenance);
  writer.note_ends(std::nullopt, settings.end_of_text);
  dump.read([&](const std::vector<std::int32_t>& ids) { append_documents(ids, known, writer); });
  if (line.bytes) writer.add_text_bytes(*line.bytes);
  require(!line.token_bytes || writer.byte_count() > 0, "--token-bytes '",
          line.token_bytes.value_or(""), "': all tokens of '", path, "' have 0 bytes in it");
  writer.finish();
  for (const std::string& doubt : dump.doubts()) warn(doubt);
  std::cout << "wrote\n";
  print_written(output, writer);
  std::cout << "  tokenizer " << printable(line.tokenizer)
            << (line.tokenizer == data::unknown_tokenizer
                    ? ": unknown; --tokenizer NAME says whose ids these are\n"
                    : "\n");
  return 0;
}

}  // namespace

Command import_command() {
  const auto line = std::make_shared<Import>();
  std::vector<Option> options = output_options(line->output, "FILE", "a file");
  options.insert(
      options.begin(),
      {{"--vocabulary", "V",
        required(integer(line->settings.vocabulary, 1, std::numeric_limits<std::int32_t>::max())),
        "every id is less than V"},
       {"--dtype", "TYPE", choice(line->settings.type, data::id_type_names),
        "of RAW's numbers: uint16, uint32, uint64 or uint8 (default: that of a .npy; else uint16 "
        "where V fits in it, and uint32)"},
       {"--tokenizer", "NAME", tokenizer_name(line->tokenizer),
        "of the tokenizer that wrote the ids; or the folder of a Hugging Face model, or its "
        "tokenizer.json (default: external, which is unknown). Training compares it with that of "
        "weights"},
       {"--end-of-text", "ID", integer(line->settings.end_of_text, 0),
        "each ID ends a document; without it, all of RAW is one"},
       {"--bytes", "N", integer(line->bytes, 1), "bytes of the text that RAW was made of; or"},
       {"--token-bytes", "FILE", word(line->token_bytes),
        "bytes of text of every id, V numbers: 0's, 1's, ... With either, validation on FILE "
        "reports bits per byte"}});
  return {"import",
          "RAW",
          "turns RAW, token ids that another tokenizer wrote one after another as little-endian "
          "numbers, or as a NumPy array (.npy), into the token file FILE",
          options,
          [line](const Given& given) { return import_tokens(*line, given); },
          {{"--bytes", "--token-bytes"}}};
}

}  // namespace ostrakon::apps::data_program
