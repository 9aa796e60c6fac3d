// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::checkpoint {

/// The checkpoints of one run: a folder of folders "step-00001200", and a symbolic link `latest` to
/// the one saved last. For one rank, and one thread at a time; the methods throw Error, naming the
/// path.
///
/// A save writes into "step-00001200.partial" and renames it when all of it, and the list of its
/// names, is on disk. So whatever ends the process, "step-00001200" is complete or not there.
class Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  struct Entry {
    std::string path;
    std::int64_t step = 0;
    std::int64_t sequence = 0;  ///< see Manifest
    std::string problem;        ///< why it can't be used; empty where its manifest is sound
  };
  /// Checkpoints, those saved last first; then those whose manifest can't be read, latest step
  /// first. Looks at manifests only, and not again at those that are as they were. Empty where the
  /// folder is not there.
  std::vector<Entry> list() const;

  /// Removes what interrupted saves have left behind, and gives a checkpoint that was to be
  /// replaced its name back. Other files are let alone. To be called before list().
  void remove_partial() const;

  /// An empty folder to save `step` into, in place of what an earlier try left. Makes path(), too.
  std::string begin(std::int64_t step) const;
  /// Writes the manifest into the folder from begin(), whose other files are on disk by then, and
  /// gives it its name, which another checkpoint may have had, that is removed then, or by the next
  /// remove_partial() where that can't be. Returns its path. Where it throws, names are as they
  /// were, as far as the system allows.
  std::string commit(std::int64_t step, const std::string& manifest) const;
  /// Points `latest` to the checkpoint of this step.
  void mark_latest(std::int64_t step) const;
  /// Removes the folder from begin().
  void abandon(std::int64_t step) const;

  /// Removes all sound checkpoints but the last `keep` saved, and those of which the step is a
  /// multiple of `keep_every` (0: none).
  void prune(std::int64_t keep, std::int64_t keep_every) const;

  /// Gives a folder with checkpoints the name "<path>.previous", or "<path>.previous-2" and so on
  /// where that is taken. Returns it; empty where there are no checkpoints. Where path() is a link,
  /// that is what happens to the folder that it leads to, and an empty one comes in its place: what
  /// was linked to another disk goes on there.
  std::string set_aside() const;

  /// Gives a checkpoint of this folder, by its path, the name "<path>.damaged", or
  /// "<path>.damaged-2" and so on where that is taken, which is none of a checkpoint, nor of what
  /// saves leave behind. Returns it.
  std::string set_damaged_aside(const std::string& path) const;

 private:
  /// What is not the same for any two manifests that stood in one place after each other: device,
  /// inode, bytes, and the time of the last change in seconds and nanoseconds.
  using Stamp = std::array<std::int64_t, 5>;
  struct Known {
    Stamp stamp{};
    Entry entry;
  };

  static Stamp stamp_of(const std::string& path);
  Known look_at(const std::string& path, std::int64_t step) const;

  std::string path_;
  mutable std::map<std::string, Known> known_;  // sound checkpoints, by path
};

/// "step-00001200"
std::string folder_name(std::int64_t step);

/// Whether `path` is a folder with a manifest in it: a checkpoint, whole or not.
bool is_checkpoint(const std::string& path);

}  // namespace ostrakon::checkpoint
