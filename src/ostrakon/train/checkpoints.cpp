// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/checkpoints.hpp>

#include <memory>
#include <ostrakon/base/error.hpp>
#include <ostrakon/comm/agreement.hpp>
#include <ostrakon/mesh/named_agree.hpp>
#include <ostrakon/train/continuation.hpp>
#include <ostrakon/train/resume_search.hpp>

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

}  // namespace

Checkpoints::Checkpoints(const CheckpointOptions& options, mesh::Mesh& mesh, Trainer& trainer,
                         const data::SampleSource& samples)
    : mesh_(mesh), trainer_(trainer), saver_(saver_settings(options, trainer), mesh, trainer) {
  mesh.world().agree([&] {
    require(!options.folder.empty(), "no folder for checkpoints");
    require(options.keep >= 1 && options.keep_every >= 0, "keep is ", options.keep,
            " and keep_every ", options.keep_every, "; expected at least 1, and at least 0");
    data_ = samples.identity();
  });
  comm::require_agreement(mesh.world(), "ranks have different checkpoints", facts_of(options));
  comm::require_agreement(mesh.world(), "ranks have different training data", data_);
  saver_.describe_data(data_);
}

std::int64_t Checkpoints::resume() {
  const checkpoint::Folder& folder = saver_.folder();
  const FoundCheckpoints found = find_resumable(mesh_, folder, std::nullopt);
  ResumeCalls calls;
  calls.require_fit = [this](const checkpoint::Manifest& manifest, const std::string&) {
    require_same_run(manifest);
  };
  calls.note_damage = [](const std::string&, const AgreedDamage&) {};
  const RestoredCheckpoint restored = restore_first(mesh_, trainer_, found.sound, calls);
  const bool has_restored = restored.reader != nullptr;
  if (!has_restored && found.sound.empty() && found.damaged.empty()) return 0;
  if (!has_restored) throw AgreedError(text("all checkpoints in ", folder.path(), " are damaged"));
  mesh::agree_by_name(mesh_.world(), [&] {
    if (mesh_.world().rank() != 0) return;
    folder.note_sound(restored.path);
    folder.remove_partial();
  });
  is_ours_ = true;
  saved_step_ = trainer_.progress().step;
  return saved_step_;
}

void Checkpoints::require_same_run(const checkpoint::Manifest& manifest) const {
  const char* const optimizer = optim::name(trainer_.settings().optimizer.kind);
  require(manifest.optimizer == optimizer, "its optimizer is ", manifest.optimizer, ", not ",
          optimizer);
  if (data_.empty() || manifest.data.empty()) return;
  const std::string change = data_change(data_, manifest.data);
  require(change.empty(), change, " now");
}

/// Another run's checkpoints are not to be taken for those of this one, nor removed as old ones.
void Checkpoints::take_folder() {
  mesh::agree_by_name(mesh_.world(), [&] {
    if (mesh_.world().rank() != 0) return;
    saver_.folder().remove_partial();
    set_aside_ = saver_.folder().set_aside();
  });
  set_aside_ = mesh_.world().broadcast(set_aside_, 0);
  is_ours_ = true;
}

void Checkpoints::save() {
  trainer_.require_state("Checkpoints::save");
  if (!is_ours_) take_folder();
  finish();
  saver_.begin(trainer_.progress(), "", saver_.can_overlap());
  if (!saver_.can_overlap()) finish();
}

void Checkpoints::advance() {
  if (!saver_.is_saving()) return;
  double is_idle = saver_.is_busy() ? 0.0 : 1.0;
  mesh_.world().minimum(&is_idle, 1);
  if (is_idle > 0.0) note(saver_.advance());
}

void Checkpoints::finish() { note(saver_.finish()); }

void Checkpoints::note(const std::optional<Saver::Saved>& saved) {
  if (saved) saved_step_ = saved->step;
}

}  // namespace ostrakon::train
