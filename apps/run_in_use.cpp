// SPDX-License-Identifier: Apache-2.0
#include "run_in_use.hpp"

#include <filesystem>
#include <iostream>
#include <ostrakon/base/files.hpp>

namespace ostrakon::apps {

std::unique_ptr<FolderLock> hold_run_folder(const std::string& out) {
  namespace fs = std::filesystem;
  fs::path folder = fs::absolute(fs::path(out).lexically_normal()).parent_path();
  if (folder.filename() == "checkpoints") folder = folder.parent_path();
  if (is_missing((folder / "run.lock").string())) return nullptr;
  FolderLockOptions options;
  options.advice = "; choose another OUT, or wait for its end";
  options.tell = [](const std::string& words) { std::cerr << "note: " << words << std::endl; };
  return std::make_unique<FolderLock>(folder.string(), options);
}

}  // namespace ostrakon::apps
