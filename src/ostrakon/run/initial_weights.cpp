// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/initial_weights.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/latest.hpp>
#include <ostrakon/checkpoint/models_of_run.hpp>
#include <ostrakon/checkpoint/open_parameters.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <ostrakon/saving/continuation.hpp>
#include <vector>

namespace ostrakon::train {

namespace {

/// Returns the files or folders that `path` may stand for, the best first. Rank 0 searches.
std::vector<std::string> candidates(const std::string& path, comm::Communicator& world,
                                    Console& console) {
  std::vector<std::string> found;
  world.run_collectively([&] {
    if (!console.is_root()) return;
    const bool is_folder_of_models =
        checkpoint::is_run_folder(path) || (is_folder(path) && !checkpoint::is_checkpoint(path) &&
                                            !checkpoint::Folder(path).names().empty());
    if (is_folder_of_models) {
      found = checkpoint::models_of_run(
          path, [&](const std::string& problem) { console.say("damaged: " + problem + "\n"); });
      return;
    }
    const checkpoint::ResolvedCheckpoint meant = checkpoint::follow_latest(path);
    if (!meant.note.empty()) console.say("note: " + meant.note + "\n");
    found = {meant.path};
  });
  auto count = static_cast<std::int64_t>(found.size());
  world.broadcast(&count, sizeof count, 0);
  found.resize(static_cast<std::size_t>(count));
  for (std::string& one : found) one = world.broadcast(one, 0);
  return found;
}

}  // namespace

std::unique_ptr<checkpoint::ParameterSource> open_initial_weights(const config::Settings& settings,
                                                                  const RunOptions& options,
                                                                  const std::string& tokenizer,
                                                                  comm::Communicator& world,
                                                                  Console& console) {
  if (settings.checkpoint.initial_weights.empty()) return nullptr;
  std::string path;
  std::unique_ptr<checkpoint::ParameterSource> weights;
  const auto open = [&] {
    weights = checkpoint::open_parameters(
        path, settings.model, settings.training.sequence_length,
        [&](const std::string& deck) { config::require_same_model(settings, deck, path); });
    if (console.is_root() && !options.dry_run && !weights->checks_what_it_reads())
      weights->verify();
  };
  const std::vector<std::string> paths =
      candidates(settings.checkpoint.initial_weights, world, console);
  for (std::size_t i = 0; weights == nullptr && i < paths.size(); ++i) {
    path = paths[i];
    try {
      world.run_collectively(open);
    } catch (const AgreedDamage& damage) {
      if (i + 1 == paths.size()) throw;
      weights = nullptr;
      console.say(text("damaged: ", damage.what(), "\n"));
    }
  }
  std::vector<std::string> notes;
  world.run_collectively([&] {
    if (!console.is_root()) return;  // this may read a file
    notes = require_same_tokenizer(weights->tokenizer(), path, tokenizer, options.allowed);
    if (tokenizer == data::unknown_tokenizer && notes.empty())
      notes.emplace_back("nothing says whose tokens the weights know, nor whose the data has");
  });
  if (!weights->unchecked().empty()) notes.push_back(weights->unchecked());
  console.say(text("weights\n  begin as in            ", path, "\n", note_lines(notes), "\n"));
  return weights;
}

}  // namespace ostrakon::train
