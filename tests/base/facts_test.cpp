// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/base/facts.hpp>
#include <string>
#include <support/scratch_folder.hpp>

namespace ostrakon::testing {
namespace {

TEST(Facts, ComeBackFromTextWithAnyBytesInThem) {
  const Facts facts = {{"checksum", "9f0c"}, {"", ""}, {"5:a", std::string("\0:\n7:", 5)}};
  const Facts back = unpack_facts(pack_facts(facts));
  ASSERT_EQ(back.size(), facts.size());
  for (std::size_t i = 0; i < facts.size(); ++i) {
    EXPECT_EQ(back[i].name, facts[i].name);
    EXPECT_EQ(back[i].value, facts[i].value);
  }
  EXPECT_TRUE(unpack_facts("").empty());
}

TEST(Facts, TextThatIsNoFactsIsRefused) {
  for (const char* packed : {"x", "5", "5:abc", "3:abc", "3:abc9:x", "-1:a1:b", "3abc1:b"})
    EXPECT_NE(error_of([&] { unpack_facts(packed); }), "no error") << packed;
}

TEST(Facts, TheFirstThatDiffersIsNamedWithBothValues) {
  const Facts ours = {{"dataset", "tokens"}, {"checksum", "1"}, {"tokenizer", "byte"}};
  EXPECT_FALSE(first_difference(ours, ours));
  EXPECT_FALSE(first_difference(ours, {ours[2], ours[1], ours[0]}));
  const auto value =
      first_difference(ours, {{"dataset", "tokens"}, {"checksum", "2"}, {"tokenizer", "gpt2"}});
  ASSERT_TRUE(value);
  EXPECT_EQ(value->name + value->ours + value->theirs, "checksum12");
  const auto missing = first_difference(ours, {{"dataset", "tokens"}, {"checksum", "1"}});
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->name + " " + missing->ours + " " + missing->theirs, "tokenizer byte nothing");
  const auto more = first_difference({}, {{"dataset", "tokens"}});
  ASSERT_TRUE(more);
  EXPECT_EQ(more->name + " " + more->ours + " " + more->theirs, "dataset nothing tokens");
}

}  // namespace
}  // namespace ostrakon::testing
