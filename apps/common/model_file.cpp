// SPDX-License-Identifier: Apache-2.0
#include "model_file.hpp"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/checkpoint/adapters/adapted_rows.hpp>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <ostrakon/checkpoint/huggingface/other_weights.hpp>
#include <ostrakon/checkpoint/huggingface/safetensors.hpp>
#include <ostrakon/checkpoint/latest.hpp>
#include <ostrakon/checkpoint/models_of_run.hpp>
#include <ostrakon/checkpoint/open_parameters.hpp>
#include <ostrakon/checkpoint/reader.hpp>
#include <ostrakon/checkpoint/weights_file.hpp>

#include "program.hpp"

namespace ostrakon::apps {

namespace fs = std::filesystem;
using checkpoint::CheckpointReader;
using checkpoint::WeightsReader;

namespace {

config::Settings read_inner_deck(const std::string& deck, const std::string& path) {
  return config::read_settings(deck, path + " (its deck)", {}, config::DeckUse::model);
}

/// Whether a path has the name of a checkpoint: one that has lost its manifest is reported as
/// damaged.
bool named_as_checkpoint(const std::string& path) {
  for (const char* name : {"model.safetensors", "model.safetensors.index.json"})
    if (is_there((fs::path(path) / name).string())) return false;
  std::error_code ignored;
  return fs::canonical(path, ignored).filename().string().rfind("step-", 0) == 0;
}

/// Returns settings by way of a deck, which checks for sizes that are too large or contradict each
/// other.
config::Settings settings_of_config(const std::string& path, std::optional<std::int64_t> context) {
  const checkpoint::HuggingFaceConfig config = checkpoint::load_huggingface_config(path);
  const bool learned = config.model.positions == model::Positions::learned;
  const std::int64_t tokens = learned ? config.positions : context.value_or(config.positions);
  checkpoint::require_computed(config, tokens);
  config::Settings settings;
  settings.model = config.model;
  settings.training.sequence_length = tokens;
  return config::read_settings(config::write_deck(settings),
                               context ? text("--context ", *context) : path, {},
                               config::DeckUse::model);
}

void open_with(const config::Settings& settings, const std::string& path, ModelFile& file,
               checkpoint::Weights weights = checkpoint::Weights::parameters) {
  file.settings = settings;
  file.parameters = checkpoint::open_parameters(path, settings.model,
                                                settings.training.sequence_length, {}, weights);
}

}  // namespace

FileKind kind_of(const std::string& path) {
  if (!is_there(path)) {
    const std::string broken = broken_link(path);
    throw Error(broken.empty() ? text("'", path,
                                      "' does not exist; expected weights.h5, a checkpoint, a "
                                      "run's folder, or safetensors")
                               : broken);
  }
  if (checkpoint::is_checkpoint(path)) return FileKind::checkpoint;
  if (is_folder(path)) {
    if (!checkpoint::Folder(path).names().empty()) return FileKind::checkpoints;
    if (named_as_checkpoint(path)) return FileKind::checkpoint;
  }
  checkpoint::require_no_other_weights(path);
  return checkpoint::looks_like_hdf5(path) ? FileKind::weights : FileKind::safetensors;
}

std::string resolve_model_path(const std::string& named) {
  const auto tell = [](const std::string& what) { std::cerr << printable(what) << std::endl; };
  if (checkpoint::is_run_folder(named)) {
    const std::string model = checkpoint::models_of_run(named, [&](const std::string& problem) {
                                tell("damaged: " + problem);
                              }).front();
    tell(text("note: '", named, "' is a run's folder: takes '", model, "'"));
    return model;
  }
  const checkpoint::ResolvedCheckpoint meant = checkpoint::follow_latest(named);
  if (!meant.note.empty()) tell("note: " + meant.note);
  return meant.path;
}

FileKind single_model_kind(const std::string& path) {
  const FileKind kind = kind_of(path);
  require(kind != FileKind::checkpoints, "'", path,
          "' is a folder of checkpoints; expected one of them, such as '",
          (fs::path(path) / checkpoint::latest_name).string(), "'");
  return kind;
}

ModelFile open_with_deck(const std::string& path, checkpoint::Weights weights) {
  const FileKind kind = single_model_kind(path);
  require(kind != FileKind::safetensors, "'", path,
          "' is neither a weights file (HDF5) nor a checkpoint");
  ModelFile file;
  if (kind == FileKind::checkpoint) {
    const CheckpointReader reader(path);
    file.settings = read_inner_deck(reader.manifest().deck, path);
    file.tokenizer = reader.manifest().tokenizer;
    file.step = reader.manifest().progress.step;
  } else {
    const WeightsReader reader(path);
    file.settings = read_inner_deck(reader.deck(), path);
    file.tokenizer = reader.tokenizer();
    file.step = reader.step();
  }
  open_with(file.settings, path, file, weights);
  return file;
}

ModelFile open_safetensors(const std::string& path, const std::optional<std::string>& deck,
                           std::optional<std::int64_t> context) {
  // Opened first, so that another kind of file is reported before a missing description.
  const checkpoint::SafetensorsReader readable(path);
  ModelFile file;
  open_with(settings_of_safetensors(path, deck, context), path, file);
  add_initial_adapters(file.parameters, file.settings, path);
  const std::string tokenizer = file.parameters->tokenizer();
  file.tokenizer = tokenizer.empty() ? unknown_tokenizer : tokenizer;
  return file;
}

void add_initial_adapters(std::unique_ptr<checkpoint::ParameterSource>& weights,
                          const config::Settings& settings, const std::string& path) {
  const model::LoraSettings& lora = settings.model.lora;
  if (!lora.exist()) return;
  const std::string first = checkpoint::adapted_rows(settings.model).front().lora_a();
  if (weights->contains("block.0", first)) return;
  require(!settings.lora_initial.empty(), "'", path, "' has no adapters, but lora.rank is ",
          lora.rank,
          " in the deck; expected lora.initial, PEFT's folder with them, or lora.rank 0 "
          "(only training begins with new ones)");
  weights = checkpoint::add_adapters(std::move(weights), settings.lora_initial, settings.model,
                                     settings.training.sequence_length);
}

config::Settings settings_of_safetensors(const std::string& path,
                                         const std::optional<std::string>& deck,
                                         std::optional<std::int64_t> context) {
  if (deck) return settings_of_deck(*deck);
  const std::string config = checkpoint::huggingface_config_next_to(path);
  const std::string folder = is_folder(path) ? path : parent_folder(path);
  require(!config.empty(), "nothing says what model '", path, "' is of; expected --deck DECK, or '",
          (fs::path(folder) / "config.json").string(), "'");
  return settings_of_config(config, context);
}

config::Settings settings_of_deck(const std::string& path) {
  return config::read_settings(read_file(path), path, {}, config::DeckUse::model);
}

}  // namespace ostrakon::apps
