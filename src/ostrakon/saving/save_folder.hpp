// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// Rank 0's part of each save: makes the new checkpoint's folder, gives it its manifest and its
/// name, and removes checkpoints that are not kept. It calls the guard before each change.
class SaveFolder {
 public:
  /// `keep`, `keep_every`: see SaverSettings.
  SaveFolder(const std::string& path, std::int64_t keep, std::int64_t keep_every);

  const checkpoint::Folder& folder() const { return folder_; }
  /// Sets the function that is called before names in the folder are changed; it may throw.
  void guard(std::function<void()> check) { check_ = std::move(check); }

  /// The largest sequence number in the folder; 0: none. Throws as checkpoint::Folder::list() does.
  std::int64_t last_sequence() const;

  /// Makes an empty folder for a checkpoint of `bytes` bytes; returns its path. Throws Error where
  /// the file system does not have that much space.
  std::string begin(std::int64_t step, std::int64_t bytes) const;

  struct Committed {
    std::string path;
    std::string remark;  ///< other failures, or renamed files; empty: none
  };
  /// Completes the folder of begin() for the manifest's step: `manifest` is without files,
  /// `entries` are the files that each rank has written. Failures after the new checkpoint has its
  /// name are only remarks.
  Committed commit(const checkpoint::Manifest& manifest,
                   const std::vector<std::string>& entries) const;

  /// Removes the folder of begin(), if possible.
  void abandon(std::int64_t step) const;

 private:
  checkpoint::Folder folder_;
  std::int64_t keep_, keep_every_;
  std::function<void()> check_ = [] {};
};

/// Whether a checkpoint is one of the folder, by its name: it may itself be a link to an archive.
/// Throws Error where the system does not say.
bool is_in_folder(const std::string& checkpoint, const checkpoint::Folder& folder);

/// Throws Error unless the folder exists or can be made: makes it, with its parents, and removes
/// what it has made. Does not check whether files can be written to an existing folder: a run may
/// only read them. On rank 0.
void require_usable(const checkpoint::Folder& folder);

/// Tidies a run's folder, after the checkpoint that it resumes from is loaded: renames `damaged`
/// checkpoints that are in it, removes what interrupted saves have left, and points `latest` to the
/// step that was restored, if given. On rank 0. Returns a line for each name that has changed, and
/// for each failure; throws Error where remove_partial() does.
std::vector<std::string> clean_up_folder(const checkpoint::Folder& folder,
                                         const std::vector<std::string>& damaged,
                                         std::optional<std::int64_t> restored);

}  // namespace ostrakon::train
