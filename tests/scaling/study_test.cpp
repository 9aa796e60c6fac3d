// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/scaling/study.hpp>
#include <support/scratch_folder.hpp>

#include "small_study.hpp"

namespace ostrakon::scaling {
namespace {

using testing::contains;
using testing::error_of;

TEST(Study, RanksAreAnIncreasingList) {
  EXPECT_EQ(parse_ranks("--ranks", "1,2,4,12"), (std::vector<int>{1, 2, 4, 12}));
  EXPECT_EQ(parse_ranks("--ranks", "3"), (std::vector<int>{3}));
  for (const char* bad :
       {"", "1,", ",1", "1,,2", "2,1", "1,1", "0,1", "1;2", "one", "1, 2", "-1", "99999999999"})
    EXPECT_EQ(
        error_of([&] { parse_ranks("--ranks", bad); }),
        text("--ranks is \"", bad,
             "\"; expected increasing numbers of ranks separated by commas, such as 1,2,4,8"));
}

TEST(Study, WeakScalingGrowsTheBatch) {
  EXPECT_EQ(global_batch(Scaling::strong, 24, 1, 7), 24);
  EXPECT_EQ(global_batch(Scaling::weak, 24, 1, 7), 168);
  EXPECT_EQ(global_batch(Scaling::weak, 24, 2, 3), 36);
  EXPECT_EQ(error_of([] { global_batch(Scaling::weak, 5, 2, 3); }),
            "--scaling weak: training.global_batch_size = 5 on 2 ranks would be 5 x 3 / 2 on 3 "
            "ranks; expected a whole number: give --ranks that are multiples of 2");
}

TEST(Study, IsReadAsItWasWritten) {
  const testing::ScratchFolder folder;
  Study study = testing::small_study();
  study.sizes[1].prediction = PredictedStep{1.5, 1.0, 0.25, 0.125, 0.0625, 0.0625, "rates"};
  write_study(folder.file(""), study);
  const Study read = read_study_of(folder.file(""));
  EXPECT_EQ(study_json(read), study_json(study));
  EXPECT_EQ(study_json(read)["sizes"][1]["runs"][1], "ranks-2/run-2");
  ASSERT_TRUE(read.sizes[1].prediction.has_value());
  EXPECT_EQ(read.sizes[1].prediction->communication, 0.25);
  EXPECT_FALSE(read.sizes[0].prediction.has_value());
}

TEST(Study, BadFilesAreRefusedWithFieldValueAndExpectation) {
  const testing::ScratchFolder folder;
  const std::string path = folder.file("study.json");
  const auto refused = [&](const std::string& words, const auto& change) {
    nlohmann::ordered_json json = study_json(testing::small_study());
    change(json);
    testing::write_bytes(path, json.dump());
    const std::string error = error_of([&] { read_study_of(folder.file("")); });
    EXPECT_TRUE(contains(error, path)) << error;
    EXPECT_TRUE(contains(error, words)) << error;
  };
  refused("format = \"x\"; expected \"ostrakon-scaling-study\"",
          [](auto& json) { json["format"] = "x"; });
  refused("format_version = 2; this program reads 1",
          [](auto& json) { json["format_version"] = 2; });
  refused("scaling = \"medium\"; expected one of strong, weak",
          [](auto& json) { json["scaling"] = "medium"; });
  refused("sizes[1].ranks = \"two\"; expected a whole number >= 1",
          [](auto& json) { json["sizes"][1]["ranks"] = "two"; });
  refused("steps is missing", [](auto& json) { json.erase("steps"); });
  refused("sizes is empty", [](auto& json) { json["sizes"] = nlohmann::json::array(); });
  testing::write_bytes(path, "{\"format\": ");
  EXPECT_TRUE(contains(error_of([&] { read_study_of(folder.file("")); }), "is not JSON"));
  EXPECT_TRUE(contains(error_of([&] { read_study_of(folder.file("nowhere")); }),
                       "does not exist; expected a folder that ostrakon-scale plan has written"));
}

}  // namespace
}  // namespace ostrakon::scaling
