// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <optional>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/version.hpp>
#include <ostrakon/data/text_files.hpp>
#include <ostrakon/data/token_file.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <string>
#include <vector>

#include "data_commands.hpp"
#include "output_file.hpp"

namespace ostrakon::apps::data_program {
namespace {

/// Writes a token file from text.
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

/// Lists the first few paths, each with a remark.
std::string few(const std::vector<std::string>& paths,
                const std::function<std::string(std::size_t)>& about) {
  std::string names;
  for (std::size_t i = 0; i < std::min<std::size_t>(paths.size(), 3); ++i)
    names += (i == 0 ? "" : ", ") + std::filesystem::path(paths[i]).filename().string() + about(i);
  return names + (paths.size() > 3 ? ", ..." : "");
}
std::string few(const std::vector<std::string>& paths) {
  return few(paths, [](std::size_t) { return std::string(); });
}

void print_skipped(const char* why, const std::vector<std::string>& paths,
                   const std::vector<data::KnownFormat>& formats = {}) {
  if (paths.empty()) return;
  const auto format = [&](std::size_t i) {
    const bool known = i < formats.size() && !formats[i].what.empty();
    return known ? " (" + formats[i].what + ")" : std::string();
  };
  std::cout << "skipped " << paths.size() << " " << why
            << (paths.size() == 1 ? " file: " : " files: ") << printable(few(paths, format))
            << "\n";
}

/// Warns of files that may contain text, but were not read.
void warn_of_hidden_text(const data::TextFiles& files) {
  constexpr int most = 3;
  int found = 0;
  for (std::size_t i = 0; i < files.binary.size(); ++i) {
    const data::KnownFormat& format = files.formats[i];
    if (format.advice.empty() || ++found > most) continue;
    warn(text("'", files.binary[i], "' is ", format.what, ", and was skipped; ", format.advice));
  }
  if (found > most) warn(text("and ", found - most, " more such files"));
}

/// Warns of text that becomes tokens unchanged, but is perhaps not intended.
void warn_of_odd_text(const data::TextFiles& files) {
  for (const std::string& model : files.models)
    warn(text("'", model, "' holds a model; its config.json and the like are read as text"));
  if (!files.json_lines.empty())
    warn(text(counted(static_cast<std::int64_t>(files.json_lines.size()), "file"),
              " of JSON lines, ", few(files.json_lines),
              ": braces, names of fields and escapes such as \\n become tokens. To train on a "
              "field alone, write that out first: jq -r .text"));
  if (!files.with_utf8_mark.empty())
    warn(text("a byte-order mark (EF BB BF) begins ",
              counted(static_cast<std::int64_t>(files.with_utf8_mark.size()), "file"), ", ",
              few(files.with_utf8_mark),
              ": its three bytes become tokens. Without it: sed -i '1s/^\\xEF\\xBB\\xBF//'"));
}

/// Throws Error if a model was named, or if there are only models.
void require_no_model(const std::vector<std::string>& arguments, const data::TextFiles& files) {
  for (const std::string& model : files.models) {
    const bool is_named = std::any_of(arguments.begin(), arguments.end(),
                                      [&](const auto& name) { return are_same(name, model); });
    const bool is_all = std::all_of(files.paths.begin(), files.paths.end(), [&](const auto& path) {
      return are_same(parent_folder(path), model);
    });
    require(!is_named && !is_all, "'", model,
            "' holds a model (config.json and its weights); expected text. To train that model "
            "name it as checkpoint.initial_weights");
  }
}

data::TextFiles find_files(const std::vector<std::string>& arguments) {
  data::TextFiles files = data::find_text_files(arguments);
  require_no_model(arguments, files);
  print_skipped("binary", files.binary, files.formats);
  print_skipped("empty", files.empty);
  print_skipped("duplicate", files.duplicate);
  print_skipped("Git LFS pointer", files.pointers);
  if (files.paths.empty() && !files.binary.empty() && !files.formats[0].what.empty())
    throw Error(text("no text files among what was named: '", files.binary[0], "' is ",
                     files.formats[0].what, files.formats[0].advice.empty() ? "" : "; ",
                     files.formats[0].advice));
  require(!files.paths.empty(), "no text files among what was named",
          files.pointers.empty() ? ""
                                 : "; `git lfs pull` in their repository fetches the files in "
                                   "place of which Git LFS pointers are there");
  warn_of_hidden_text(files);
  warn_of_odd_text(files);
  return files;
}

/// Returns --validation-fraction. A positive fraction below 1e-9 is refused, as it would select no
/// document; 0 says so explicitly.
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

}  // namespace

void build(int argc, char** argv) {
  const CommandLine arguments(
      program, argc, argv,
      {"--output", "--validation-fraction", "--separator", "--tokenizer", "--seed"},
      {"--overwrite"});
  require_utf8_arguments(argc, argv);
  const std::string output =
      output_option(arguments, "build needs --output PREFIX", "the beginning of names, such as ");
  const std::string tokenizer = arguments.text_option("--tokenizer").value_or("byte");
  require(tokenizer == data::ByteTokenizer::name, "--tokenizer is '", tokenizer,
          "'; build knows byte only. Tokens of any other tokenizer come in as ids: write them with "
          "its own program, then `ostrakon-data import` (docs/token-files.md)");
  require(!arguments.files().empty(), "build needs at least one text file or folder");

  data::CorpusSettings settings;
  settings.separator = arguments.text_option("--separator");
  settings.seed = arguments.integer_option<std::uint64_t>("--seed").value_or(1);
  settings.validation_fraction = validation_fraction(arguments);
  const bool validates = settings.validation_fraction > 0.0;
  const std::string training_path = output + "-train.h5";
  const std::string validation_path = output + "-validation.h5";
  const bool overwrite = arguments.flag("--overwrite");
  require_free_name(training_path, overwrite);
  if (validates) require_free_name(validation_path, overwrite);
  settings.paths = find_files(arguments.files()).paths;

  const Stopwatch clock;
  const data::Provenance provenance{arguments.files(), text("ostrakon-data ", version()),
                                    join(argc, argv)};
  make_parent_folder(training_path);

  std::optional<TokenSink> training, validation;
  data::split_corpus(settings, [&] {
    training.emplace(training_path, provenance);
    if (!validates) return data::SplitCorpus{training->sink(), {}};
    validation.emplace(validation_path, provenance);
    return data::SplitCorpus{training->sink(), validation->sink()};
  });
  // Both files are completed before either gets its name, so that there is a pair or nothing.
  training->writer().complete();
  if (validates) validation->writer().complete();
  training->writer().finish();
  if (validates) validation->writer().finish();

  std::cout << "read " << counted(static_cast<std::int64_t>(settings.paths.size()), "file")
            << " in " << rounded(clock.seconds()) << " s; wrote\n";
  print_written(training_path, training->writer());
  if (validates) print_written(validation_path, validation->writer());
  std::cout << "\nnext, look at the text, then train on it:\n"
            << "  ostrakon-data show " << printable(training_path) << "\n"
            << "  mpiexec -n 2 ostrakon-train DECK --set data.path=" << printable(training_path);
  if (validates) std::cout << " --set data.validation_path=" << printable(validation_path);
  std::cout << "\n";
}

}  // namespace ostrakon::apps::data_program
