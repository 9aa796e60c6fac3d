// SPDX-License-Identifier: Apache-2.0

// `deck`: writes a deck that trains a model of Hugging Face.

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/files/files.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <ostrakon/config/deck.hpp>

#include "../common/model_file.hpp"
#include "../common/output_file.hpp"
#include "../common/program.hpp"
#include "commands.hpp"

namespace ostrakon::apps::checkpoint_program {
namespace {

namespace fs = std::filesystem;

struct Deck {
  std::optional<std::string> output;
  bool overwrite = false;
};

/// Longest sequences that the deck begins with; longer ones are for those who know their memory.
constexpr std::int64_t most_tokens = 2048;
constexpr const char* data_placeholder = "your-text-train.h5";
constexpr const char* data_prefix = "your-text";

/// Returns settings that fine-tune the model of a config.json.
config::Settings fine_tuning(const std::string& folder, const std::string& path,
                             const checkpoint::HuggingFaceConfig& config) {
  const std::int64_t tokens = std::min(config.positions, most_tokens);
  config::Settings settings = settings_of_safetensors(path, std::nullopt, std::nullopt);
  if (settings.model.positions == model::Positions::learned)
    settings.model.max_positions = config.positions;
  settings.given.clear();  // it has all keys: the settings were read from a whole deck
  settings.training.sequence_length = tokens;
  settings.training.steps = 100;
  settings.data.path = data_placeholder;
  settings.checkpoint.initial_weights = folder;
  settings.checkpoint.every = 50;
  settings.optimizer.learning_rate = 1e-5;
  settings.schedule.warmup_steps = 10;
  settings.output.directory = "output/fine-tuned";
  // Masters are fp32 in any case.
  const DType dtype = config.dtype.value_or(DType::fp32);
  settings.precision.gather = dtype == DType::fp32 ? DType::fp32 : DType::bf16;
  for (const char* key : {"layers", "width", "heads", "vocabulary", "norm", "norm_epsilon",
                          "positions", "activation", "tie_embeddings", "bias"})
    settings.given.insert(text("model.", key));
  for (const char* key : {"data.path", "training.steps", "training.global_batch_size",
                          "training.micro_batch_size", "training.sequence_length"})
    settings.given.insert(key);
  return settings;
}

int write(const Deck& line, const Given& given) {
  const std::string& path = given.operands[0];
  const std::string output = line.output.value_or("-");
  const bool is_file = output != "-";
  const std::string broken = broken_link(path);
  require(broken.empty(), broken);
  require(is_there(path), "'", path, "' does not exist; expected the folder of a model to train");
  const std::string file = checkpoint::huggingface_config_next_to(path);
  const std::string folder =
      fs::absolute(is_folder(path) ? path : parent_folder(path)).lexically_normal().string();
  require(!file.empty(), "no config.json in '", folder, "'; expected that of a model to train");
  if (is_file) require_output("--output", output);
  if (is_file) require_free_name(output, line.overwrite);
  const checkpoint::HuggingFaceConfig config = checkpoint::load_huggingface_config(file);
  const config::Settings settings = fine_tuning(folder, path, config);
  checkpoint::require_same_model(config, settings.model, settings.training.sequence_length);
  std::vector<std::string> head = {
      text("Trains the ", config.family->title, " in ", printable(folder)),
      "",
      "Edit data.path: a file of token ids by the tokenizer of the model, which",
      text("  ostrakon-data build --tokenizer ", printable(folder), " --output ", data_prefix,
           " TEXT..."),
      "writes; chats: with --chat. Edit steps, batch and sequence_length too (the model's",
      text("positions are ", config.positions,
           "). Keys that are not here have their defaults: ostrakon-train --print-defaults.")};
  if (config.multi_token_depth > 0) {
    head.push_back(
        "The model has a module of multi-token prediction, which generation does not need;");
    head.push_back("model.multi_token_depth: 1 reads it and trains it, too.");
  }
  const std::string deck = config::write_short_deck(settings, head);
  config::read_settings(deck, is_file ? output : "deck.yaml", {}, config::DeckUse::model);
  if (!is_file) {
    std::cout << deck;
    return 0;
  }
  write_file(output, deck);
  std::cout << "wrote " << printable(output) << ": " << config.family->model_type
            << ", sequence_length " << settings.training.sequence_length << ", of the model's "
            << format_count(config.positions) << " positions; edit its data.path\n";
  return 0;
}

}  // namespace

Command deck_command() {
  const auto line = std::make_shared<Deck>();
  return {"deck",
          "FOLDER",
          "writes a deck that fine-tunes the model of Hugging Face in FOLDER, of which config.json "
          "is read, or says what of that model this program does not compute",
          {{"--output", "DECK", word(line->output), "file to write; -: standard output (-)"},
           {"--overwrite", "", flag(line->overwrite),
            "replace a file that has this name; else it is refused"}},
          [line](const Given& given) { return write(*line, given); }};
}

}  // namespace ostrakon::apps::checkpoint_program
