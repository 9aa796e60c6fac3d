// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/checkpoint/json_file.hpp>
#include <ostrakon/text/sources/document_encoder.hpp>
#include <ostrakon/text/sources/ordered_parallel.hpp>
#include <ostrakon/text/tokenizer.hpp>
#include <ostrakon/text/tokenizers/tokenizer_trainer.hpp>
#include <ostrakon/text/utf8.hpp>

#include "../common/output_file.hpp"
#include "commands.hpp"
#include "sources.hpp"

namespace ostrakon::apps::data_program {
namespace {

struct TrainTokenizer {
  Written output;
  std::int64_t vocabulary = 0;
  texts::WordPattern pattern = texts::WordPattern::llama3;
  texts::SpecialTokens special = {"<|endoftext|>", "", {}};
  std::int64_t least_occurrences = 1;
  std::optional<std::string> separator, field;
  std::optional<int> workers;
};

/// Words of sources, counted by several threads.
class WordReader {
 public:
  WordReader(const TrainTokenizer& line, const std::vector<texts::Source>& sources)
      : line_(line), sources_(sources) {
    const int cores = static_cast<int>(std::max<std::size_t>(allowed_cores().size(), 1));
    workers_.reserve(static_cast<std::size_t>(line.workers.value_or(cores)));
    for (int worker = 0; worker < line.workers.value_or(cores); ++worker)
      workers_.push_back({texts::WordCutter(line.pattern), {}});
  }

  texts::WordCounts read() {
    texts::ReadSettings settings;
    settings.sources = sources_;
    settings.separator = line_.separator;
    settings.columns.field = line_.field.value_or("text");
    std::atomic<bool> is_stopped{false};
    texts::RecordReader reader(settings, {}, [&] { return is_stopped.load(); });
    texts::OrderedParallel<texts::Portion, Done>(
        static_cast<int>(workers_.size()),
        [&](texts::Portion& portion) { return reader.next(portion); },
        [&](int worker, texts::Portion& portion) { return count(portion, workers_[worker]); },
        is_stopped)
        .run([&](Done& done) {
          documents_ += done.documents;
          text_bytes_ += done.text_bytes;
        });
    texts::WordCounts words = std::move(workers_[0].words);
    for (std::size_t worker = 1; worker < workers_.size(); ++worker) {
      words.add(workers_[worker].words);
      workers_[worker].words = {};
    }
    return words;
  }

  std::int64_t documents() const { return documents_; }
  std::int64_t text_bytes() const { return text_bytes_; }

 private:
  struct Worker {
    texts::WordCutter cutter;
    texts::WordCounts words;
  };
  struct Done {
    std::int64_t documents = 0, text_bytes = 0;
  };

  Done count(const texts::Portion& portion, Worker& worker) const {
    Done done;
    for (const texts::Stretch& stretch : portion.stretches) {
      const std::string_view bytes =
          std::string_view(portion.bytes).substr(stretch.begin, stretch.end - stretch.begin);
      const texts::Source& source = sources_[stretch.source];
      const bool is_json = source.kind == texts::SourceKind::json_lines;
      if (is_json && texts::is_blank(bytes)) continue;
      try {
        done.text_bytes += count_text(
            is_json ? texts::text_of_record(bytes, *line_.field) : std::string(bytes), worker);
      } catch (const Error& error) {
        throw Error(text(texts::place_of(source, stretch.line), ": ", error.what()));
      }
      ++done.documents;
    }
    return done;
  }

  static std::int64_t count_text(const std::string& document, Worker& worker) {
    const std::size_t valid = texts::valid_utf8(document);
    require(valid == document.size(), "byte ", valid + 1,
            " of the document that begins there is not UTF-8");
    worker.cutter.count(document, worker.words);
    return static_cast<std::int64_t>(document.size());
  }

  const TrainTokenizer& line_;
  const std::vector<texts::Source>& sources_;
  std::vector<Worker> workers_;
  std::int64_t documents_ = 0, text_bytes_ = 0;
};

void write_json(const std::string& path, const nlohmann::ordered_json& json) {
  checkpoint::write_text_file(path, "tokenizer", json.dump(2) + "\n");
}

int train_tokenizer(const TrainTokenizer& line, const Given& given) {
  const std::filesystem::path folder(line.output.path);
  const std::string tokenizer_path = (folder / "tokenizer.json").string();
  const std::string config_path = (folder / "tokenizer_config.json").string();
  require_free_name(tokenizer_path, line.output.overwrite);
  require_free_name(config_path, line.output.overwrite);
  texts::BpeTraining training;
  training.vocabulary = line.vocabulary;
  training.special = line.special.all();
  training.least_occurrences = line.least_occurrences;
  texts::require_trainable(training);

  const std::vector<texts::Source> sources = find_sources(given.operands, line.field);
  const Stopwatch clock;
  WordReader reader(line, sources);
  const texts::WordCounts words = reader.read();
  require(words.size() > 0, "no text found");
  std::cout << "read " << counted(reader.documents(), "document") << ", "
            << format_bytes(reader.text_bytes()) << " of text with "
            << counted(static_cast<std::int64_t>(words.size()), "different word") << ", in "
            << rounded(clock.seconds()) << " s" << std::endl;

  const Stopwatch merge_clock;
  const texts::TrainedBpe bpe = texts::train_bpe(words, training);
  const auto tokens = static_cast<std::int64_t>(bpe.tokens.size());
  if (tokens < line.vocabulary)
    warn(text("the text gives ", tokens, " tokens, not the ", line.vocabulary,
              " of --vocabulary: no other pair of tokens occurs ",
              line.least_occurrences > 1 ? text(line.least_occurrences, " times") : "in it"));

  make_folder(line.output.path);
  write_json(config_path, texts::tokenizer_config(line.special));
  write_json(tokenizer_path, texts::tokenizer_json(line.pattern, line.special, bpe));
  std::cout << "merged in " << rounded(merge_clock.seconds()) << " s; wrote\n  "
            << printable(tokenizer_path) << ": " << counted(tokens, "token") << ", "
            << texts::open_tokenizer(line.output.path)->name() << "\n  " << printable(config_path)
            << "\n\nnext, turn text into its tokens:\n  ostrakon-data build --tokenizer "
            << printable(line.output.path) << " --output PREFIX FILE_OR_FOLDER...\n";
  return 0;
}

Value more_tokens(std::vector<std::string>& to) {
  Value value = words(to, "the text of a token");
  value.is_any_text = true;
  return value;
}

}  // namespace

Command train_tokenizer_command() {
  const auto line = std::make_shared<TrainTokenizer>();
  std::vector<Option> options = output_options(line->output, "FOLDER", "a folder");
  options.insert(
      options.begin(),
      {"--vocabulary", "N", required(integer(line->vocabulary, 257, 1 << 24)),
       "number of tokens: 256 for bytes, the special ones, and what is learned from the text"});
  options.insert(
      options.end(),
      {{"--pattern", "NAME", choice(line->pattern, texts::word_pattern_names),
        "how text is cut into words, as these models do it: gpt2, llama3, qwen2 or o200k "
        "(llama3)"},
       {"--end", "TOKEN", word(line->special.end, "the text of a token"),
        "special token that ends a text (<|endoftext|>)"},
       {"--begin", "TOKEN", word(line->special.begin, "the text of a token"),
        "special token that begins a text (none)"},
       {"--special", "TOKEN", more_tokens(line->special.others),
        "another special token, such as one that begins a turn of a chat; may be repeated"},
       {"--least-occurrences", "N", integer(line->least_occurrences, 1),
        "tokens occur at least N times in the text (1)"},
       heading("documents"),
       separator_option(line->separator),
       field_option(line->field),
       heading("running"),
       {"--workers", "N", integer(line->workers, 1, 4096),
        "threads that read words; the tokenizer is the same with any number (all cores)"}});
  return {"train-tokenizer",
          "FILE_OR_FOLDER...",
          "learns a byte-level BPE tokenizer from text and writes it into FOLDER, as a "
          "tokenizer.json that Hugging Face's libraries read, too",
          options,
          [line](const Given& given) { return train_tokenizer(*line, given); },
          {{"--separator", "--field"}}};
}

}  // namespace ostrakon::apps::data_program
