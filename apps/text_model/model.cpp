// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <filesystem>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_tokenizer.hpp>
#include <ostrakon/config/deck.hpp>

namespace ostrakon::apps {

namespace fs = std::filesystem;

namespace {

/// The folder with the model's tokenizer: the model's own, one around it (of a checkpoint the
/// run's), or the one that its first weights came from; empty if none has it.
std::string folder_of_tokenizer(const ModelFile& file, const std::string& path) {
  const auto has_it = [&](const std::string& folder) {
    return checkpoint::huggingface_tokenizer(folder) == file.tokenizer;
  };
  fs::path folder = fs::absolute(is_folder(path) ? path : parent_folder(path)).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // "run/"
  for (int up = 0; up < 3; ++up, folder = folder.parent_path())
    if (has_it(folder.string())) return folder.string();
  const std::string source = checkpoint::source_folder_of(file.parameters->huggingface_config());
  return !source.empty() && is_folder(source) && has_it(source) ? source : "";
}

/// What to open as the model's tokenizer. Throws Error where nothing says it.
std::string tokenizer_path_of(const ModelFile& file, const ModelChoice& choice,
                              const std::string& path) {
  if (choice.tokenizer) {
    require(*choice.tokenizer == data::ByteTokenizer::name || is_there(*choice.tokenizer),
            "--tokenizer ", *choice.tokenizer, ": expected ", data::ByteTokenizer::name,
            ", or a folder or file that exists", choice.or_ids);
    return *choice.tokenizer;
  }
  require(file.tokenizer != unknown_tokenizer, path,
          " does not say whose tokens it knows; expected --tokenizer ", data::ByteTokenizer::name,
          ", FOLDER or FILE", choice.or_ids);
  if (file.tokenizer == data::ByteTokenizer::name) return file.tokenizer;
  const std::string folder = folder_of_tokenizer(file, path);
  require(!folder.empty(), path, ": trained on tokens of the tokenizer '", file.tokenizer,
          "', which is not beside it; expected --tokenizer with its folder or file", choice.or_ids);
  return folder;
}

void open_tokenizer(TextModel& model, const ModelChoice& choice) {
  const ModelFile& file = model.file;
  model.tokenizer_path = tokenizer_path_of(file, choice, model.path);
  model.tokenizer = texts::open_tokenizer(model.tokenizer_path);
  require(file.tokenizer == unknown_tokenizer || model.tokenizer->name() == file.tokenizer,
          model.path, ": trained on tokens of the tokenizer '", file.tokenizer, "'; that of ",
          model.tokenizer_path, " is '", model.tokenizer->name(), "'");
  const std::int64_t vocabulary = file.settings.model.vocabulary;
  require(model.tokenizer->vocabulary() <= vocabulary, model.path, ": its vocabulary of ",
          vocabulary, " is less than that of the tokenizer '", model.tokenizer->name(), "', ",
          model.tokenizer->vocabulary(), choice.or_ids);
}

/// With ids it does not matter if the tokenizer's files were given another name.
void check_name(const TextModel& model, const ModelChoice& choice) {
  const std::string& known = model.file.tokenizer;
  require(!choice.tokenizer || known == unknown_tokenizer || *choice.tokenizer == known ||
              known == checkpoint::huggingface_tokenizer(model.path),
          model.path, ": trained on tokens of the tokenizer '", known, "'; --tokenizer says '",
          choice.tokenizer.value_or(""), "'");
}

}  // namespace

void set_context(ModelFile& file, std::int64_t context, const std::string& path) {
  config::Settings& settings = file.settings;
  const std::int64_t rows = settings.model.position_rows(settings.training.sequence_length);
  const bool is_learned = settings.model.positions == model::Positions::learned;
  require(!is_learned || context <= rows, "--context ", context, ": ", path,
          " has learned positions, ", rows, "; expected as many at most");
  if (is_learned) settings.model.max_positions = rows;
  settings.training.sequence_length = context;
  // The settings are converted to a deck and back, which checks them against the model's sizes.
  settings = config::read_settings(config::write_deck(settings), text("--context ", context), {},
                                   config::DeckUse::model);
  const std::string kept = file.parameters->huggingface_config();
  if (!kept.empty())
    checkpoint::require_computed(checkpoint::parse_huggingface_config(kept, path), context);
}

void fit_context(TextModel& model, std::int64_t longest_text, const ModelChoice& choice) {
  const math::RotarySettings& rotary = model.file.settings.model.rotary;
  std::int64_t context = longest_text;
  if (rotary.scaling == math::RotaryScaling::longrope) {
    if (choice.context) return;
    if (context > rotary.original_length) return;
    context = rotary.original_length;
  }
  if (context < model.file.settings.training.sequence_length)
    set_context(model.file, context, model.path);
}

Option deck_option(ModelChoice& choice) {
  return {"--deck", "DECK", word(choice.deck),
          "for safetensors: its section `model`, and sequence_length, describe the model; "
          "config.json next to them has to agree (default: it alone describes the model)"};
}

TextModel open_text_model(const std::string& path, const ModelChoice& choice) {
  const bool described = single_model_kind(path) != FileKind::safetensors;
  require(!described || !choice.deck, "--deck is for safetensors; ", path, " has its deck in it");
  TextModel model;
  model.path = path;
  model.file =
      described ? open_with_deck(path) : open_safetensors(path, choice.deck, choice.context);
  if (choice.ids)
    check_name(model, choice);
  else
    open_tokenizer(model, choice);
  if (choice.context) set_context(model.file, *choice.context, path);
  return model;
}

std::vector<std::int32_t> begin_of_document(const texts::Tokenizer& tokenizer) {
  if (tokenizer.name() == data::ByteTokenizer::name) return {data::ByteTokenizer::end_of_text};
  return tokenizer.around().before;
}

std::int32_t first_token(const texts::Tokenizer& tokenizer, const char* expected) {
  const auto first = tokenizer.begin() ? tokenizer.begin() : tokenizer.end();
  require(first.has_value(), "the tokenizer ", tokenizer.name(),
          " has no token that begins or ends a document; expected ", expected);
  return *first;
}

}  // namespace ostrakon::apps
