// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "expected_model.hpp"

namespace ostrakon::test::transformers {

/// A test of every expected model.
class OfExpectedModel : public ::testing::TestWithParam<std::string> {
 protected:
  const ExpectedModel expected_ = read_expected(GetParam());
};

/// The name of a test: GoogleTest takes letters, digits and underscores.
inline std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}

}  // namespace ostrakon::test::transformers
