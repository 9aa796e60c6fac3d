// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/resume_loader.hpp>

#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/checkpoint/adapters/peft_config.hpp>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <ostrakon/checkpoint/latest.hpp>
#include <ostrakon/checkpoint/models_of_run.hpp>
#include <ostrakon/checkpoint/open_parameters.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/value.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/run/run_data.hpp>
#include <ostrakon/saving/continuation.hpp>
#include <ostrakon/saving/resume_search.hpp>
#include <ostrakon/saving/save_folder.hpp>
#include <ostrakon/trainer/state/skipped_steps.hpp>
#include <vector>

namespace ostrakon::train {
namespace {

std::vector<std::string> changes_since(const config::Settings& settings,
                                       const checkpoint::Manifest& manifest,
                                       const std::string& path) {
  try {
    return config::differences(
        settings, config::read_settings(manifest.deck, path, {}, config::DeckUse::model));
  } catch (const Error&) {
    return {"(the checkpoint's deck is of another version)"};
  }
}

}  // namespace

ResumeLoader::ResumeLoader(const config::Settings& settings, const RunOptions& options,
                           mesh::Mesh& mesh, const checkpoint::Folder& own, Console& console)
    : settings_(settings), options_(options), mesh_(mesh), own_(own), console_(console) {}

/// Rank 0 searches; the content of checkpoints is checked when they are opened.
void ResumeLoader::find() {
  if (options_.resume == Resume::none) return;
  std::optional<std::string> asked;
  if (options_.resume == Resume::path) asked = options_.checkpoint;
  const FoundCheckpoints found = find_resumable(mesh_, own_, asked);
  for (const std::string& problem : found.problems) console_.say(text("damaged: ", problem, "\n"));
  if (!found.note.empty()) console_.say(text("note: ", found.note, "\n"));
  candidates_ = found.sound;
  damaged_ = found.damaged;
  in_folder_ = found.in_folder;
  if (candidates_.empty() && !damaged_.empty()) refuse_all();
  if (candidates_.empty()) console_.say("checkpoint\n  none yet: begins at step 1\n\n");
  if (options_.dry_run && !candidates_.empty())
    console_.say(text("checkpoint\n  newest                 ", candidates_.front(), "\n\n"));
}

void ResumeLoader::refuse_all() const {
  throw CollectiveError(text("no checkpoint in ",
                             options_.resume == Resume::path ? options_.checkpoint : own_.path(),
                             " can be used; --resume none begins at step 1 and renames them"));
}

void ResumeLoader::require_none_since(bool is_new_lock) const {
  mesh_.world().run_collectively([&] {
    if (!is_new_lock || options_.resume != Resume::automatic) return;
    require(own_.names().empty(), "another run has saved into ", own_.path(),
            " since this one looked for checkpoints: start this one again");
  });
}

ResumeLoader::Loaded ResumeLoader::load(Trainer& trainer, data::SampleSource& samples) {
  const Facts data = samples.identity();
  std::vector<std::string> notes;
  ResumeCalls calls;
  calls.require_fit = [&](const checkpoint::Manifest& manifest, const std::string& path) {
    require_source(manifest.huggingface_config);
    notes = require_continuation(settings_, data, manifest, path, options_.allowed);
  };
  calls.note_damage = [this](const std::string& path, const CollectiveDamagedError& damage) {
    note_damage(path, damage);
  };
  calls.to_what = " the deck";
  const RestoredCheckpoint restored = restore_first(mesh_, trainer, candidates_, calls);
  if (restored.reader == nullptr) refuse_all();
  const checkpoint::Manifest& manifest = restored.reader->manifest();
  Loaded loaded;
  loaded.step = manifest.progress.step;
  loaded.tokenizer = manifest.tokenizer;
  loaded.huggingface_config = manifest.huggingface_config;
  mesh_.world().run_collectively([&] {
    try {
      samples.continue_from(static_cast<std::uint64_t>(manifest.progress.samples),
                            data::kept_choices(manifest.data));
    } catch (const Error& error) {
      throw Error(text(restored.path, ": ", error.what()));
    }
  });
  find_place(restored.path, loaded);
  say_origin(restored.path, manifest, notes);
  return loaded;
}

/// Passes over a damaged checkpoint, unless it is the only one that was asked for.
void ResumeLoader::note_damage(const std::string& path, const CollectiveDamagedError& damage) {
  if (options_.resume == Resume::path && candidates_.size() == 1) throw damage;
  console_.say(text("damaged: ", damage.what(), "\n"));
  damaged_.push_back(path);
}

/// Requires that the run resumes with the model that it began with.
void ResumeLoader::require_source(const std::string& huggingface_config) const {
  if (huggingface_config.empty()) return;
  checkpoint::require_same_model(
      checkpoint::parse_huggingface_config(huggingface_config, "config.json kept in it"),
      settings_.model, settings_.training.sequence_length);
}

/// Rank 0 decides, as on other hosts the output folder may not be visible.
void ResumeLoader::find_place(const std::string& path, Loaded& loaded) {
  comm::Communicator& world = mesh_.world();
  mesh::run_collectively_by_name(world, [&] {
    if (!console_.is_root()) return;
    loaded.is_own = is_in_folder(path, own_);
    loaded.is_saved = loaded.is_own && own_.record_verified(path);
  });
  world.broadcast(&loaded.is_own, sizeof loaded.is_own, 0);
  world.broadcast(&loaded.is_saved, sizeof loaded.is_saved, 0);
}

void ResumeLoader::say_origin(const std::string& path, const checkpoint::Manifest& manifest,
                              const std::vector<std::string>& notes) const {
  std::vector<std::string> all = notes;
  const std::int64_t skipped = manifest.progress.skipped_in_a_row;
  if (skipped >= SkippedSteps::least_ruined)
    all.push_back(
        text("the last ", skipped, " steps before it were skipped: its parameters may be ruined"));
  std::string words =
      text("checkpoint\n  resumes from           ", path, ", step ", manifest.progress.step, " of ",
           settings_.training.steps, ", saved by ", manifest.ranks,
           manifest.ranks == 1 ? " rank" : " ranks", "\n", note_lines(all));
  if (console_.is_root()) {
    const char* title = "  the deck says now      ";
    for (const std::string& one : changes_since(settings_, manifest, path)) {
      words += title + one + "\n";
      title = "                         ";
    }
  }
  console_.say(words + "\n");
}

void ResumeLoader::tidy(const Loaded& loaded) const {
  std::optional<std::int64_t> restored;
  if (loaded.is_saved && in_folder_) restored = loaded.step;
  for (const std::string& line : clean_up_folder(own_, damaged_, restored))
    console_.say(line + "\n");
  if (options_.resume != Resume::none) return;
  const std::string aside = own_.set_aside();
  if (!aside.empty())
    console_.say(text("checkpoints of an earlier run are in ", aside, " now\n\n"));
}

namespace {

/// Notes sequences that are longer than those which the model of the weights knows. Learned
/// positions are compared elsewhere.
void note_longer_sequences(const checkpoint::ParameterSource& weights, const std::string& path,
                           std::int64_t tokens, std::vector<std::string>& notes) {
  const std::string kept = weights.huggingface_config();
  if (kept.empty()) return;
  const checkpoint::HuggingFaceConfig config = checkpoint::parse_huggingface_config(kept, path);
  if (config.model.positions != model::Positions::learned && tokens > config.positions)
    notes.push_back(text("training.sequence_length is ", tokens,
                         ", and in the weights' config.json ", config.shown_positions,
                         ": positions after it are new to the model"));
}

/// Returns the files or folders that `path` may stand for, the best first. Rank 0 searches.
std::vector<std::string> candidates(const std::string& path, comm::Communicator& world,
                                    Console& console) {
  std::vector<std::string> found;
  world.run_on_root([&] {
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

/// Notes that adapters of PEFT were trained with dropout, which training here has not. Rank 0 reads
/// the folder's configuration, before larger files are read. Collective.
void note_dropout(const std::string& adapters, comm::Communicator& world,
                  std::vector<std::string>& notes) {
  if (adapters.empty()) return;
  world.run_on_root([&] {
    const checkpoint::PeftConfig config = checkpoint::read_peft_config(adapters);
    if (config.dropout > 0.0)
      notes.push_back(text("'", config.path, "' has lora_dropout = ", config.dropout,
                           "; they are trained on without dropout"));
  });
}

/// Weights, and the path that they are read from.
struct OpenedWeights {
  std::unique_ptr<checkpoint::ParameterSource> source;
  std::string path;
};

/// Opens what checkpoint.initial_weights names, of the model without adapters if these are those of
/// lora.initial.
OpenedWeights open_candidate(const config::Settings& settings, const RunOptions& options,
                             comm::Communicator& world, Console& console) {
  OpenedWeights opened;
  const auto open = [&] {
    opened.source = checkpoint::open_parameters(
        opened.path,
        settings.lora_initial.empty() ? settings.model
                                      : checkpoint::without_adapters(settings.model),
        settings.training.sequence_length,
        [&](const std::string& deck) { config::require_same_model(settings, deck, opened.path); });
    if (console.is_root() && !options.dry_run && !opened.source->checks_what_it_reads())
      opened.source->verify();
  };
  const std::vector<std::string> paths =
      candidates(settings.checkpoint.initial_weights, world, console);
  for (std::size_t i = 0; opened.source == nullptr && i < paths.size(); ++i) {
    opened.path = paths[i];
    try {
      world.run_collectively(open);
    } catch (const CollectiveDamagedError& damage) {
      if (i + 1 == paths.size()) throw;
      opened.source = nullptr;
      console.say(text("damaged: ", damage.what(), "\n"));
    }
  }
  return opened;
}

}  // namespace

std::unique_ptr<checkpoint::ParameterSource> open_initial_weights(const config::Settings& settings,
                                                                  const RunOptions& options,
                                                                  const std::string& tokenizer,
                                                                  comm::Communicator& world,
                                                                  Console& console) {
  if (settings.checkpoint.initial_weights.empty()) {
    if (!settings.model_folder.empty())
      console.say(
          text("weights\n  begin as               random values\n",
               note_lines({text("model.from reads no weights; checkpoint.initial_weights = ",
                                config::Value::of(settings.model_folder).shown(),
                                " begins with those of the folder")}),
               "\n"));
    return nullptr;
  }
  const std::string key = "checkpoint.initial_weights", adapters = settings.lora_initial;
  std::vector<std::string> notes, of_adapters;
  about_path(settings, "lora.initial", [&] { note_dropout(adapters, world, of_adapters); });
  OpenedWeights opened =
      about_path(settings, key, [&] { return open_candidate(settings, options, world, console); });
  std::unique_ptr<checkpoint::ParameterSource>& weights = opened.source;
  if (!adapters.empty())
    about_path(settings, "lora.initial", [&] {
      world.run_collectively([&] {
        weights = checkpoint::add_adapters(std::move(weights), adapters, settings.model,
                                           settings.training.sequence_length);
      });
    });
  about_path(settings, key, [&] {
    world.run_on_root([&] {
      notes = require_same_tokenizer(weights->tokenizer(), opened.path, tokenizer, options.allowed);
      if (tokenizer == data::unknown_tokenizer && notes.empty())
        notes.emplace_back("nothing says whose tokens the weights know, nor whose the data has");
      note_longer_sequences(*weights, opened.path, settings.training.sequence_length, notes);
    });
  });
  notes.insert(notes.end(), of_adapters.begin(), of_adapters.end());
  if (!weights->unchecked().empty()) notes.push_back(weights->unchecked());
  console.say(text("weights\n  begin as in            ", opened.path, "\n",
                   adapters.empty() ? "" : text("  adapters as in         ", adapters, "\n"),
                   note_lines(notes), "\n"));
  return std::move(opened.source);
}

}  // namespace ostrakon::train
