// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace ostrakon::test {

/// Compares with `name` in `folder`, line by line. Where a change is meant to show there,
///   cp build-ci/tests/model/NAME tests/model/NAME
/// after the test has failed, and the commit says what changed and why.
inline void expect_lines_of(const std::string& name, const std::string& found,
                            const std::string& folder = "tests/model") {
  std::ofstream(name) << found;
  std::ifstream file(std::string(OSTRAKON_SOURCE_DIR) + "/" + folder + "/" + name);
  ASSERT_TRUE(file.is_open()) << name;
  std::istringstream lines(found);
  std::string line, expected, title;
  while (std::getline(lines, line) && std::getline(file, expected)) {
    if (!line.empty() && line.front() != ' ') title = line;
    ASSERT_EQ(line, expected) << "of " << title;
  }
  EXPECT_FALSE(std::getline(lines, line)) << line;
  EXPECT_FALSE(std::getline(file, expected)) << expected;
}

}  // namespace ostrakon::test
