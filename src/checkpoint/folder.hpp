// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// The checkpoints of one run: a folder of folders "step-00001200", and a symbolic link `latest` to
/// the one saved last. For one rank; the methods throw Error, naming the path.
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
  /// Checkpoints, those saved last first; then those whose manifest can't be read, latest step first.
  /// Looks at manifests only. Empty where the folder is not there.
  std::vector<Entry> list() const;

  /// Removes what interrupted saves have left behind. Other files are let alone.
  void remove_partial() const;

  /// An empty folder to save `step` into, in place of what an earlier try left. Makes path(), too.
  std::string begin(std::int64_t step) const;
  /// Writes the manifest into the folder from begin(), whose other files are on disk by then, and
  /// gives it its name. A checkpoint that had the name is removed. Then `latest` is set. Returns the
  /// checkpoint's path.
  std::string commit(std::int64_t step, const std::string& manifest) const;
  /// Removes the folder from begin().
  void abandon(std::int64_t step) const;

  /// Removes all sound checkpoints but the last `keep` saved, and those of which the step is a
  /// multiple of `keep_every` (0: none).
  void prune(std::int64_t keep, std::int64_t keep_every) const;

  /// Gives a folder with checkpoints the name "<path>.previous", or "<path>.previous-2" and so on
  /// where that is taken. Returns it; empty where there are no checkpoints.
  std::string set_aside() const;

 private:
  std::string path_;
};

/// "step-00001200"
std::string folder_name(std::int64_t step);

/// Whether `path` is a folder with a manifest in it: a checkpoint, whole or not.
bool is_checkpoint(const std::string& path);

}  // namespace ostrakon::checkpoint
