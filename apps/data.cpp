// SPDX-License-Identifier: Apache-2.0

// ostrakon-data: turns text into token files, and looks into them.

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/data/text_files.hpp>
#include <ostrakon/data/token_file.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "command_line.hpp"

namespace {

using namespace ostrakon;
using apps::CommandLine;

constexpr const char* usage =
    R"(usage: ostrakon-data build --output PREFIX [options] FILE_OR_FOLDER...
       ostrakon-data import --vocabulary V --output FILE [options] RAW
       ostrakon-data info FILE
       ostrakon-data verify FILE
       ostrakon-data show FILE [--document N | --begin I --count N]

build   turns text files into PREFIX-train.h5 and PREFIX-validation.h5
    --output PREFIX            where to write; folders on the way are made
    --validation-fraction F    share of the documents held out; 0: none (default 0.05)
    --separator LINE           documents end at lines that equal LINE; without it, each file is one
    --tokenizer byte           one token for each byte of text (default)
    --seed N                   of the split (default 1)
import  turns RAW, token ids that another tokenizer wrote one after another as little-endian
        numbers, into the token file FILE
    --vocabulary V             every id is less than V
    --dtype uint16|uint32      of RAW's numbers (default: the smaller one that V fits in)
    --end-of-text ID           each ID ends a document; without it, all of RAW is one
    --output FILE              where to write; folders on the way are made
info    prints what a token file says of itself
verify  reads all of a token file and checks it
show    prints its text: document N (default 0), or N tokens from token I on

--help and --version print and leave.
)";

std::string join(int argc, char** argv) {
  std::string joined;
  for (int i = 0; i < argc; ++i) joined += (i == 0 ? "" : " ") + std::string(argv[i]);
  return joined;
}

// --- build ---------------------------------------------------------------------------------------

/// A writer whose text comes from a corpus.
class TokenSink {
 public:
  TokenSink(const std::string& path, const data::Provenance& provenance)
      : writer_(path, data::ByteTokenizer::name, data::ByteTokenizer::vocabulary, provenance) {}

  data::DocumentSink sink() {
    return {[this](std::string_view piece) {
              tokens_.clear();
              data::ByteTokenizer::encode(piece, tokens_);
              writer_.append(tokens_.data(), static_cast<std::int64_t>(tokens_.size()));
              writer_.add_text_bytes(static_cast<std::int64_t>(piece.size()));
            },
            [this] {
              constexpr std::int32_t end_of_text = data::ByteTokenizer::end_of_text;
              writer_.append(&end_of_text, 1);
              writer_.end_document();
            }};
  }
  data::TokenFileWriter& writer() { return writer_; }

 private:
  data::TokenFileWriter writer_;
  std::vector<std::int32_t> tokens_;
};

void print_skipped(const char* why, const std::vector<std::string>& paths) {
  if (paths.empty()) return;
  std::cout << "skipped " << paths.size() << " " << why
            << (paths.size() == 1 ? " file: " : " files: ");
  for (std::size_t i = 0; i < std::min<std::size_t>(paths.size(), 3); ++i) {
    std::cout << (i == 0 ? "" : ", ") << std::filesystem::path(paths[i]).filename().string();
  }
  std::cout << (paths.size() > 3 ? ", ...\n" : "\n");
}

data::TextFiles find_files(const std::vector<std::string>& arguments) {
  data::TextFiles files = data::find_text_files(arguments);
  print_skipped("binary", files.binary);
  print_skipped("empty", files.empty);
  print_skipped("duplicate", files.duplicate);
  require(!files.paths.empty(), "no text files among what was named");
  return files;
}

std::string rounded(double value) {
  std::ostringstream stream;
  stream.precision(4);
  stream << value;
  return stream.str();
}

std::string counted(std::int64_t count, const std::string& noun) {
  return format_count(count) + " " + noun + (count == 1 ? "" : "s");
}

void print_written(const std::string& path, const data::TokenFileWriter& writer) {
  std::cout << "  " << path << ": " << counted(writer.document_count(), "document") << ", "
            << counted(writer.token_count(), "token");
  if (writer.byte_count() > 0) std::cout << ", " << format_bytes(writer.byte_count()) << " of text";
  std::cout << "\n";
}

void make_parent_folder(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (parent.empty()) return;
  std::error_code failure;
  std::filesystem::create_directories(parent, failure);
  require(!failure, "can't make folder '", parent.string(), "': ", failure.message());
}

std::string output_option(const CommandLine& arguments, const std::string& missing,
                          const std::string& ending) {
  const std::string output = arguments.text_option("--output").value_or("");
  require(!output.empty(), missing);
  require(output.back() != '/', "--output is '", output, "', a folder; expected ", ending, "'",
          output, "NAME'");
  return output;
}

/// Below the least a double says nothing of documents, and zero would mean none.
double validation_fraction(const CommandLine& arguments) {
  constexpr double least = 1e-9;
  const std::string name = "--validation-fraction";
  const double fraction = arguments.number_option(name).value_or(0.05);
  const std::string written = arguments.text_option(name).value_or("");
  const std::string digits = written.substr(0, written.find_first_of("eE"));
  const bool zero = digits.find_first_of("123456789") == std::string::npos;
  require(fraction >= 0.0 && fraction < 1.0, name, " is ", written,
          "; expected at least 0 and less than 1");
  require(fraction >= least || (fraction == 0.0 && zero), name, " is ", written,
          "; expected 0, or ", least, " and more");
  return fraction;
}

void build(int argc, char** argv) {
  const CommandLine arguments(
      "ostrakon-data", argc, argv,
      {"--output", "--validation-fraction", "--separator", "--tokenizer", "--seed"});
  const std::string output =
      output_option(arguments, "build needs --output PREFIX", "the beginning of names, such as ");
  const std::string tokenizer = arguments.text_option("--tokenizer").value_or("byte");
  require(tokenizer == data::ByteTokenizer::name, "--tokenizer is '", tokenizer,
          "'; expected byte");
  require(!arguments.files().empty(), "build needs at least one text file or folder");

  data::CorpusSettings settings;
  settings.separator = arguments.text_option("--separator");
  settings.seed = arguments.integer_option<std::uint64_t>("--seed").value_or(1);
  settings.validation_fraction = validation_fraction(arguments);
  settings.paths = find_files(arguments.files()).paths;

  const auto begin = std::chrono::steady_clock::now();
  const data::Provenance provenance{arguments.files(), "ostrakon-data " OSTRAKON_VERSION,
                                    join(argc, argv)};
  const std::string training_path = output + "-train.h5";
  const std::string validation_path = output + "-validation.h5";
  const bool validates = settings.validation_fraction > 0.0;
  make_parent_folder(training_path);

  std::optional<TokenSink> training, validation;
  data::split_corpus(settings, [&] {
    training.emplace(training_path, provenance);
    if (!validates) return data::SplitCorpus{training->sink(), {}};
    validation.emplace(validation_path, provenance);
    return data::SplitCorpus{training->sink(), validation->sink()};
  });
  // A pair, or nothing: no file has its name before both are good.
  training->writer().complete();
  if (validates) validation->writer().complete();
  training->writer().finish();
  if (validates) validation->writer().finish();

  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::cout << "read " << counted(static_cast<std::int64_t>(settings.paths.size()), "file")
            << " in " << rounded(seconds.count()) << " s; wrote\n";
  print_written(training_path, training->writer());
  if (validates) print_written(validation_path, validation->writer());
  std::cout << "\nnext, look at the text, then train on it:\n"
            << "  ostrakon-data show " << training_path << "\n"
            << "  mpiexec -n 2 ostrakon-train DECK --set data.path=" << training_path;
  if (validates) std::cout << " --set data.validation_path=" << validation_path;
  std::cout << "\n";
}

// --- import --------------------------------------------------------------------------------------

/// Adds `count` little-endian numbers of `bytes` bytes each; `end` ends a document.
void append_raw(const std::vector<unsigned char>& raw, std::size_t bytes,
                std::optional<std::int64_t> end, data::TokenFileWriter& writer) {
  std::vector<std::int32_t> document;
  for (std::size_t at = 0; at < raw.size(); at += bytes) {
    std::uint32_t token = 0;
    for (std::size_t byte = bytes; byte-- > 0;) token = token << 8 | raw[at + byte];
    document.push_back(static_cast<std::int32_t>(token));
    if (end != token) continue;
    writer.append(document.data(), static_cast<std::int64_t>(document.size()));
    writer.end_document();
    document.clear();
  }
  writer.append(document.data(), static_cast<std::int64_t>(document.size()));
}

void read_raw(const std::string& path, std::size_t bytes, std::optional<std::int64_t> end,
              data::TokenFileWriter& writer) {
  std::ifstream stream(path, std::ios::binary);
  constexpr std::size_t block_bytes = 1 << 20;
  std::vector<unsigned char> block;
  do {
    block.resize(block_bytes);
    stream.read(reinterpret_cast<char*>(block.data()), block_bytes);
    require(!stream.bad() && (stream.good() || stream.eof()), "can't read '", path, "'");
    block.resize(static_cast<std::size_t>(stream.gcount()));
    require(block.size() % bytes == 0, "'", path, "' ends inside a number of ", bytes, " bytes");
    append_raw(block, bytes, end, writer);
  } while (!stream.eof());
}

std::size_t raw_bytes(const CommandLine& arguments, std::int64_t vocabulary) {
  const std::string type =
      arguments.text_option("--dtype").value_or(vocabulary <= 1 << 16 ? "uint16" : "uint32");
  require(type == "uint16" || type == "uint32", "--dtype is '", type,
          "'; expected uint16 or uint32");
  return type == "uint16" ? 2 : 4;
}

void import_tokens(int argc, char** argv) {
  const CommandLine arguments("ostrakon-data", argc, argv,
                              {"--output", "--vocabulary", "--dtype", "--end-of-text"});
  const std::string output =
      output_option(arguments, "import needs --output FILE", "a file, such as ");
  const auto vocabulary = arguments.integer_option<std::int64_t>("--vocabulary");
  require(vocabulary.has_value(), "import needs --vocabulary V");
  require(*vocabulary >= 1 && *vocabulary <= std::numeric_limits<std::int32_t>::max(),
          "--vocabulary is ", *vocabulary, "; expected 1 to ",
          std::numeric_limits<std::int32_t>::max());
  const auto end = arguments.integer_option<std::int64_t>("--end-of-text");
  require(end.value_or(0) >= 0 && end.value_or(0) < *vocabulary, "--end-of-text is ",
          end.value_or(0), "; expected a token of the vocabulary, 0 to ", *vocabulary - 1);
  const std::size_t bytes = raw_bytes(arguments, *vocabulary);
  require(arguments.files().size() == 1, "import takes one file of raw tokens; found ",
          arguments.files().size());
  const std::string& raw = arguments.files()[0];
  std::error_code ignored;
  require(std::filesystem::exists(raw, ignored), "'", raw, "' does not exist");
  require(std::filesystem::is_regular_file(raw, ignored), "'", raw, "' is not a plain file");
  require(!std::filesystem::equivalent(raw, output, ignored), "--output is the file to read, '",
          raw, "'");

  make_parent_folder(output);
  data::TokenFileWriter writer(output, "external", *vocabulary,
                               {{raw}, "ostrakon-data " OSTRAKON_VERSION, join(argc, argv)});
  read_raw(raw, bytes, end, writer);
  writer.finish();
  std::cout << "wrote\n";
  print_written(output, writer);
}

// --- info, verify, show --------------------------------------------------------------------------

void info(int argc, char** argv) {
  const CommandLine arguments("ostrakon-data", argc, argv, {});
  const std::string& path = arguments.one_file("info", "token file");
  const data::TokenFile file(path);
  const data::TokenFileInfo& info = file.info();
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(path));
  const double stored_bits =
      8.0 * static_cast<double>(bytes) / static_cast<double>(info.token_count);

  std::cout << path << "\n"
            << "  format        ostrakon-tokens 1\n"
            << "  tokenizer     " << info.tokenizer << "\n"
            << "  vocabulary    " << format_count(info.vocabulary) << "\n"
            << "  tokens        " << format_count(info.token_count) << "\n"
            << "  documents     " << format_count(info.document_count) << "\n"
            << "  text          "
            << (info.byte_count ? format_count(*info.byte_count) + " bytes, " +
                                      rounded(*info.bytes_per_token()) + " a token\n"
                                : "of unknown length\n")
            << "  stored as     " << info.stored_as << ", " << format_bytes(bytes) << ", "
            << rounded(stored_bits) << " bits a token\n"
            << "  checksum      " << info.checksum << " (XXH3)\n"
            << "  created       " << info.created << " by " << info.program << "\n"
            << "  command line  " << info.command_line << "\n";
  std::istringstream sources(info.sources);
  const char* label = "  sources       ";
  for (std::string source; std::getline(sources, source); label = "                ") {
    std::cout << label << source << "\n";
  }
}

void verify(int argc, char** argv) {
  const CommandLine arguments("ostrakon-data", argc, argv, {});
  const data::TokenFile file(arguments.one_file("verify", "token file"));
  file.verify();
  std::cout << file.path() << " is sound: " << counted(file.info().token_count, "token") << " in "
            << counted(file.info().document_count, "document") << "\n";
}

void show(int argc, char** argv) {
  const CommandLine arguments("ostrakon-data", argc, argv, {"--document", "--begin", "--count"});
  const auto document = arguments.integer_option<std::int64_t>("--document");
  const auto begin = arguments.integer_option<std::int64_t>("--begin");
  const auto count = arguments.integer_option<std::int64_t>("--count");
  require(!document || (!begin && !count), "--document goes without --begin and --count");
  const data::TokenFile file(arguments.one_file("show", "token file"));
  const data::TokenFileInfo& info = file.info();
  require(info.tokenizer == data::ByteTokenizer::name, "token file '", file.path(),
          "' was made with the tokenizer '", info.tokenizer, "'; show knows byte");

  const bool by_range = begin || count;
  data::TokenFile::Range range{begin.value_or(0), 0};
  if (by_range) {
    require(range.begin >= 0 && range.begin < info.token_count, "--begin is ", range.begin, "; '",
            file.path(), "' has ", info.token_count, " tokens");
    require(count.value_or(0) >= 0, "--count is ", *count, "; expected 0 or more");
    range.end = range.begin + std::min(count.value_or(256), info.token_count - range.begin);
  } else {
    range = file.document(document.value_or(0));
  }

  constexpr std::int64_t block_tokens = 1 << 16;
  std::vector<std::int32_t> tokens(block_tokens);
  for (std::int64_t at = range.begin; at < range.end; at += block_tokens) {
    const std::int64_t part = std::min(block_tokens, range.end - at);
    file.read(at, part, tokens.data());
    std::cout << data::ByteTokenizer::decode(tokens.data(), part,
                                             by_range ? "<end of text>\n" : "");
  }
  std::cout << "\n";
}

void run(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--") break;
    if (argument == "--help" || argument == "-h") {
      std::cout << usage;
      return;
    }
    if (argument == "--version") {
      std::cout << "ostrakon-data " OSTRAKON_VERSION "\n";
      return;
    }
  }
  const std::string command = argc > 1 ? argv[1] : "";
  require(!command.empty(),
          "no command; expected build, import, info, verify or show (see --help)");
  if (command == "build") return build(argc, argv);
  if (command == "import") return import_tokens(argc, argv);
  if (command == "info") return info(argc, argv);
  if (command == "verify") return verify(argc, argv);
  if (command == "show") return show(argc, argv);
  throw Error(
      text("unknown command '", command, "'; expected build, import, info, verify or show"));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
    std::cout.flush();
    require(std::cout.good(), "can't write to the standard output");
  } catch (const std::exception& error) {
    std::cerr << "ostrakon-data: error: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
