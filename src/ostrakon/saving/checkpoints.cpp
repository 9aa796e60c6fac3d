// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/saving/checkpoints.hpp>

#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/comm/agreement.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/saving/continuation.hpp>
#include <ostrakon/saving/resume_search.hpp>
#include <ostrakon/saving/save_folder.hpp>

namespace ostrakon::train {
namespace {

SaverSettings saver_settings(const CheckpointOptions& options, const Trainer& trainer) {
  SaverSettings settings;
  settings.folder = options.folder;
  settings.keep = options.keep;
  settings.keep_every = options.keep_every;
  settings.files = options.files;
  settings.verify = options.verify;
  settings.optimizer = optim::name(trainer.settings().optimizer.kind);
  return settings;
}

Facts facts_of(const CheckpointOptions& options) {
  return {{"folder of checkpoints", "'" + options.folder + "'"},
          {"keep", std::to_string(options.keep)},
          {"keep_every", std::to_string(options.keep_every)},
          {"files", checkpoint::name(options.files)},
          {"verify", options.verify ? "true" : "false"}};
}

std::vector<std::string> damage_lines(const std::vector<std::string>& problems) {
  std::vector<std::string> lines;
  for (const std::string& problem : problems) lines.push_back("damaged: " + problem);
  return lines;
}

/// Throws CollectiveError: all checkpoints are damaged. `problems`: from rank 0.
[[noreturn]] void refuse_all(const std::string& folder, const std::vector<std::string>& problems,
                             comm::Communicator& world) {
  std::string reasons;
  for (const std::string& problem : problems) reasons += (reasons.empty() ? "" : "; ") + problem;
  throw CollectiveError(text("all checkpoints in ", folder,
                             " are damaged: ", world.broadcast(reasons, 0),
                             "; a run without resume() renames the folder and begins at step 1"));
}

}  // namespace

Checkpoints::Checkpoints(const CheckpointOptions& options, mesh::Mesh& mesh, Trainer& trainer,
                         data::SampleSource& samples)
    : mesh_(mesh),
      trainer_(trainer),
      samples_(samples),
      saver_(saver_settings(options, trainer), mesh, trainer),
      tell_(options.tell) {
  mesh.world().run_collectively([&] {
    require(!options.folder.empty(), "no folder for checkpoints");
    require(options.keep >= 1 && options.keep_every >= 0, "keep is ", options.keep,
            " and keep_every ", options.keep_every, "; expected at least 1, and at least 0");
    data_ = samples.identity();
  });
  comm::require_agreement(mesh.world(), "ranks have different checkpoints", facts_of(options));
  comm::require_agreement(mesh.world(), "ranks have different training data", data_);
  mesh::run_collectively_by_name(mesh.world(), [&] {
    if (mesh.world().rank() == 0) require_usable(saver_.folder());
  });
}

std::int64_t Checkpoints::resume() {
  finish();
  const FoundCheckpoints found = find_resumable(mesh_, saver_.folder(), std::nullopt);
  std::vector<std::string> damaged = found.damaged, problems = found.problems, notes;
  ResumeCalls calls;
  calls.require_fit = [&](const checkpoint::Manifest& manifest, const std::string& path) {
    notes.clear();
    for (const std::string& note : require_same_run(manifest))
      notes.push_back("checkpoint " + path + ": " + note);
  };
  calls.note_damage = [&](const std::string& path, const CollectiveDamagedError& damage) {
    damaged.push_back(path);
    problems.emplace_back(damage.what());
  };
  RestoredCheckpoint restored;
  try {
    restored = restore_first(mesh_, trainer_, found.sound, calls);
  } catch (const CollectiveError&) {
    tell(damage_lines(problems));
    throw;
  }
  if (restored.reader == nullptr) {
    if (damaged.empty()) return 0;
    refuse_all(saver_.folder().path(), problems, mesh_.world());
  }
  tell(damage_lines(problems));
  tell(notes);
  continue_samples(restored.reader->manifest().data);
  begin_from(restored.path, damaged);
  return saved_step_;
}

void Checkpoints::continue_samples(const Facts& kept) {
  mesh_.world().run_collectively([&] {
    samples_.continue_from(static_cast<std::uint64_t>(trainer_.progress().samples),
                           data::kept_choices(kept));
  });
}

/// Rank 0 makes the changes, as on other hosts the folder may not be visible.
void Checkpoints::begin_from(const std::string& path, const std::vector<std::string>& damaged) {
  comm::Communicator& world = mesh_.world();
  saved_step_ = trainer_.progress().step;
  std::vector<std::string> lines;
  mesh::run_collectively_by_name(world, [&] {
    if (world.rank() != 0) return;
    is_saved_ = saver_.folder().record_verified(path);
    lines = clean_up_folder(saver_.folder(), damaged,
                            is_saved_ ? std::optional<std::int64_t>(saved_step_) : std::nullopt);
  });
  world.broadcast(&is_saved_, sizeof is_saved_, 0);
  tell(lines);
  is_ours_ = true;
}

/// Throws Error where the checkpoint is of another run. Returns what could not be compared.
std::vector<std::string> Checkpoints::require_same_run(const checkpoint::Manifest& manifest) const {
  std::vector<std::string> notes = require_steps_and_program(
      manifest, trainer_.settings().steps, false, {"settings.steps", "no resume()", ""});
  const char* const optimizer = optim::name(trainer_.settings().optimizer.kind);
  require(manifest.optimizer == optimizer, "its optimizer is ", manifest.optimizer, ", not ",
          optimizer);
  if (data_.empty() != data::kept_identity(manifest.data).empty()) {
    notes.push_back(text(data_.empty() ? "the samples have no identity()"
                                       : "it does not say what data it was trained on",
                         ": whether it is the same data is not known"));
    return notes;
  }
  const std::string change = data_change(data_, manifest.data);
  require(change.empty(), change, " now");
  return notes;
}

/// Renames another run's folder, so that its checkpoints are neither resumed from nor removed as
/// old.
void Checkpoints::take_folder() {
  std::vector<std::string> lines;
  mesh::run_collectively_by_name(mesh_.world(), [&] {
    if (mesh_.world().rank() != 0) return;
    lines = clean_up_folder(saver_.folder(), {}, std::nullopt);
    set_aside_ = saver_.folder().set_aside();
  });
  set_aside_ = mesh_.world().broadcast(set_aside_, 0);
  if (!set_aside_.empty())
    lines.push_back(text("checkpoints of an earlier run are in ", set_aside_, " now"));
  tell(lines);
  is_ours_ = true;
}

void Checkpoints::save() {
  trainer_.require_state("Checkpoints::save");
  if (!trainer_.is_intact())
    throw CollectiveError(
        "Checkpoints::save was called after a step that failed with some of the parameters "
        "updated, or by an audit; expected Checkpoints::resume, or Trainer::initialize, before");
  if (!is_ours_) take_folder();
  finish();
  if (is_saved_ && saved_step_ == trainer_.progress().step) return;
  saver_.describe_data(
      data::facts_to_keep(samples_, static_cast<std::uint64_t>(trainer_.progress().samples)));
  saver_.begin(trainer_.progress(), "", saver_.can_overlap());
  if (!saver_.can_overlap()) finish();
}

void Checkpoints::advance() {
  if (!saver_.is_saving()) return;
  double is_idle = saver_.is_busy() ? 0.0 : 1.0;
  mesh_.world().all_reduce_min(&is_idle, 1);
  if (is_idle > 0.0) note(saver_.advance());
}

void Checkpoints::finish() { note(saver_.finish()); }

void Checkpoints::finish_after(const std::function<void()>& steps) {
  try {
    steps();
  } catch (const CollectiveError&) {
    try {
      finish();
    } catch (const CollectiveError& error) {
      tell({text("checkpoint failed: ", error.what())});
    }
    throw;
  }
  finish();
}

void Checkpoints::note(const std::optional<Saver::Saved>& saved) {
  if (!saved) return;
  saved_step_ = saved->step;
  is_saved_ = true;
  if (!saved->remark.empty()) tell({text("checkpoint ", saved->path, ": ", saved->remark)});
}

void Checkpoints::tell(const std::vector<std::string>& lines) const {
  if (mesh_.world().rank() != 0) return;
  for (const std::string& line : lines) {
    if (tell_)
      tell_(line);
    else
      std::cerr << printable_lines(line + "\n") << std::flush;
  }
}

}  // namespace ostrakon::train
