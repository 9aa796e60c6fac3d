// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <ostrakon/checkpoint/folder.hpp>
#include <string>
#include <vector>

#include "../support/scratch_folder.hpp"
#include "small_checkpoint.hpp"

namespace ostrakon::checkpoint {

/// Whether calls fail of the functions that folder_commit_test.cpp replaces; not set: no call
/// fails.
inline std::function<bool(const std::string& from, const std::string& to)> rename_fails;
inline std::function<bool()> sync_fails;

/// A folder of small checkpoints.
class CheckpointFolder : public ::testing::Test {
 protected:
  ~CheckpointFolder() override {
    rename_fails = nullptr;
    sync_fails = nullptr;
  }
  std::string place(const std::string& name) const { return folder_.path() + "/" + name; }
  bool is_there(const std::string& name) const {
    return std::filesystem::exists(std::filesystem::symlink_status(place(name)));
  }
  std::string save(std::int64_t step, std::int64_t sequence, int version = 0) const {
    return testing::SmallCheckpoint(2, Files::single, false, version).save(folder_, step, sequence);
  }
  /// Returns the steps in the order of list(); unusable ones are negative.
  std::vector<std::int64_t> steps() const {
    std::vector<std::int64_t> found;
    for (const Folder::Entry& entry : folder_.list()) {
      found.push_back(entry.problem.empty() ? entry.step : -entry.step);
    }
    return found;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  using Steps = std::vector<std::int64_t>;
  using Names = std::vector<std::string>;

  ostrakon::testing::ScratchFolder scratch_;
  Folder folder_{scratch_.file("output/checkpoints")};
};

}  // namespace ostrakon::checkpoint
