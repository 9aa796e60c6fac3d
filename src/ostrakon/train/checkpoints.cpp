// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/checkpoints.hpp>

#include <memory>
#include <ostrakon/base/error.hpp>
#include <ostrakon/mesh/named_agree.hpp>
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

void require_same_data(const Facts& ours, const Facts& theirs) {
  if (ours.empty() || theirs.empty()) return;
  const std::optional<FactDifference> one = first_difference(ours, theirs);
  if (one)
    throw Error(text("the ", one->name, " of its training data was ", one->theirs, ", and is ",
                     one->ours, " now"));
}

}  // namespace

Checkpoints::Checkpoints(const CheckpointOptions& options, mesh::Mesh& mesh, Trainer& trainer,
                         const data::SampleSource& samples)
    : mesh_(mesh),
      trainer_(trainer),
      data_(samples.identity()),
      saver_(saver_settings(options, trainer), mesh, trainer) {
  mesh.world().agree([&] {
    require(!options.folder.empty(), "no folder for checkpoints");
    require(options.keep >= 1 && options.keep_every >= 0, "keep is ", options.keep,
            " and keep_every ", options.keep_every, "; expected at least 1, and at least 0");
  });
  saver_.describe_data(data_);
}

std::int64_t Checkpoints::resume() {
  const checkpoint::Folder& folder = saver_.folder();
  const FoundCheckpoints found = find_resumable(mesh_, folder, std::nullopt);
  for (const std::string& path : found.sound) {
    try {
      restore(path);
    } catch (const AgreedDamage&) {
      continue;
    }
    mesh::agree_by_name(mesh_.world(), [&] {
      if (mesh_.world().rank() != 0) return;
      folder.note_sound(path);
      folder.remove_partial();
    });
    saved_step_ = trainer_.progress().step;
    return saved_step_;
  }
  if (!found.sound.empty() || !found.damaged.empty())
    throw AgreedError(text("all checkpoints in ", folder.path(), " are damaged"));
  return 0;
}

void Checkpoints::restore(const std::string& path) {
  const std::unique_ptr<checkpoint::CheckpointReader> reader = open_checkpoint(mesh_, path);
  const checkpoint::Manifest& manifest = reader->manifest();
  mesh_.world().agree([&] {
    try {
      trainer_.require_fit(manifest);
      const char* const optimizer = optim::name(trainer_.settings().optimizer.kind);
      require(manifest.optimizer == optimizer, "its optimizer is ", manifest.optimizer, ", not ",
              optimizer);
      require_same_data(data_, manifest.data);
    } catch (const Error& error) {
      throw Error(text("checkpoint ", path, " does not fit: ", error.what()));
    }
  });
  trainer_.restore(*reader);
}

void Checkpoints::save() {
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
