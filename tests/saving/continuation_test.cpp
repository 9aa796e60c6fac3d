// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostrakon/config/deck.hpp>
#include <ostrakon/saving/continuation.hpp>

#include "support/scratch_folder.hpp"

namespace ostrakon::train {
namespace {

using testing::error_of;

std::string refusal(const std::string& of_weights, const std::string& of_data) {
  return error_of([&] { require_same_tokenizer(of_weights, "w.h5", of_data, {}); });
}

TEST(Tokenizers, OfWeightsAreThoseOfTheData) {
  for (const char* const name : {"byte", "mine", "tokenizer.json-0123456789abcdef"}) {
    EXPECT_EQ(refusal(name, name), "no error");
    // Synthetic data are no tokenizer's.
    EXPECT_EQ(refusal(name, "synthetic"), "no error");
    EXPECT_EQ(refusal("synthetic", name), "no error");
    for (const char* const other : {"external", "yours", ""}) {
      EXPECT_NE(refusal(name, other), "no error") << name << " " << other;
      EXPECT_NE(refusal(other, name), "no error") << name << " " << other;
      AllowedChanges allowed;
      allowed.tokenizer = true;
      EXPECT_EQ(require_same_tokenizer(other, "w.h5", name, allowed).size(), 1U);
    }
  }
  EXPECT_EQ(refusal("external", "external"), "no error");
  EXPECT_EQ(refusal("", "external"), "no error");
}

TEST(Tokenizers, AreRefusedWithWhatToDo) {
  EXPECT_EQ(refusal("bpe", "byte"),
            "w.h5: trained on tokens of the tokenizer 'bpe'; the data's is 'byte'; expected the "
            "same, or --allow-changes tokenizer to train it on other tokens; `ostrakon-data import "
            "--tokenizer bpe` makes a token file of ids that it wrote");
  EXPECT_HAS(refusal("bpe", "external"), "the data's is 'external', which is not known");
  EXPECT_HAS(refusal("", "bpe"), "w.h5: does not say whose tokens it knows; the data's is 'bpe'");
  EXPECT_HAS(refusal("", "bpe"), "`ostrakon-checkpoint import --tokenizer bpe`");
  EXPECT_HAS(refusal("byte", "external"), "`ostrakon-data build`");
}

TEST(DataChange, IsNoneWhereAMixtureHasMoreSources) {
  const Facts one = {{"checksum", "a"}};
  Facts two = one, masked, three, chosen = one;
  two.push_back({"checksum of source 2", "b"});
  masked = three = two;
  masked.push_back({"checksum of its loss mask of source 2", "c"});
  three.push_back({"checksum of source 3", "d"});
  three.push_back({"checksum of its loss mask of source 3", "e"});
  chosen.push_back({"chosen: mixture from sample 0", "seed 1"});
  EXPECT_EQ(data_change(two, one), "");
  EXPECT_EQ(data_change(three, two), "");
  EXPECT_EQ(data_change(three, one), "");
  EXPECT_EQ(data_change(one, chosen), "");
  EXPECT_HAS(data_change(one, two), "the checksum of source 2 of its training data was b");
  EXPECT_HAS(data_change(masked, two), "the checksum of its loss mask of source 2 of its training");
}

/// A run of a deck on data, and a checkpoint of it.
struct Resumed {
  config::Settings settings = config::read_settings(
      "ostrakon:\n  model: {vocabulary: 61}\n  data: {dataset: synthetic}\n", "deck", {});
  checkpoint::Manifest manifest;

  Resumed(const std::string& tokenizer, const std::string& checksum) {
    manifest.program = "Ostrakon 0.0.1";
    manifest.deck = config::write_deck(settings);
    manifest.optimizer = config::value_of(settings, "optimizer", "name");
    manifest.tokenizer = tokenizer;
    manifest.data = data_of(tokenizer, checksum);
  }
  static Facts data_of(const std::string& tokenizer, const std::string& checksum) {
    return {{"dataset", "tokens"}, {"checksum", checksum}, {"tokenizer", tokenizer}};
  }
  std::string on(const Facts& data) const {
    AllowedChanges allowed;
    allowed.data = true;
    return error_of([&] { require_continuation(settings, data, manifest, "c", allowed); });
  }
};

TEST(Tokenizers, OfDataThatStayTheSameMayGetAName) {
  EXPECT_EQ(Resumed("external", "1").on(Resumed::data_of("mine", "1")), "no error");
  EXPECT_EQ(Resumed("mine", "1").on(Resumed::data_of("external", "1")), "no error");
  EXPECT_EQ(Resumed("external", "1").on(Resumed::data_of("external", "2")), "no error");
  EXPECT_NE(Resumed("external", "1").on(Resumed::data_of("mine", "2")), "no error");
  EXPECT_NE(Resumed("mine", "1").on(Resumed::data_of("external", "2")), "no error");
  EXPECT_NE(Resumed("mine", "1").on(Resumed::data_of("yours", "1")), "no error");
  EXPECT_EQ(Resumed("mine", "1").on({{"dataset", "synthetic"}}), "no error");
}

}  // namespace
}  // namespace ostrakon::train
