// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/error.hpp>
#include <string>

// What texts and error messages have in them. Where an expectation fails, both texts are shown.

#define EXPECT_HAS(text, part) EXPECT_PRED2(::ostrakon::testing::contains, text, part)
#define ASSERT_HAS(text, part) ASSERT_PRED2(::ostrakon::testing::contains, text, part)
#define EXPECT_LACKS(text, part) EXPECT_PRED2(::ostrakon::testing::lacks, text, part)
#define ASSERT_LACKS(text, part) ASSERT_PRED2(::ostrakon::testing::lacks, text, part)

namespace ostrakon::testing {

inline bool contains(const std::string& whole, const std::string& part) {
  return whole.find(part) != std::string::npos;
}

inline bool lacks(const std::string& whole, const std::string& part) {
  return !contains(whole, part);
}

/// Returns the message of the error that `work` throws, or `none`.
template <class Kind = Error, class Work>
std::string error_of(const Work& work, const std::string& none = "no error") {
  try {
    work();
  } catch (const Kind& error) {
    return error.what();
  }
  return none;
}

}  // namespace ostrakon::testing
