// SPDX-License-Identifier: Apache-2.0
#pragma once

// The programs that are run with faults, and what must be true of their files then.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace ostrakon::testing {

using FileCheck = std::function<void(const std::filesystem::path& folder,
                                     const std::filesystem::path& reference)>;

struct FaultyProgram {
  std::string name;
  /// The program first; @ stands for the folder that it runs in.
  std::vector<std::string> arguments;
  int ranks = 1;
  std::string faulty_rank;  ///< empty: the only one
  FileCheck verify;         ///< what it wrote, where it says that it did
  FileCheck keep;           ///< what was there before, whatever happened
  bool goes_on = false;     ///< where it fails, the same without faults then ends well
};

/// Throws where the checkpoint that a run resumes from is gone, or not as it was in `before`.
void keep_checkpoint_in_place(const std::filesystem::path& folder,
                              const std::filesystem::path& before);
/// Throws where weights, checkpoints, deck, plan or metrics are not those of a run of `steps`
/// steps.
void verify_results(const std::filesystem::path& folder, const std::filesystem::path& reference,
                    std::int64_t steps);
/// The newest step, up to `steps`, of which there is a good checkpoint; 0: none.
std::int64_t newest_step(const std::filesystem::path& folder, std::int64_t steps);

/// The steps of those that resume.
constexpr std::int64_t resume_steps = 4;

/// The first trains, and makes what the others read.
std::vector<FaultyProgram> programs();

}  // namespace ostrakon::testing
