// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/files/input.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <ostrakon/text/chat_template.hpp>
#include <ostrakon/text/sources/corpus.hpp>

#include "../common/output_file.hpp"
#include "commands.hpp"
#include "progress.hpp"
#include "sources.hpp"

namespace ostrakon::apps::data_program {
namespace {

using Json = nlohmann::json;

/// A positive fraction below 1e-9 is refused, as it would select no document; 0 says so explicitly.
Value fraction(double& to) {
  return {[&to](const std::string& value) {
    const auto number = read_number(value, 0.0, 1.0);
    const bool is_good = number && *number < 1.0 && (*number == 0.0 || *number >= 1e-9);
    if (is_good) to = *number;
    return is_good ? "" : "0, or a number from 1e-9 to less than 1";
  }};
}

/// The id that a command line names by a number or by its text; nothing for "none".
std::vector<std::int32_t> ids_of(const texts::Tokenizer& tokenizer, const std::string& option,
                                 const std::string& value) {
  if (value == "none") return {};
  std::int64_t id = -1;
  const char* const end = value.data() + value.size();
  const auto [stopped, failure] = std::from_chars(value.data(), end, id);
  if (failure != std::errc() || stopped != end) id = tokenizer.id_of(value).value_or(-1);
  require(id >= 0 && id < tokenizer.vocabulary(), option, " ", shown(value),
          ": expected none, a token of the tokenizer ", tokenizer.name(), ", or an id from 0 to ",
          tokenizer.vocabulary() - 1);
  const bool is_byte = tokenizer.name() == data::ByteTokenizer::name;
  require(!is_byte || id >= data::ByteTokenizer::end_of_text, option, " ", shown(value),
          ": is a byte of text; expected none or ", data::ByteTokenizer::end_of_text);
  return {static_cast<std::int32_t>(id)};
}

struct Build {
  Written output;
  std::string tokenizer = data::ByteTokenizer::name;
  std::optional<std::string> separator, field, chat_template, begin, end;
  bool chats = false, pairs = false, finds_special = false, resumes = false;
  std::int64_t longest_pair = 0;
  double validation_fraction = 0.05;
  std::uint64_t seed = 1;
  std::optional<int> workers;
  std::int64_t most_bad = 0;

  /// Whether records of JSON become text as chats do.
  bool reads_chats() const { return chats || pairs; }
  /// The field of JSON that is read; none where files are text.
  std::optional<std::string> json_field() const {
    return reads_chats() && !field ? "messages" : field;
  }
  bool validates() const { return validation_fraction > 0.0; }
  std::string training_path() const { return output.path + "-train.h5"; }
  std::string validation_path() const { return output.path + "-validation.h5"; }
  std::string store_folder() const { return output.path + ".partial"; }
};

texts::EncodeSettings encode_settings(const Build& line, const texts::Tokenizer& tokenizer) {
  texts::EncodeSettings settings;
  const texts::Tokenizer::Around around = tokenizer.around();
  settings.field = line.json_field().value_or("");
  settings.chats = line.reads_chats();
  settings.pairs = line.pairs;
  settings.longest_pair = line.longest_pair;
  settings.before = around.before;
  settings.after = around.after;
  const std::optional<std::int32_t> end = tokenizer.end();
  if (end && std::count(around.after.begin(), around.after.end(), *end) == 0)
    settings.after.push_back(*end);
  if (line.begin) settings.before = ids_of(tokenizer, "--begin", *line.begin);
  if (line.end) settings.after = ids_of(tokenizer, "--end", *line.end);
  settings.finds_special = line.finds_special;
  if (settings.before.empty() && settings.after.empty() && !line.end)
    warn(text("the tokenizer ", tokenizer.name(), " names no token that ends a text: nothing ",
              line.reads_chats() ? "ends completions that are texts" : "separates documents",
              ", unless --end does"));
  return settings;
}

/// The folder of a tokenizer, with the files beside it.
std::string folder_of(const std::string& tokenizer) {
  return is_there(tokenizer) && is_folder(tokenizer) ? tokenizer : parent_folder(tokenizer);
}

/// The files of which chats become text, with their times: the template, and what names the special
/// tokens that it reads.
Json template_files(const Build& line) {
  Json files = Json::array();
  if (!line.reads_chats()) return files;
  const std::string folder = folder_of(line.tokenizer) + "/";
  std::vector<std::string> paths;
  if (line.tokenizer != data::ByteTokenizer::name)
    paths = {folder + "chat_template.jinja", folder + "additional_chat_templates/tool_use.jinja",
             folder + "chat_template.json", folder + "tokenizer_config.json"};
  if (line.chat_template) paths.push_back(*line.chat_template);
  for (const std::string& path : paths) {
    if (!is_there(path)) continue;
    const auto file = texts::Source::of(path, texts::SourceKind::text);
    files.push_back(
        {{"path", printable(path)}, {"bytes", file.bytes}, {"modified", file.modified}});
  }
  return files;
}

/// Whether a file beside the tokenizer has a chat template.
bool has_template(const std::string& folder) {
  constexpr std::size_t most_bytes = std::size_t{1} << 28;
  const std::string config = folder + "/tokenizer_config.json";
  return is_there(folder + "/chat_template.jinja") || is_there(folder + "/chat_template.json") ||
         (is_there(config) &&
          read_text(config, most_bytes).find("\"chat_template\"") != std::string::npos);
}

/// The chat template beside a tokenizer; null where there is none, or none is needed.
std::unique_ptr<texts::ChatTemplate> open_template(const Build& line) {
  if (line.chat_template)
    return std::make_unique<texts::ChatTemplate>(
        texts::ChatTemplate::of_file(*line.chat_template, folder_of(line.tokenizer)));
  const bool may_be_there = line.reads_chats() && line.tokenizer != data::ByteTokenizer::name;
  if (!may_be_there || !has_template(folder_of(line.tokenizer))) return nullptr;
  return std::make_unique<texts::ChatTemplate>(
      texts::ChatTemplate::of_folder(folder_of(line.tokenizer)));
}

/// Says where no chat template was found.
std::string no_template(const Build& line) {
  const std::string advice = "; expected --chat-template FILE";
  if (line.tokenizer == data::ByteTokenizer::name)
    return "the tokenizer byte has no chat template" + advice;
  return text("'", folder_of(line.tokenizer), "' has no chat template: neither ",
              "chat_template.jinja nor `chat_template` in tokenizer_config.json or ",
              "chat_template.json", advice);
}

/// All that the content of a store depends on.
Json what_is_built(const Build& line, const texts::Tokenizer& tokenizer,
                   const texts::CorpusSettings& settings) {
  Json sources = Json::array();
  for (const texts::Source& source : settings.read.sources)
    sources.push_back(
        {{"path", printable(source.path)}, {"bytes", source.bytes}, {"modified", source.modified}});
  const auto optional = [](const std::optional<std::string>& value) {
    return value ? Json(printable(*value)) : Json();
  };
  return {{"format", "ostrakon-build 1"},
          {"tokenizer", tokenizer.name()},
          {"vocabulary", tokenizer.vocabulary()},
          {"begin", settings.encode.before},
          {"end", settings.encode.after},
          {"special tokens", line.finds_special},
          {"separator", optional(line.separator)},
          {"field", optional(line.json_field())},
          {"validation fraction", line.validation_fraction},
          {"chats", line.chats},
          {"pairs", line.pairs},
          {"longest pair", line.longest_pair},
          {"template", template_files(line)},
          {"sources", sources}};
}

bool reads_standard_input(const std::vector<texts::Source>& sources) {
  return std::any_of(sources.begin(), sources.end(), [](const texts::Source& source) {
    return source.path == texts::standard_input;
  });
}

/// Bytes of all files; 0 where the standard input is one of them.
std::int64_t bytes_of(const std::vector<texts::Source>& sources) {
  std::int64_t bytes = 0;
  for (const texts::Source& source : sources) bytes += source.bytes;
  return reads_standard_input(sources) ? 0 : bytes;
}

/// Throws Error if what is left to write, to the store and then to token files, does not fit on the
/// disk.
void require_room(const std::string& folder, std::int64_t ids_left, std::int64_t all_ids,
                  std::int64_t stored_bytes) {
  const std::int64_t needed = (ids_left + all_ids) * stored_bytes, there = free_bytes(folder);
  require(needed <= there, "'", folder, "' has ", format_bytes(there),
          " free, but the ids of all sources, about ", format_count(all_ids), ", need ",
          format_bytes(needed), " more: once while sources are read, and once in token files");
}

void encode_all(const texts::CorpusSettings& settings, const texts::Tokenizer& tokenizer,
                const std::string& folder, texts::TokenStore& store) {
  const std::int64_t stored_bytes = store.stored_bytes();
  ProgressLine line(bytes_of(settings.read.sources), stored_bytes);
  bool is_checked = false;
  std::int64_t told = 0;
  constexpr std::int64_t most_told = 3;
  texts::encode_corpus(
      settings, tokenizer, store,
      [&](const texts::Progress& progress) {
        const std::int64_t ids = line.expected_ids(progress);
        if (ids > 0 && !is_checked)
          require_room(folder, ids - progress.state.ids, ids, stored_bytes);
        is_checked = is_checked || ids > 0;
        line.tell(progress);
      },
      [&](const std::string& bad) {
        if (++told > most_told) return;
        line.clear();
        warn("left out: " + bad);
      });
}

/// Reads all sources into the store; a single document twice, the second time in two parts.
void fill_store(const Build& line, texts::CorpusSettings settings,
                const texts::Tokenizer& tokenizer, texts::TokenStore& store) {
  const std::string folder = parent_folder(line.store_folder());
  settings.read.cut = store.state().cut;
  if (!store.state().is_complete) encode_all(settings, tokenizer, folder, store);
  require(store.state().documents > 0, "no text found",
          store.state().bad > 0 ? text("; ", store.state().bad, " bad records were left out") : "");
  if (store.state().documents > 1 || !line.validates() || store.state().cut >= 0) return;

  const auto& sources = settings.read.sources;
  const bool is_text = std::all_of(sources.begin(), sources.end(), [](const auto& source) {
    return source.kind == texts::SourceKind::text;
  });
  const bool can_cut = is_text && !reads_standard_input(sources);
  const std::int64_t bytes = store.state().text_bytes;
  require(can_cut && bytes >= 2, "one document of ", bytes, bytes == 1 ? " byte" : " bytes",
          " can't be split into training and validation; expected more documents, or "
          "--validation-fraction 0");
  const auto share =
      static_cast<std::int64_t>(line.validation_fraction * static_cast<double>(bytes));
  store.begin_again(bytes - std::clamp<std::int64_t>(share, 1, bytes - 1));
  settings.read.cut = store.state().cut;
  encode_all(settings, tokenizer, folder, store);
}

/// Opens the store of a build that was ended, where --resume asks for it, or a new one.
std::unique_ptr<texts::TokenStore> open_store(const Build& line, const texts::Tokenizer& tokenizer,
                                              const texts::CorpusSettings& settings, bool goes_on) {
  const texts::TokenStore::Settings store{line.store_folder(), tokenizer.vocabulary(),
                                          line.reads_chats()};
  const Json what = what_is_built(line, tokenizer, settings);
  if (!goes_on) return texts::TokenStore::begin(store, what);
  require(!reads_standard_input(settings.read.sources),
          "--resume: the standard input can't be read again; expected files and folders");
  return texts::TokenStore::resume(store, what);
}

texts::CorpusSettings corpus_settings(const Build& line, const Given& given,
                                      const texts::Tokenizer& tokenizer) {
  texts::CorpusSettings settings;
  settings.encode = encode_settings(line, tokenizer);
  settings.read.sources = find_sources(given.operands, line.json_field());
  settings.read.separator = line.separator;
  settings.read.columns = {line.json_field().value_or("text"), line.reads_chats()};
  // Bytes are tokens one by one.
  settings.read.whole_documents = tokenizer.name() != data::ByteTokenizer::name;
  settings.workers =
      line.workers.value_or(static_cast<int>(std::max<std::size_t>(allowed_cores().size(), 1)));
  settings.most_bad = line.most_bad;
  for (const texts::Source& source : settings.read.sources)
    require(!line.pairs || source.kind != texts::SourceKind::parquet, texts::quoted(source),
            ": --pairs of Parquet are not read; expected JSON lines");
  const bool from_input = reads_standard_input(settings.read.sources);
  if (from_input) settings.commit_seconds = std::numeric_limits<double>::infinity();
  require(!from_input || settings.read.sources.size() > 1 || line.separator || line.json_field() ||
              !line.validates(),
          "the standard input is one document, which can't be split into training and "
          "validation; expected --validation-fraction 0, --separator or --field");
  return settings;
}

/// The token files of a build.
struct TokenFiles {
  data::TokenFileWriter training;
  std::optional<data::TokenFileWriter> validation;
};

/// Appends a part of a document, or of a pair, of which the first document may end in it.
void append(const texts::TokenStore::Document& part, data::TokenFileWriter& to) {
  const std::uint8_t* const end = part.counts == nullptr ? nullptr : part.counts + part.count;
  const std::uint8_t* const second = std::find(part.counts, end, texts::begins_second);
  if (second == end) return to.append(part.ids, part.count, part.counts);
  const std::int64_t first = second - part.counts;
  if (first > 0) to.append(part.ids, first, part.counts);
  to.end_document();
  constexpr std::uint8_t does_not_count = 0;
  to.append(part.ids + first, 1, &does_not_count);
  if (first + 1 < part.count) to.append(part.ids + first + 1, part.count - first - 1, second + 1);
}

/// Writes the token files from a store.
TokenFiles write_files(const Build& line, texts::TokenStore& store,
                       const texts::Tokenizer& tokenizer, const texts::EncodeSettings& encode,
                       const data::Provenance& provenance) {
  const auto writer = [&](const std::string& path) {
    data::TokenFileWriter file(path, tokenizer.name(), tokenizer.vocabulary(), provenance);
    std::optional<std::int32_t> begin, end;
    if (!encode.before.empty()) begin = encode.before.front();
    if (!encode.after.empty()) end = encode.after.back();
    // A template may write them where nothing else puts them around texts.
    if (line.reads_chats() && !begin) begin = tokenizer.begin();
    if (line.reads_chats() && !end) end = tokenizer.end();
    file.note_ends(begin, end);
    if (line.pairs) file.note_pairs();
    return file;
  };
  TokenFiles files{writer(line.training_path()), std::nullopt};
  if (line.validates()) files.validation.emplace(writer(line.validation_path()));
  const texts::BuildState& state = store.state();
  const texts::DocumentSplit split(line.seed, line.validation_fraction, state.documents);
  store.read([&](const texts::TokenStore::Document& document) {
    const bool is_held_out =
        state.cut >= 0 ? document.index == 1 : split.is_validation(document.index);
    data::TokenFileWriter& to = is_held_out ? *files.validation : files.training;
    append(document, to);
    if (!document.ends) return;
    to.add_text_bytes(document.text_bytes);
    to.end_document();
  });
  // Both files are completed before either gets its name, so that there is a pair or nothing.
  files.training.complete();
  if (files.validation) files.validation->complete();
  files.training.finish();
  if (files.validation) files.validation->finish();
  return files;
}

void print_left_out(const texts::BuildState& state) {
  if (state.bad > 0) std::cout << "left out " << counted(state.bad, "bad record") << "\n";
  if (state.without_text > 0)
    std::cout << "left out " << counted(state.without_text, "document") << " without text\n";
}

/// Warns of held-out documents that training may not be able to validate on.
void warn_of_short(const std::string& path, std::int64_t tokens) {
  constexpr std::int64_t usual_length = 512;
  if (tokens < usual_length)
    warn(text("'", path, "' has ", counted(tokens, "token"), ", too few for a sample where ",
              "training.sequence_length is ", tokens,
              " or more; a larger --validation-fraction holds out more"));
}

int build(const Build& line, const Given& given) {
  require(!line.chat_template || line.reads_chats(), "--chat-template needs --chat or --pairs");
  const data::Provenance provenance = provenance_of(given);
  const std::string training_path = line.training_path(), validation_path = line.validation_path();
  const bool is_begun = texts::TokenStore::has_commits(line.store_folder());
  const bool goes_on = line.resumes && is_begun;
  if (!goes_on) {
    require_free_name(training_path, line.output.overwrite);
    if (line.validates()) require_free_name(validation_path, line.output.overwrite);
    require(!is_begun || line.output.overwrite, "'", line.store_folder(),
            "' is a build that was not finished; expected --resume to go on with it, or "
            "--overwrite to begin anew");
  }
  const std::unique_ptr<texts::Tokenizer> tokenizer = texts::open_tokenizer(line.tokenizer);
  const std::unique_ptr<texts::ChatTemplate> chat_template = open_template(line);
  texts::CorpusSettings settings = corpus_settings(line, given, *tokenizer);
  settings.encode.chat_template = chat_template.get();
  settings.encode.no_template = no_template(line);

  const Stopwatch clock;
  make_folder(parent_folder(training_path));
  const auto store = open_store(line, *tokenizer, settings, goes_on);
  std::optional<TokenFiles> files;
  try {
    fill_store(line, settings, *tokenizer, *store);
    files.emplace(write_files(line, *store, *tokenizer, settings.encode, provenance));
  } catch (const Error& error) {
    if (!texts::TokenStore::has_commits(line.store_folder())) throw;
    throw Error(text(error.what(), "\nwhat was read is kept in '", line.store_folder(),
                     "': --resume goes on from there"));
  }
  print_left_out(store->state());
  store->remove();

  std::cout << "read " << counted(static_cast<std::int64_t>(settings.read.sources.size()), "file")
            << " in " << rounded(clock.seconds()) << " s; wrote\n";
  print_written(training_path, files->training);
  if (files->validation) print_written(validation_path, *files->validation);
  if (files->validation && !line.pairs)
    warn_of_short(validation_path, files->validation->token_count());
  std::cout << "\nnext, look at the text, then train on it:\n"
            << "  ostrakon-data show "
            << (tokenizer->name() == data::ByteTokenizer::name
                    ? ""
                    : text("--tokenizer ", printable(line.tokenizer), " "))
            << printable(training_path) << "\n"
            << "  mpiexec -n 2 ostrakon-train DECK --set data.path=" << printable(training_path);
  if (files->validation) std::cout << " --set data.validation_path=" << printable(validation_path);
  if (line.pairs) std::cout << " --set training.objective=dpo";
  std::cout << "\n";
  return 0;
}

}  // namespace

Command build_command() {
  const auto line = std::make_shared<Build>();
  std::vector<Option> options = output_options(line->output, "PREFIX", "the beginning of names");
  options.insert(
      options.end(),
      {{"--tokenizer", "NAME", word(line->tokenizer, "byte, a folder or a file"),
        "byte, which has a token for each byte of text (default); or the folder of a model, its "
        "tokenizer.json, or its tokenizer.model"},
       {"--validation-fraction", "F", fraction(line->validation_fraction),
        "share of the documents held out; 0: none (0.05)"},
       {"--seed", "N", integer(line->seed, 0), "of the split (1)"},
       heading("documents"),
       separator_option(line->separator),
       field_option(line->field),
       {"--chat", "", flag(line->chats),
        "JSON lines or Parquet of chats: messages in the field of --field (messages), or prompt "
        "and completion. The chat template beside the tokenizer makes text of messages; what the "
        "assistant wrote counts in the loss"},
       {"--pairs", "", flag(line->pairs),
        "JSON lines of pairs of answers, for training.objective = dpo: prompt, chosen and "
        "rejected, three texts or lists of messages; or chosen and rejected, lists that begin "
        "alike"},
       {"--longest", "N", with("--pairs", integer(line->longest_pair, 2)),
        "pairs with more tokens, both answers and twice the prompt, are bad records: see "
        "--skip-bad"},
       {"--chat-template", "FILE", word(line->chat_template),
        "with --chat or --pairs: the template in FILE in place of the tokenizer's own"},
       {"--begin", "TOKEN", word(line->begin, "a token, an id, or none"),
        "what documents begin with: a token or id, or none (default: what the tokenizer puts "
        "before a text)"},
       {"--end", "TOKEN", word(line->end, "a token, an id, or none"),
        "what documents end with (default: what the tokenizer puts after a text, and its end of "
        "text)"},
       {"--special-tokens", "", flag(line->finds_special),
        "special tokens that are written in text become their ids; else they are text"},
       {"--skip-bad", "N", integer(line->most_bad, 0),
        "leave out up to N records that are no JSON, lack the field, or are no UTF-8 (0)"},
       heading("running"),
       {"--workers", "N", integer(line->workers, 1, 4096),
        "threads that make tokens; the files are the same with any number (all cores)"},
       {"--resume", "", flag(line->resumes),
        "go on with a build of PREFIX that was ended, if there is one"}});
  return {"build",
          "FILE_OR_FOLDER...",
          "turns text into PREFIX-train.h5 and PREFIX-validation.h5: files and folders, plain or "
          "compressed by gzip or zstd, and - for the standard input",
          options,
          [line](const Given& given) { return build(*line, given); },
          {{"--separator", "--field"},
           {"--separator", "--chat"},
           {"--separator", "--pairs"},
           {"--chat", "--pairs"},
           {"--field", "--pairs"}}};
}

}  // namespace ostrakon::apps::data_program
