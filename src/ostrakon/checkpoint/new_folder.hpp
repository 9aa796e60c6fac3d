// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace ostrakon::checkpoint {

/// A folder that is filled under the name "<path>.partial" and then gets its own: under that there
/// is all of it or nothing. What an earlier try left under the temporary name is removed.
class NewFolder {
 public:
  /// Makes the temporary folder, and those that it lies in. Throws Error where `path` is there
  /// already, unless as an empty folder.
  explicit NewFolder(const std::string& path);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  /// Removes what was not committed.
  ~NewFolder();

  /// To write into.
  const std::string& partial() const { return partial_; }

  /// Its files are on disk by then.
  void commit();

 private:
  std::string path_;
  std::string partial_;  ///< empty: nothing to remove
};

}  // namespace ostrakon::checkpoint
