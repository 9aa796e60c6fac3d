// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::checkpoint {

/// A folder that is filled under the name "<path>.partial" and then renamed, so that `path` is
/// complete or missing. The remains of an earlier try are removed.
class NewFolder {
 public:
  /// Creates the temporary folder and its parents. Throws Error if `path` exists and is not an
  /// empty folder.
  explicit NewFolder(const std::string& path);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  /// Removes the temporary folder if it was not committed.
  ~NewFolder();

  /// The temporary folder to write into.
  const std::string& partial() const { return partial_; }

  /// Renames the folder. Its files must be on disk.
  void commit();

 private:
  std::string path_;
  std::string partial_;  ///< empty: nothing to remove
};

}  // namespace ostrakon::checkpoint
