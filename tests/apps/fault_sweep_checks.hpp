// SPDX-License-Identifier: Apache-2.0
#pragma once

// What files must hold. Functions that return nothing throw where they don't.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ostrakon::testing {

/// Throws `what` where the condition does not hold.
void expect(bool condition, const std::string& what);
void compare_bytes(const std::filesystem::path& found, const std::filesystem::path& expected);
bool are_same_files(const std::filesystem::path& a, const std::filesystem::path& b);
/// Whether every file of a folder is in another one, too, with the same bytes.
bool holds_files_of(const std::filesystem::path& folder, const std::filesystem::path& expected);
/// What is in a folder, by names that begin so.
std::vector<std::filesystem::path> entries(const std::filesystem::path& folder,
                                           const std::string& start);
void compare_weights(const std::filesystem::path& found, const std::filesystem::path& expected);
void compare_tokens(const std::filesystem::path& found, const std::filesystem::path& expected);
void verify_checkpoint(const std::filesystem::path& folder);
void verify_json(const std::filesystem::path& file);
void verify_metrics(const std::filesystem::path& file, std::int64_t steps);

}  // namespace ostrakon::testing
