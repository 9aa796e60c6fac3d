// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::checkpoint {

/// The checkpoints of one run: a folder with subfolders "step-00001200", and a symbolic link
/// `latest` to the last one saved. Used by one rank, from one thread at a time. Methods throw
/// Error, naming the path.
///
/// A save writes into "step-00001200.partial", and renames it after all of it, including its
/// directory entries, is on disk. So whenever the process ends, "step-00001200" is complete or does
/// not exist: if it has no manifest, this host does not see it (yet).
class Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  struct Entry {
    std::string path;
    std::int64_t step = 0;       ///< from its manifest or, if damaged, from its name
    std::int64_t sequence = 0;   ///< as Manifest::sequence
    std::string problem;         ///< damage of the manifest; empty: it is sound
    bool is_unreadable = false;  ///< `problem` is a read error, not damage
    std::int64_t updates = 0;    ///< as Progress::updates
    std::int64_t skipped_in_a_row = 0;
    bool is_renamed = false;  ///< folder named for another step: a user's copy
  };
  enum class Unreadable {
    fail,  ///< the call throws
    tell   ///< the checkpoint is listed with its problem
  };
  /// Lists checkpoints, the last saved first; then those with a damaged or unreadable manifest, the
  /// latest step first. A checkpoint that was renamed to be replaced, by one that was never
  /// completed, is listed under its current name; so is one whose folder is named for another step.
  /// Reads only manifests, and caches sound ones until they change. Empty if the folder is missing;
  /// throws if it is a broken link.
  std::vector<Entry> list(Unreadable unreadable = Unreadable::fail) const;

  /// Names of checkpoints, keyed by step.
  using Names = std::map<std::int64_t, std::string>;
  /// Returns the names that list() would read.
  Names names() const;
  /// Returns what list() returns, for these names.
  std::vector<Entry> look_at(const Names& names, Unreadable unreadable = Unreadable::fail) const;

  /// Removes the remains of interrupted saves. A checkpoint that was renamed to be replaced gets
  /// its name back or, if its replacement was completed, the name that commit() gives. Returns the
  /// new paths. Other files are not touched.
  std::vector<std::string> remove_partial() const;

  /// Creates an empty folder to save `step` into, replacing an incomplete one. Creates path(), too.
  std::string begin(std::int64_t step) const;
  struct Committed {
    std::string path;
    std::string previous;  ///< new path of the replaced checkpoint; empty: none
  };
  /// Writes the manifest into the folder from begin(), whose other files are on disk, and renames
  /// it to its final name. A checkpoint of that name is renamed to "<path>.previous", or
  /// "<path>.previous-2" and so on if that exists; if that fails, the next remove_partial() does
  /// it. If it throws, names are unchanged, as far as the system allows.
  Committed commit(std::int64_t step, const std::string& manifest) const;
  /// Points the link `latest` to the checkpoint of this step. A file or folder of that name, as in
  /// a copy of the folder without links, is renamed to "latest.previous", or "latest.previous-2"
  /// and so on if that exists; its path is returned, else "". Throws if the link can't be created,
  /// once per reason, as programs find the newest checkpoint without it.
  std::string mark_latest(std::int64_t step) const;
  /// Removes the folder from begin().
  void abandon(std::int64_t step) const;

  /// Records that a checkpoint was read completely and is sound, as checkpoints from commit() are.
  /// Returns whether it is a checkpoint of this folder under its own name.
  bool record_verified(const std::string& path) const;
  /// Returns checkpoints to fall back to if the last step before the newest checkpoint was skipped,
  /// as its parameters may be invalid; the latest first. These are the newest whose own last step
  /// was not skipped and, if that has as many updates as the newest of all, the newest such with
  /// fewer updates: an update computed from its parameters was finite. Throws as list() does.
  std::vector<std::string> fallbacks() const;
  /// Removes old checkpoints. It keeps the last `keep`, multiples of `keep_every` (0: none),
  /// fallbacks(), and the newest of those before `audited_step`, whose audit was made of the
  /// parameters before the update of that step: a fault may have begun with that update.
  /// Damaged and renamed ones are kept, and not counted. Of those that this process has saved or
  /// read completely two are kept (one if `keep` is 1), and none is removed without a newer one of
  /// these, so `keep` + 1 may stay. Removes nothing, and throws, if a manifest can't be read.
  void prune(std::int64_t keep, std::int64_t keep_every, std::int64_t audited_step = 0) const;

  /// Renames the folder, if it has checkpoints, to "<path>.previous", or "<path>.previous-2" and so
  /// on if that exists. Returns the new path; empty if it has no checkpoints. If path() is a link,
  /// its target is renamed and replaced by an empty folder, so that a link to another disk stays in
  /// use.
  std::string set_aside() const;

  /// Renames a checkpoint of this folder to "<path>.damaged", or "<path>.damaged-2" and so on if
  /// that exists. Such names are not those of checkpoints or remains of saves. Returns the new
  /// path.
  std::string quarantine(const std::string& path) const;

 private:
  /// Identifies a version of a manifest at a path: device, inode, size, and time of the last change
  /// in seconds and nanoseconds.
  using Stamp = std::array<std::int64_t, 5>;
  struct Known {
    Stamp stamp{};
    Entry entry;
  };

  static Stamp stamp_of(const std::string& path);
  Known known(const std::string& path, std::int64_t step) const;

  std::string path_;
  mutable std::map<std::string, Known> known_;  // sound checkpoints, keyed by path
  mutable std::set<std::int64_t> sound_steps_;  // steps that were saved or read completely
  mutable std::string no_link_;                 // last error in creating `latest`
};

/// The name of the link to the last saved checkpoint.
constexpr const char* latest_name = "latest";

/// Returns the folder name of a step: "step-00001200".
std::string folder_name(std::int64_t step);

/// Whether `path` is a folder with a manifest, complete or not. Throws Error if the system can't
/// tell.
bool is_checkpoint(const std::string& path);

}  // namespace ostrakon::checkpoint
