// SPDX-License-Identifier: Apache-2.0

// Manifests that are damaged, of another version, or contradictory.

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <ostrakon/checkpoint/manifest.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "../support/table.hpp"
#include "manifest_fixture.hpp"

namespace ostrakon::checkpoint {
namespace {

using testing::error_of;

TEST(Manifest, EveryDamageIsSeen) {
  const std::string text = write_manifest(small_manifest());
  const std::size_t version = text.find("\"version\": 1") + 11;
  for (std::size_t i = 0; i < text.size(); ++i)
    for (const int bit : {0, 5, 7}) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      // A changed bit that gives "version": 0 could be another program's.
      const bool is_version = bit == 0 && i == version;
      EXPECT_NE(refusal_of(damaged, !is_version), "no error")
          << "bit " << bit << " of character " << i;
    }
  for (std::size_t length = 0; length < text.size(); ++length)
    EXPECT_NE(refusal_of(text.substr(0, length), true), "no error") << length;
  EXPECT_NE(refusal_of(text + " ", true), "no error");
}

/// A manifest of another version is not damaged.
TEST(Manifest, TellsDamageFromOtherVersions) {
  const auto is_damage = [](const std::string& text) {
    return finds_damage([&] { read_manifest(text, "manifest.json"); });
  };
  const std::string advice = "use the program that wrote it, or a later one";
  for (const char* const version : {"2", "0", "18446744073709551615"}) {
    const std::string other = replaced("\"version\": 1", text("\"version\": ", version));
    expect_refused(refusal_of(other), advice);
    // Its checksum is computed differently, elsewhere, or missing.
    std::string unlike = other;
    unlike.back() = ' ';
    expect_refused(refusal_of(unlike), advice);
    const std::size_t place = unlike.find("\"checksum\"");
    expect_refused(refusal_of(unlike.replace(place, 10, "\"sha256\"")), advice);
    expect_refused(
        refusal_of(text("{\"format\": \"ostrakon-checkpoint\", \"more\": {\"version\": 1}, ",
                        "\"version\": ", version, "}")),
        advice);
    // An incomplete text is damaged in any version.
    EXPECT_TRUE(is_damage(unlike.substr(0, unlike.size() - 2)));
  }
  EXPECT_TRUE(is_damage("{\"format\": \"other\", \"version\": 2}"));
  EXPECT_TRUE(is_damage("{\"format\": \"ostrakon-checkpoint\", \"version\": 1}"));
  EXPECT_TRUE(is_damage("{\"format\": \"ostrakon-checkpoint\", \"more\": {\"version\": 2}}"));
  EXPECT_TRUE(is_damage("[]"));
  EXPECT_TRUE(is_damage(std::string(1 << 20, '[')));
  // With a correct checksum the text is undamaged.
  expect_refused(refusal_of(replaced("\"step\": 12", "\"more\": 1,\n  \"step\": 12")),
                 "has the unknown key \"more\": it was written by \"Ostrakon");
  expect_refused(refusal_of(replaced("\"version\": 1", "\"version\": true")), ": version is true");
  expect_refused(refusal_of(replaced("\"step\": 12", "\"step\": -1")), ": step is -1");
}

/// The reader must be safe without the checksum, which anyone can compute.
TEST(Manifest, DamageUnderARightChecksumNeverCrashes) {
  const std::string text = write_manifest(small_manifest());
  std::mt19937_64 random(2);
  for (int i = 0; i < 5000; ++i) {
    std::string damaged = text;
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n) {
      const std::size_t at = random() % damaged.size(), from = random() % damaged.size();
      const std::size_t size = 1 + random() % 20;
      if (random() % 2 == 0)
        damaged[at] = static_cast<char>(random());
      else
        damaged.replace(at, random() % 20, damaged.substr(from, size));
    }
    if (damaged.find("\"checksum\": \"") + 30 > damaged.size()) continue;
    error_of([&] { read_manifest(signed_again(damaged), "manifest.json"); });
  }
}

TEST(Manifest, WrongTextIsRefused) {
  for (const std::vector<std::string>& row : testing::rows_of(R"(
"ostrakon-checkpoint" | "other" | : format is "other"; expected "ostrakon-checkpoint"
"version": 1 | "version": 2 | is of version 2; this program reads version 1
"step": 12 | "steps": 12 | has the unknown key "steps"
"step": 12 | "step": 12, "step": 12 | has the key "step" twice
"step": 12 | "step": -1 | : step is -1; expected a whole number from 0
"step": 12 | "step": 9223372036854775808 | : step is 9223372036854775808; expected a whole number from 0 to 92
"step": 12 | "step": 12.0 | : step is 12.0;
"step": 12 | "step": [12] | : step is an array; expected one value
"loss_scale": 1024.0 | "loss_scale": 1e999 | not JSON
"loss_scale": 1024.0 | "loss_scale": NaN | not JSON
"ranks": 2 | "ranks": 0 | : ranks is 0; expected a whole number from 1
"outliers": { | "outliers": 5, "x": { | : outliers is 5; expected an object or null
"loss_mean": 0.1 | "loss_mean": null | : outliers.loss_mean is null; expected a number with a decimal point
"plan": "0123456789abcdef" | "plan": "0123" | : plan is "0123"; expected sixteen digits
"first_moment": "fp32" | "first_moment": "fp16" | : numbers.first_moment is "fp16"; expected fp32 or bf16
"a: 1" | {} | : deck[0] is an object; expected text
[2,3] | [2,-3] | : parameters[0].shape[1] is -3; expected a whole number from 1
[2,3] | [2,0] | : parameters[0].shape[1] is 0;
[2,3] | [2,[3]] | : parameters[0].shape[1] is an array;
"frozen": true | "frozen": 1 | : parameters[0].frozen is 1; expected true or false
"0000000000000003" | 3 | : files[0].pieces[2].checksums[0] is 3; expected sixteen digits
"files": [ | "files": [7, | : files[0] is 7; expected an object
)"))
    expect_refused(refusal_of(replaced(row[0], row[1])), row[2]);
  expect_refused(refusal_of("", true), "is no manifest of a checkpoint, or damaged");
  expect_refused(refusal_of("{}", true), "is no manifest of a checkpoint, or damaged");
  expect_refused(refusal_of(signed_again("{\n  \"checksum\": \"0000000000000000\"}")),
                 "does not begin with its format and version");
  expect_refused(refusal_of(replaced("  \"step\": 12,\n", "")), "' has no step");
  std::string ones = "[2,3";
  for (int i = 0; i < 40; ++i) ones += ",1";
  expect_refused(refusal_of(replaced("[2,3]", ones + "]")), "expected at most 32 extents");
  expect_refused(refusal_of(replaced("\"name\": \"rank-00001.h5\", ", "")),
                 ": files[1] has no name");
  expect_refused(refusal_of(replaced("]\n}\n", "]\n}\n{}")), "is not JSON");
  expect_refused(refusal_of(replaced("\"a: 1\"", "\"\xFF\"")), "is not JSON");
  expect_refused(refusal_of(replaced("\"a: 1\"", std::string(1 << 20, '['))),
                 "deck[0] is an array");
}

TEST(Manifest, NamesOfFilesStayInTheFolder) {
  for (const char* name : {"", ".", "..", "../x", "/etc/x", "a\\\\b", "a\\u0000"})
    expect_refused(refusal_of(replaced("\"rank-00001.h5\"", "\"" + std::string(name) + "\"")),
                   ": files[1].name is ");
  expect_refused(refusal_of(replaced("\"rank-00001.h5\"", "\"manifest.json\"")), "names itself");
}

/// Texts of the right form with impossible content.
TEST(Manifest, ContradictionsAreRefused) {
  const auto refusal = [](const auto& change) {
    Manifest manifest = small_manifest();
    change(manifest);
    return refusal_of(manifest);
  };
  const auto first_piece = [](Manifest& m) -> PieceEntry& { return m.files[0].pieces[0]; };

  expect_refused(refusal([](Manifest& m) { m.progress.updates = 13; }),
                 "13 updates after 12 steps");
  expect_refused(refusal([](Manifest& m) { m.progress.loss_scale = 0.0; }), "loss_scale is 0");
  expect_refused(refusal([](Manifest& m) { m.parameters.clear(); }), "has no parameters");
  expect_refused(refusal([](Manifest& m) { m.parameters[1].name = ""; }),
                 ": parameters[1].name is \"\"; expected a name");
  expect_refused(refusal([](Manifest& m) { m.parameters[1] = m.parameters[0]; }),
                 "\"block.0/a\" is there twice");
  expect_refused(refusal([](Manifest& m) {
                   m.parameters[0].shape = {1LL << 31, 1LL << 30, 2};
                 }),
                 "\"block.0/a\" has the shape (2147483648, 1073741824, 2); expected at most");
  expect_refused(refusal([](Manifest& m) {
                   m.parameters[0].shape = {1LL << 60};
                   m.parameters.push_back({"c", "d", {1LL << 60}, "", false});
                 }),
                 "\"c/d\" has the shape");
  expect_refused(refusal_of(replaced("\"type\": \"bf16\"", "\"type\": \"fp32\"")),
                 "\"block.0/a\" is fp32; numbers.parameters is bf16");
  expect_refused(refusal_of(replaced("\"offset\": 6", "\"offset\": 5")),
                 "the offset of \"head/b\" is 5; expected 6");
  expect_refused(refusal([](Manifest& m) { m.files[1].name = m.files[0].name; }),
                 "the file \"rank-00000.h5\" is there twice");
  expect_refused(refusal([](Manifest& m) {
                   m.files[0].bytes = m.files[1].bytes = std::numeric_limits<std::int64_t>::max();
                 }),
                 "more than 2^63 - 1 bytes");

  expect_refused(refusal([&](Manifest& m) { first_piece(m).slice.parameter = 2; }),
                 "piece 0 of \"rank-00000.h5\" is of parameter 2; there are 2");
  expect_refused(refusal([&](Manifest& m) { first_piece(m).rank = 2; }), "is of rank 2");
  expect_refused(refusal([&](Manifest& m) { first_piece(m).slice.count = 0; }),
                 ": files[0].pieces[0].count is 0; expected a whole number from 1");
  expect_refused(refusal([&](Manifest& m) { first_piece(m).slice.count = 7; }),
                 "is 7 elements from 0 on of \"block.0/a\", which has 6");
  expect_refused(refusal([&](Manifest& m) {
                   first_piece(m).slice.first = std::numeric_limits<std::int64_t>::max();
                 }),
                 "which has 6");
  expect_refused(refusal([&](Manifest& m) { first_piece(m).offset = 993; }),
                 "is 8 bytes from 993 on; the file has 1000");
  expect_refused(refusal([&](Manifest& m) { first_piece(m).offset = 1001; }), "the file has 1000");
  expect_refused(refusal([&](Manifest& m) { first_piece(m).offset = 101; }),
                 "two pieces of \"rank-00000.h5\" have its byte 108");
  expect_refused(refusal([&](Manifest& m) { first_piece(m).checksums.push_back(1); }),
                 "has 2 checksums; expected 1");
  expect_refused(refusal([&](Manifest& m) { first_piece(m).checksums.clear(); }),
                 "has 0 checksums; expected 1");

  expect_refused(refusal([&](Manifest& m) { first_piece(m).slice.count = 3; }),
                 "elements 3 to 4 of parameters of \"block.0/a\" are in no piece");
  expect_refused(refusal([](Manifest& m) { m.files[1].pieces[1].slice.first = 3; }),
                 "elements 3 to 4 of parameters of \"block.0/a\" are in two pieces");
  expect_refused(refusal([](Manifest& m) { m.files[1].pieces.pop_back(); }),
                 "elements 4 to 6 of parameters of \"block.0/a\" are in no piece");
  expect_refused(refusal([](Manifest& m) { m.files[0].pieces.pop_back(); }),
                 "elements 2 to 5 of first_moment of \"head/b\" are in no piece");
  expect_refused(refusal([](Manifest& m) {
                   m.files[1].pieces.push_back(piece(State::parameters, 1, 0, 5, 1, 100, {1}));
                 }),
                 "elements 0 to 5 of parameters of \"head/b\" are in two pieces");
  expect_refused(refusal([](Manifest& m) { m.files.clear(); }),
                 "elements 0 to 6 of parameters of \"block.0/a\" are in no piece");
}

/// The pieces belong to the first parameter of small_manifest(), a matrix of three columns.
TEST(Manifest, PiecesOfColumnsThatCanNotBeAreRefused) {
  const auto refusal = [](int parameter, const std::vector<std::int64_t>& shape,
                          std::int64_t pieces) {
    Manifest manifest = small_manifest();
    ParameterEntry& entry = manifest.parameters[static_cast<std::size_t>(parameter)];
    entry.shape = shape;
    entry.column_pieces = pieces;
    return refusal_of(manifest);
  };
  EXPECT_EQ(refusal(0, {2, 3}, 3), "no error");
  EXPECT_EQ(refusal(0, {1, 6}, 3), "no error");
  expect_refused(
      refusal(0, {2, 3}, 2),
      "\"block.0/a\" of the shape (2, 3) has its columns in 2 pieces; expected a divisor");
  expect_refused(refusal(0, {2, 3}, 6), "has its columns in 6 pieces");
  expect_refused(refusal(0, {2, 3}, std::numeric_limits<std::int64_t>::max()), "in 9223372036854");
  expect_refused(refusal(0, {6}, 2), "of the shape (6) has its columns in 2 pieces");
  expect_refused(refusal(0, {1, 2, 3}, 2), "of the shape (1, 2, 3) has its columns in 2 pieces");
  expect_refused(refusal(1, {5}, 5), "\"head/b\" of the shape (5) has its columns in 5 pieces");
  const auto with = [](const std::string& pieces) {
    return refusal_of(
        replaced("\"frozen\": true", "\"frozen\": true, \"column_pieces\": " + pieces));
  };
  EXPECT_EQ(with("1"), "no error");
  EXPECT_EQ(with("3"), "no error");
  for (const char* const pieces : {"0", "-1", "1.0", "true", "\"3\"", "null"})
    expect_refused(with(pieces), ": parameters[0].column_pieces is " + std::string(pieces) +
                                     "; expected a whole number from 1");
  expect_refused(with("[3]"), ": parameters[0].column_pieces is an array");
  expect_refused(with("3, \"column_pieces\": 3"), "has the key \"column_pieces\" twice");
}

TEST(Manifest, BlocksAreCounted) {
  Manifest manifest = small_manifest();
  const std::int64_t block = block_bytes / 2;  // in elements
  for (const auto& [elements, blocks] :
       {std::pair{block - 1, 1}, {block, 1}, {block + 1, 2}, {2 * block, 2}, {2 * block + 1, 3}}) {
    manifest.parameters = {{"a", "b", {elements}, "u", false}};
    manifest.files = {{"f", 4 * elements, 0, {piece(State::parameters, 0, 0, elements, 0, 8, {})}}};
    for (int given = 0; given <= blocks + 1; ++given) {
      manifest.files[0].pieces[0].checksums.assign(static_cast<std::size_t>(given), 1);
      EXPECT_EQ(refusal_of(manifest) == "no error", given == blocks) << elements << " " << given;
    }
  }
}

}  // namespace
}  // namespace ostrakon::checkpoint
