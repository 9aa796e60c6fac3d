// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/saving/resume_search.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/latest.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <sstream>
#include <utility>

namespace ostrakon::train {
namespace {

using checkpoint::Folder;

enum class Kind : int { nothing, checkpoint, folder };

/// Returns what is at `path`; a run's folder is replaced by its folder of checkpoints.
Kind kind_at(std::string& path) {
  if (checkpoint::is_checkpoint(path)) return Kind::checkpoint;
  if (!is_folder(path)) return Kind::nothing;
  const std::string inner = path + "/checkpoints", broken = broken_link(inner);
  require(broken.empty(), broken);
  if (is_folder(inner)) path = inner;
  return Kind::folder;
}

/// Joins texts to one, and splits it again; no path has the separator in it.
std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& one : texts) all += one + '\0';
  return all;
}

std::vector<std::string> separated(const std::string& all) {
  std::vector<std::string> texts;
  std::istringstream stream(all);
  for (std::string one; std::getline(stream, one, '\0');) texts.push_back(one);
  return texts;
}

/// Throws CollectiveError where another host sees more checkpoints than `names`, which rank 0 has
/// seen: its host may have an outdated list of the folder.
void require_no_more(mesh::Mesh& mesh, const std::string& path, const Folder::Names& names) {
  comm::Communicator& world = mesh.world();
  const bool is_root = world.rank() == 0;
  std::vector<std::string> steps;
  for (const auto& [step, name] : names) steps.push_back(std::to_string(step));
  const std::string seen = world.broadcast(joined(steps), 0);
  const std::string root = world.broadcast(is_root ? host_name() : "", 0);
  mesh::run_collectively_by_name(world, [&] {
    const bool looks = mesh.host().rank() == 0 || mesh.node().rank() == 0;
    if (is_root || !looks) return;
    Folder::Names more = Folder(path).names();
    for (const std::string& step : separated(seen)) more.erase(std::stoll(step));
    require(more.empty(), "sees checkpoint '", path, "/", more.empty() ? "" : more.rbegin()->second,
            "', which rank 0 on ", root, " does not see (yet)");
  });
}

}  // namespace

FoundCheckpoints find_resumable(mesh::Mesh& mesh, const Folder& own,
                                const std::optional<std::string>& asked) {
  comm::Communicator& world = mesh.world();
  const bool is_root = world.rank() == 0;
  const bool automatic = !asked;
  const std::string given = asked.value_or("auto");
  std::string path = asked.value_or(own.path());
  std::string note;
  Kind kind = Kind::folder;
  mesh::run_collectively_by_name(world, [&] {
    if (!is_root || automatic) return;
    const std::string broken = broken_link(path);
    require(broken.empty(), "--resume ", given, ": ", broken);
    const checkpoint::ResolvedCheckpoint meant = checkpoint::follow_latest(path);
    path = meant.path;
    note = meant.note;
    kind = kind_at(path);
  });
  world.broadcast(&kind, sizeof kind, 0);
  path = world.broadcast(path, 0);
  world.run_collectively([&] {
    require(kind != Kind::nothing, "--resume ", given,
            ": is no checkpoint, nor a folder of checkpoints; expected auto, none or a path");
  });

  FoundCheckpoints found;
  found.note = note;
  if (kind == Kind::checkpoint) {
    found.sound = {path};
    return found;
  }
  found.in_folder = true;
  const Folder other(path);
  const Folder& folder = path == own.path() ? own : other;
  Folder::Names names;
  mesh::run_collectively_by_name(world, [&] {
    if (!is_root) return;
    names = folder.names();
    for (const Folder::Entry& entry : folder.look_at(names)) {
      (entry.problem.empty() ? found.sound : found.damaged).push_back(entry.path);
      if (!entry.problem.empty()) found.problems.push_back(entry.problem);
    }
  });
  require_no_more(mesh, path, names);
  found.sound = separated(world.broadcast(joined(found.sound), 0));
  found.damaged = separated(world.broadcast(joined(found.damaged), 0));
  world.run_collectively([&] {
    require(automatic || !found.sound.empty(), "--resume ", given,
            ": has no checkpoint that can be used");
  });
  return found;
}

std::unique_ptr<checkpoint::CheckpointReader> open_checkpoint(mesh::Mesh& mesh,
                                                              const std::string& path) {
  comm::Communicator& world = mesh.world();
  std::string manifest;
  mesh::run_collectively_by_name(world, [&] {
    if (world.rank() == 0) manifest = checkpoint::load_manifest(path);
  });
  manifest = world.broadcast(manifest, 0);
  std::unique_ptr<checkpoint::CheckpointReader> reader;
  mesh::run_collectively_by_name(world, [&] {
    reader = std::make_unique<checkpoint::CheckpointReader>(path, manifest);
    const auto files = static_cast<int>(reader->manifest().files.size());
    for (int file = world.rank(); file < files; file += world.size())
      reader->verify_structure(file);
  });
  return reader;
}

RestoredCheckpoint restore_first(mesh::Mesh& mesh, Trainer& trainer,
                                 const std::vector<std::string>& paths, const ResumeCalls& calls) {
  for (const std::string& path : paths) {
    try {
      std::unique_ptr<checkpoint::CheckpointReader> reader = open_checkpoint(mesh, path);
      mesh.world().run_collectively([&] {
        try {
          // This check names all settings that differ; the next would name only the first
          // parameter.
          calls.require_fit(reader->manifest(), path);
          trainer.require_fit(reader->manifest());
        } catch (const Error& error) {
          throw Error(
              text("checkpoint ", path, " does not fit", calls.to_what, ": ", error.what()));
        }
      });
      trainer.restore(*reader);
      return {path, std::move(reader)};
    } catch (const CollectiveDamagedError& damage) {
      calls.note_damage(path, damage);
    }
  }
  return {};
}

}  // namespace ostrakon::train
