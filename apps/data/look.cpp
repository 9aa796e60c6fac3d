// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/data/data_settings.hpp>
#include <ostrakon/data/packing.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <ostrakon/text/tokenizer.hpp>
#include <sstream>

#include "commands.hpp"

namespace ostrakon::apps::data_program {

namespace {

std::string percent(std::int64_t part, std::int64_t all) {
  return rounded(100.0 * static_cast<double>(part) / static_cast<double>(all)) + " %";
}

/// Prints how full samples of whole documents are.
void print_packing(const data::TokenFile& file, std::int64_t places) {
  const data::Packing packing(file.document_offsets(), places);
  const auto samples = static_cast<std::int64_t>(packing.samples());
  std::cout << "  packed        ";
  if (samples == 0) {
    std::cout << "no document has 2 tokens\n";
    return;
  }
  std::cout << format_count(samples) << " samples of " << places << " tokens, "
            << percent(samples * places - packing.used_places(), samples * places)
            << " of them padding, with " << format_count(packing.piece_count())
            << " documents or pieces of such\n";
}

/// Prints how long documents are, in tokens.
void print_lengths(const data::TokenFile& file) {
  if (file.info().document_count < 2 || !file.info().missing_filter.empty()) return;
  std::vector<std::int64_t> lengths = file.document_offsets();
  for (std::size_t i = 0; i + 1 < lengths.size(); ++i) lengths[i] = lengths[i + 1] - lengths[i];
  lengths.pop_back();
  const auto middle = lengths.begin() + static_cast<std::ptrdiff_t>(lengths.size() / 2);
  std::nth_element(lengths.begin(), middle, lengths.end());
  const double mean =
      static_cast<double>(file.info().token_count) / static_cast<double>(lengths.size());
  std::cout << "  lengths       mean " << rounded(mean) << " tokens, median "
            << format_count(*middle) << ", longest "
            << format_count(*std::max_element(lengths.begin(), lengths.end())) << "\n";
}

void print_info(const std::string& path, std::optional<std::int64_t> pack) {
  const data::TokenFile file(path);
  const data::TokenFileInfo& info = file.info();
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(path));
  const double stored_bits =
      8.0 * static_cast<double>(bytes) / static_cast<double>(info.token_count);

  std::cout << printable(path) << "\n"
            << "  format        ostrakon-tokens " << (info.has_mask ? 2 : 1) << "\n"
            << "  tokenizer     " << printable(info.tokenizer) << "\n"
            << "  vocabulary    " << format_count(info.vocabulary) << "\n"
            << "  tokens        " << format_count(info.token_count) << "\n"
            << "  documents     " << format_count(info.document_count)
            << (info.pairs ? text(", ", format_count(*info.pairs), " pairs of answers") : "")
            << "\n";
  print_lengths(file);
  print_document_ends(file);
  std::cout << "  loss          "
            << (info.has_mask ? text("counts ", format_count(info.counted), " of the tokens, ",
                                     percent(info.counted, info.token_count))
                              : std::string("counts all tokens"))
            << "\n"
            << "  text          "
            << (info.byte_count ? format_count(*info.byte_count) + " bytes, " +
                                      rounded(*info.bytes_per_token()) + " a token\n"
                                : "of unknown length: it has no byte_count\n")
            << "  stored as     " << printable(info.stored_as) << ", " << format_bytes(bytes)
            << ", " << rounded(stored_bits) << " bits a token\n";
  if (pack) print_packing(file, *pack);
  if (!info.missing_filter.empty())
    std::cout << "                with the HDF5 filter " << printable(info.missing_filter)
              << ", which is not available in this HDF5: tokens can't be read here\n";
  std::cout << "  checksum      " << printable(info.checksum) << " (XXH3)"
            << (info.has_mask ? text(", of the loss mask ", printable(info.mask_checksum)) : "")
            << "\n"
            << "  created       " << printable(info.created) << " by " << printable(info.program)
            << "\n"
            << "  command line  " << printable(info.command_line) << "\n";
  std::istringstream sources(info.sources);
  const char* label = "  sources       ";
  for (std::string source; std::getline(sources, source); label = "                ") {
    std::cout << label << printable(source) << "\n";
  }
}

/// Prints which share of samples is drawn from each file of a mixture, and how many tokens of all
/// are drawn while those of the file are drawn once.
void print_shares(const std::vector<data::WeightedFile>& files) {
  double sum = 0.0;
  for (const data::WeightedFile& file : files) sum += file.weight;
  std::cout << "mixture\n";
  for (const data::WeightedFile& file : files) {
    const double share = file.weight / sum;
    std::cout << "  " << printable(file.path) << ": " << rounded(100.0 * share)
              << " % of the samples";
    const auto tokens = static_cast<double>(data::TokenFile(file.path).info().token_count);
    if (share > 0.0)
      std::cout << ", an epoch of it in about "
                << format_count(static_cast<std::int64_t>(tokens / share)) << " tokens of all";
    std::cout << "\n";
  }
}

/// Prints the headers of a file, or of those of a mixture, and the mixture's shares. A file may
/// have any name: what exists is no mixture.
void print_info_of(const std::string& files_text, std::optional<std::int64_t> pack) {
  if (std::filesystem::exists(files_text)) return print_info(files_text, pack);
  const std::vector<data::WeightedFile> files = data::read_files(files_text);
  require(!files.empty(), "\"\" names no token file");
  for (const data::WeightedFile& file : files) print_info(file.path, pack);
  if (files.size() > 1) print_shares(files);
}

int verify(const std::string& path) {
  const data::TokenFile file(path);
  file.verify();
  std::cout << printable(file.path()) << " is sound: " << counted(file.info().token_count, "token")
            << " in " << counted(file.info().document_count, "document");
  if (file.info().has_mask)
    std::cout << ", of which " << format_count(file.info().counted) << " count in the loss";
  std::cout << "\n";
  if (!file.info().byte_count)
    std::cout << "  it has no byte_count: validation on it reports no bits per byte\n";
  return 0;
}

/// Passes all tokens of a range to `work`, and whether they count, in blocks.
template <class Work>
void for_blocks(const data::TokenFile& file, data::TokenFile::Range range, const Work& work) {
  constexpr std::int64_t block_tokens = 1 << 16;
  std::vector<std::int32_t> tokens(block_tokens);
  std::vector<std::uint8_t> counts(block_tokens);
  for (std::int64_t at = range.begin; at < range.end; at += block_tokens) {
    const std::int64_t part = std::min(block_tokens, range.end - at);
    file.read(at, part, tokens.data(), counts.data());
    work(tokens.data(), counts.data(), part);
  }
}

/// Returns the document that contains a token.
std::int64_t document_of(const data::TokenFile& file, std::int64_t token) {
  std::int64_t first = 0, last = file.info().document_count - 1;
  while (first < last) {
    const std::int64_t middle = first + (last - first) / 2;
    if (token < file.document(middle).end)
      last = middle;
    else
      first = middle + 1;
  }
  return first;
}

/// What is printed of tokens that have no text, or that are not to be shown as text.
enum class Numbers { ids, counts };

/// Prints one line per document.
void show_numbers(const data::TokenFile& file, data::TokenFile::Range range, Numbers numbers) {
  if (range.begin == range.end) return;
  for (std::int64_t document = document_of(file, range.begin); range.begin < range.end;
       ++document) {
    const std::int64_t end = std::min(file.document(document).end, range.end);
    const char* between = "";
    for_blocks(file, {range.begin, end},
               [&](const std::int32_t* tokens, const std::uint8_t* counts, std::int64_t count) {
                 for (std::int64_t i = 0; i < count; ++i) {
                   std::cout << between
                             << (numbers == Numbers::ids ? tokens[i] : std::int32_t{counts[i]});
                   between = " ";
                 }
               });
    std::cout << "\n";
    range.begin = end;
  }
}

/// Prints what the ids of a range stand for, as the tokenizer that made them says. `marks_counts`:
/// with brackets around what counts in the loss.
void show_text(const data::TokenFile& file, data::TokenFile::Range range,
               const std::string& tokenizer_path, bool marks_counts) {
  const auto tokenizer = texts::open_tokenizer(tokenizer_path);
  const data::TokenFileInfo& info = file.info();
  require(tokenizer->name() == info.tokenizer, "--tokenizer ", shown(tokenizer_path), " is ",
          tokenizer->name(), "; the ids of '", file.path(), "' are of ", info.tokenizer);
  const bool escapes = isatty(STDOUT_FILENO) != 0;
  const auto stream = tokenizer->stream(false);
  const auto print_text = [&](const std::string& text) {
    std::cout << (escapes ? printable_lines(text) : text);
  };
  constexpr const char *opening = "\xE2\x9F\xA6", *closing = "\xE2\x9F\xA7";  // U+27E6, U+27E7
  bool is_marked = false;
  const auto mark = [&](bool counts) {
    if (!marks_counts || counts == is_marked) return;
    std::cout << (counts ? opening : closing);
    is_marked = counts;
  };
  for_blocks(file, range,
             [&](const std::int32_t* tokens, const std::uint8_t* counts, std::int64_t count) {
               for (std::int64_t i = 0; i < count; ++i) {
                 mark(counts[i] != 0);
                 print_text(stream->next(tokens[i]));
               }
             });
  print_text(stream->finish());
  mark(false);
  std::cout << "\n";
}

/// Prints text unchanged; on a terminal, which could interpret parts of it as control sequences, as
/// printable characters, line by line.
void show_text(const data::TokenFile& file, data::TokenFile::Range range, const char* end_mark) {
  const bool escapes = isatty(STDOUT_FILENO) != 0;
  std::string line;  // the current line so far
  for_blocks(file, range, [&](const std::int32_t* tokens, const std::uint8_t*, std::int64_t count) {
    line += data::ByteTokenizer::decode(tokens, count, end_mark);
    const std::size_t end = escapes ? line.rfind('\n') + 1 : line.size();
    std::cout << (escapes ? printable_lines(line.substr(0, end)) : line.substr(0, end));
    line.erase(0, end);
  });
  std::cout << printable_lines(line) << "\n";
}

struct Show {
  std::optional<std::int64_t> document, begin, count;
  bool ids = false, counts = false;
  std::optional<std::string> tokenizer;
};

int show(const Show& line, const std::string& path) {
  const auto& [document, begin, count, ids, counts, tokenizer] = line;
  const data::TokenFile file(path);
  const data::TokenFileInfo& info = file.info();

  const bool by_range = begin || count;
  data::TokenFile::Range range{begin.value_or(0), 0};
  if (by_range) {
    require(range.begin < info.token_count, "--begin is ", range.begin, "; '", file.path(),
            "' has ", info.token_count, " tokens");
    range.end = range.begin + std::min(count.value_or(256), info.token_count - range.begin);
  } else {
    range = file.document(document.value_or(0));
  }
  if (counts && tokenizer)
    show_text(file, range, *tokenizer, true);
  else if (counts)
    show_numbers(file, range, Numbers::counts);
  else if (tokenizer && (*tokenizer != data::ByteTokenizer::name || info.tokenizer != *tokenizer))
    show_text(file, range, *tokenizer, false);
  else if (ids || info.tokenizer != data::ByteTokenizer::name)
    show_numbers(file, range, Numbers::ids);
  else
    show_text(file, range, by_range ? "<end of text>\n" : "");
  std::cout.flush();
  const bool has_file = info.tokenizer.rfind("tokenizer.", 0) == 0;
  if (!ids && !counts && !tokenizer && has_file)
    std::cerr << program << ": note: these are ids; --tokenizer FOLDER, that of "
              << printable(info.tokenizer) << ", shows their text" << std::endl;
  return 0;
}

}  // namespace

Command info_command() {
  const auto pack = std::make_shared<std::optional<std::int64_t>>();
  return {
      "info",
      "FILE...",
      "prints the header of each token file: tokens, documents, vocabulary, tokenizer; FILE may "
      "be a mixture as data.path takes it, \"0.7 A; 0.3 B\": then its shares, too",
      {{"--pack", "S", integer(*pack, 1),
        "and how full samples are that are packed from whole documents, for a sequence_length "
        "of S"}},
      [pack](const Given& given) {
        for (const std::string& files : given.operands) print_info_of(files, *pack);
        return 0;
      }};
}

Command verify_command() {
  return {"verify", "FILE", "reads all of a token file and checks it", {}, [](const Given& given) {
            return verify(given.operands[0]);
          }};
}

Command show_command() {
  const auto line = std::make_shared<Show>();
  return {"show",
          "FILE",
          "prints its text; where it is not made of bytes, its ids, a line for each document",
          {{"--document", "N", integer(line->document, 0), "document N (0); or"},
           {"--begin", "I", integer(line->begin, 0), "from token I on (0)"},
           {"--count", "N", integer(line->count, 0), "N tokens (256)"},
           {"--tokenizer", "NAME", word(line->tokenizer, "byte, a folder or a file"),
            "the tokenizer that made the ids: their text"},
           {"--ids", "", flag(line->ids), "ids, whatever it is made of; or"},
           {"--counts", "", flag(line->counts),
            "1 for each token that counts in the loss, else 0; with --tokenizer the text, with "
            "\u27E6 \u27E7 "
            "around what counts"}},
          [line](const Given& given) { return show(*line, given.operands[0]); },
          {{"--document", "--begin"},
           {"--document", "--count"},
           {"--ids", "--counts"},
           {"--ids", "--tokenizer"}}};
}

}  // namespace ostrakon::apps::data_program
