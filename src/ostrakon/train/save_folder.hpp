// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <ostrakon/checkpoint/folder.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <string>
#include <vector>

namespace ostrakon::train {

/// What rank 0 does of each save: it makes the new checkpoint's folder, gives it its manifest and
/// its name, and removes checkpoints that are not kept. Before each change it asks the guard.
class SaveFolder {
 public:
  /// `keep`, `keep_every`: see SaverSettings.
  SaveFolder(const std::string& path, std::int64_t keep, std::int64_t keep_every);

  const checkpoint::Folder& folder() const { return folder_; }
  /// From now on called before names in the folder are changed; what it throws comes out.
  void guard(std::function<void()> check) { check_ = std::move(check); }

  /// The largest of what is there; 0: none. Throws as checkpoint::Folder::list() does.
  std::int64_t last_sequence() const;

  /// Makes an empty folder for a checkpoint of `bytes` bytes; returns its path. Throws Error where
  /// the file system has no such space.
  std::string begin(std::int64_t step, std::int64_t bytes) const;

  struct Committed {
    std::string path;
    std::string remark;  ///< other failures, or what was renamed; empty: none
  };
  /// Completes what begin() made, of the manifest's step: `manifest` is without files, `entries`
  /// are what each rank has written. What comes after the new checkpoint has its name can't make it
  /// fail.
  Committed commit(const checkpoint::Manifest& manifest,
                   const std::vector<std::string>& entries) const;

  /// Removes what begin() made, where that can be done.
  void abandon(std::int64_t step) const;

 private:
  checkpoint::Folder folder_;
  std::int64_t keep_, keep_every_;
  std::function<void()> check_ = [] {};
};

}  // namespace ostrakon::train
