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

/// The checkpoints of one run: a folder of folders "step-00001200", and a symbolic link `latest` to
/// the one saved last. For one rank, and one thread at a time; the methods throw Error, naming the
/// path.
///
/// A save writes into "step-00001200.partial" and renames it when all of it, and the list of its
/// names, is on disk. So whatever ends the process, "step-00001200" is complete or not there: where
/// it has no manifest, this host does not see it (yet).
class Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  struct Entry {
    std::string path;
    std::int64_t step = 0;       ///< of its manifest or, where that is damaged, of its name
    std::int64_t sequence = 0;   ///< see Manifest
    std::string problem;         ///< what is damaged; empty where its manifest is sound
    bool is_unreadable = false;  ///< `problem` is no damage, but why it can't be read
    std::int64_t updates = 0;    ///< see Progress
    std::int64_t skipped_in_a_row = 0;
    bool is_renamed = false;  ///< its folder has the name of another step: a user's copy
  };
  enum class Unreadable {
    fail,  ///< the call throws
    tell   ///< the checkpoint is listed with its problem
  };
  /// Checkpoints, those saved last first; then those whose manifest is damaged, or can't be read,
  /// latest step first. One renamed for another of its step, which was never completed, is listed
  /// under the name that it has, and so is one with the name of another step. Looks at manifests
  /// only, and not again at those that are as they were. Empty where the folder is not there;
  /// throws where it is a link that leads nowhere.
  std::vector<Entry> list(Unreadable unreadable = Unreadable::fail) const;

  /// Names of checkpoints, by step.
  using Names = std::map<std::int64_t, std::string>;
  /// Those that list() would look at.
  Names names() const;
  /// What list() makes of names().
  std::vector<Entry> look_at(const Names& names, Unreadable unreadable = Unreadable::fail) const;

  /// Removes what interrupted saves have left behind. A checkpoint renamed for another of its step
  /// gets its name back or, where the other was completed, that of commit(). Returns the paths that
  /// were made so. Other files are not touched.
  std::vector<std::string> remove_partial() const;

  /// An empty folder to save `step` into, in place of what an earlier try left. Makes path(), too.
  std::string begin(std::int64_t step) const;
  struct Committed {
    std::string path;
    std::string previous;  ///< where what had its name is now; empty: nothing had
  };
  /// Writes the manifest into the folder from begin(), whose other files are on disk by then, and
  /// gives it its name. What had that name gets "<path>.previous", or "<path>.previous-2" and so on
  /// where that is taken; from the next remove_partial() where it can't now. Where it throws, names
  /// are as they were, as far as the system allows.
  Committed commit(std::int64_t step, const std::string& manifest) const;
  /// Points the link `latest` to the checkpoint of this step. What else has that name, as in a copy
  /// of the folder without links, gets "latest.previous", or "latest.previous-2" and so on where
  /// that is taken: returns its path, or nothing. Throws where there can be no link; once, while
  /// the reason is the same, as programs find the newest checkpoint without it.
  std::string mark_latest(std::int64_t step) const;
  /// Removes the folder from begin().
  void abandon(std::int64_t step) const;

  /// Takes note that a checkpoint was read whole and is sound, as those are that commit() made.
  /// Returns whether it is one of this folder, under a name that list() finds and that is its own.
  bool note_sound(const std::string& path) const;
  /// Where the last step before the newest checkpoint was skipped, its parameters may be ruined.
  /// Returns, the latest first, paths of what is there from before: the newest whose own last step
  /// was not skipped and, where that has as many updates as the newest of all, the newest such with
  /// fewer: an update that was computed from its parameters was finite. Throws as list() does.
  std::vector<std::string> fallbacks() const;
  /// Removes checkpoints that were saved before the last `keep`, but not those of which the step is
  /// a multiple of `keep_every` (0: none), nor those of fallbacks(), nor those whose manifest is
  /// damaged or whose folder was renamed, which don't count. Of what was saved or read whole by
  /// this process two stay (one where `keep` is 1), and nothing goes where no newer one of these
  /// stays: so there may be one more than `keep`. Removes nothing, and throws, where a manifest
  /// can't be read.
  void prune(std::int64_t keep, std::int64_t keep_every) const;

  /// Gives a folder with checkpoints the name "<path>.previous", or "<path>.previous-2" and so on
  /// where that is taken. Returns it; empty where there are no checkpoints. Where path() is a link,
  /// that is what happens to the folder that it leads to, and an empty one takes its place: what
  /// was linked to another disk continues there.
  std::string set_aside() const;

  /// Gives a checkpoint of this folder, by its path, the name "<path>.damaged", or
  /// "<path>.damaged-2" and so on where that is taken, which is none of a checkpoint, nor of what
  /// saves leave behind. Returns it.
  std::string set_damaged_aside(const std::string& path) const;

 private:
  /// What differs between any two manifests that had one path after each other: device, inode,
  /// bytes, and the time of the last change in seconds and nanoseconds.
  using Stamp = std::array<std::int64_t, 5>;
  struct Known {
    Stamp stamp{};
    Entry entry;
  };

  static Stamp stamp_of(const std::string& path);
  Known known(const std::string& path, std::int64_t step) const;

  std::string path_;
  mutable std::map<std::string, Known> known_;  // sound checkpoints, by path
  mutable std::set<std::int64_t> sound_steps_;  // saved or read whole
  mutable std::string no_link_;                 // why `latest` could not be made
};

/// The name of the link to the checkpoint saved last.
constexpr const char* latest_name = "latest";

/// "step-00001200"
std::string folder_name(std::int64_t step);

/// Whether `path` is a folder with a manifest in it: a checkpoint, whole or not. Throws Error where
/// the system does not say.
bool is_checkpoint(const std::string& path);

}  // namespace ostrakon::checkpoint
