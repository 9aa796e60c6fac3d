// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/data/text_files.hpp>
#include <ostrakon/data/tokenizer.hpp>

#include "../common/output_file.hpp"
#include "commands.hpp"

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
  std::cout << "skipped " << counted(static_cast<std::int64_t>(paths.size()), text(why, " file"))
            << ": " << printable(few(paths, format)) << "\n";
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

/// A positive fraction below 1e-9 is refused, as it would select no document; 0 says so explicitly.
Value fraction(double& to) {
  return {[&to](const std::string& value) {
    const auto number = read_number(value, 0.0, 1.0);
    const bool is_good = number && *number < 1.0 && (*number == 0.0 || *number >= 1e-9);
    if (is_good) to = *number;
    return is_good ? "" : "0, or a number from 1e-9 to less than 1";
  }};
}

Value known_tokenizer() {
  return {[](const std::string& value) {
    return value == data::ByteTokenizer::name
               ? ""
               : "byte. Tokens of any other tokenizer come in as ids: write them with its own "
                 "program, then `ostrakon-data import` (docs/token-files.md)";
  }};
}

struct Build {
  Written output;
  data::CorpusSettings settings;
};

int build(const Build& line, const Given& given) {
  const data::Provenance provenance = provenance_of(given);
  data::CorpusSettings settings = line.settings;
  const bool validates = settings.validation_fraction > 0.0;
  const std::string training_path = line.output.path + "-train.h5";
  const std::string validation_path = line.output.path + "-validation.h5";
  require_free_name(training_path, line.output.overwrite);
  if (validates) require_free_name(validation_path, line.output.overwrite);
  settings.paths = find_files(given.operands).paths;

  const Stopwatch clock;
  make_folder(parent_folder(training_path));

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
  return 0;
}

}  // namespace

Command build_command() {
  const auto line = std::make_shared<Build>();
  std::vector<Option> options = output_options(line->output, "PREFIX", "the beginning of names");
  options.insert(
      options.end(),
      {{"--validation-fraction", "F", fraction(line->settings.validation_fraction),
        "share of the documents held out; 0: none (0.05)"},
       {"--separator", "LINE", any_text(line->settings.separator),
        "documents end at lines that equal LINE; without it, each file is one"},
       {"--tokenizer", "byte", known_tokenizer(), "one token for each byte of text (default)"},
       {"--seed", "N", integer(line->settings.seed, 0), "of the split (1)"}});
  return {"build", "FILE_OR_FOLDER...",
          "turns text files into PREFIX-train.h5 and PREFIX-validation.h5", options,
          [line](const Given& given) { return build(*line, given); }};
}

}  // namespace ostrakon::apps::data_program
