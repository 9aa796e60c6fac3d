// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/hdf5.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <random>

#include "../support/scratch_folder.hpp"

namespace ostrakon::checkpoint {
namespace {

using testing::error_of;
using testing::ScratchFolder;
using testing::write_bytes;

PieceEntry piece(State state, int parameter, std::int64_t first, std::int64_t count, int rank,
                 std::int64_t offset, std::vector<std::uint64_t> checksums) {
  return {{state, parameter, first, count}, rank, offset, std::move(checksums)};
}

/// Two ranks with a file each; "b" has a first moment, nothing has a second.
Manifest small_manifest() {
  Manifest manifest;
  manifest.program = "Ostrakon 1.2.3";
  manifest.sequence = 7;
  manifest.progress.step = 12;
  manifest.progress.updates = 11;
  manifest.progress.samples = 96;
  manifest.progress.seed = std::numeric_limits<std::uint64_t>::max();
  manifest.progress.skipped_in_a_row = 1;
  manifest.progress.loss_scale = 1024.0;
  manifest.progress.good_steps = 3;
  manifest.progress.outliers = Progress::Outliers{5, 0.1, 1e-300, -0.0, 3.0};
  manifest.plan = 0x0123456789abcdef;
  manifest.ranks = 2;
  manifest.deck = "a: 1\n\nb: \"quoted \\ \xC3\xA9\"\n";
  manifest.optimizer = "adamw";
  manifest.tokenizer = "tokens\x01";
  manifest.parameters = {{"block.0", "a", {2, 3}, "unit 0", true},
                         {"head", "b", {5}, "head", false}};
  manifest.dtypes = {DType::bf16, DType::fp32, DType::fp32};
  manifest.files = {{"rank-00000.h5",
                     1000,
                     0xfedcba9876543210,
                     {piece(State::parameters, 0, 0, 4, 0, 100, {1}),
                      piece(State::parameters, 1, 0, 5, 0, 108, {2}),
                      piece(State::first_moment, 1, 2, 3, 0, 988, {3})}},
                    {"rank-00001.h5",
                     500,
                     0,
                     {piece(State::first_moment, 1, 0, 2, 1, 0, {4}),
                      piece(State::parameters, 0, 4, 2, 1, 496, {5})}}};
  return manifest;
}

/// Whether that throws DamagedError, rather than another Error or nothing.
template <class Work>
bool finds_damage(const Work& work) {
  try {
    work();
  } catch (const DamagedError&) {
    return true;
  } catch (const Error&) {
  }
  return false;
}

/// `is_damage`: of a text that is not as it was written.
std::string refusal_of(const std::string& text, bool is_damage = false) {
  const auto read = [&] { read_manifest(text, "manifest.json"); };
  const std::string refusal = error_of(read);
  EXPECT_EQ(finds_damage(read), is_damage && refusal != "no error") << refusal;
  return refusal;
}
std::string refusal_of(const Manifest& manifest) { return refusal_of(write_manifest(manifest)); }

/// A manifest whose text was changed, with a right checksum.
std::string signed_again(std::string text) {
  const std::string key = "\"checksum\": \"";
  const std::size_t place = text.find(key) + key.size();
  text.replace(place, 16, std::string(16, '0'));
  hdf5::Checksum sum;
  sum.add(text.data(), static_cast<std::int64_t>(text.size()));
  return text.replace(place, 16, sum.hex());
}

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = write_manifest(small_manifest());
  const std::size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return signed_again(text.replace(place, from.size(), to));
}

void expect_refused(const std::string& refusal, const std::string& part) {
  EXPECT_NE(refusal.find(part), std::string::npos) << refusal << "\nexpected: " << part;
  EXPECT_NE(refusal.find("manifest.json"), std::string::npos) << refusal;
}

TEST(Manifest, TheConfigOfASourceMayBeThere) {
  Manifest written = small_manifest();
  EXPECT_EQ(write_manifest(written).find("huggingface_config"), std::string::npos);
  written.huggingface_config = R"({"model_type":"llama"})";
  const Manifest read = read_manifest(write_manifest(written), "manifest.json");
  EXPECT_EQ(read.huggingface_config, written.huggingface_config);
}

TEST(Manifest, TheIdentityOfTheDataMayBeThere) {
  Manifest written = small_manifest();
  EXPECT_EQ(write_manifest(written).find("\"data\""), std::string::npos);
  written.data = {{"dataset", "tokens"}, {"checksum", "\"9f\u00e9\""}};
  const std::string text = write_manifest(written);
  const Manifest read = read_manifest(text, "manifest.json");
  EXPECT_FALSE(first_difference(read.data, written.data));
  EXPECT_EQ(write_manifest(read), text);
}

TEST(Manifest, ComesBackAsItWas) {
  const Manifest written = small_manifest();
  const std::string text = write_manifest(written);
  const Manifest read = read_manifest(text, "manifest.json");
  EXPECT_EQ(write_manifest(read), text);

  EXPECT_EQ(read.program, written.program);
  EXPECT_EQ(read.sequence, 7);
  EXPECT_EQ(read.progress.step, 12);
  EXPECT_EQ(read.progress.updates, 11);
  EXPECT_EQ(read.progress.samples, 96);
  EXPECT_EQ(read.progress.seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(read.progress.skipped_in_a_row, 1);
  EXPECT_EQ(read.progress.loss_scale, 1024.0);
  EXPECT_EQ(read.progress.good_steps, 3);
  ASSERT_TRUE(read.progress.outliers.has_value());
  EXPECT_EQ(read.progress.outliers->steps, 5);
  EXPECT_EQ(read.progress.outliers->loss_mean, 0.1);
  EXPECT_EQ(read.progress.outliers->loss_variance, 1e-300);
  EXPECT_EQ(read.progress.outliers->gradient_norm_variance, 3.0);
  EXPECT_EQ(read.plan, written.plan);
  EXPECT_EQ(read.ranks, 2);
  EXPECT_EQ(read.deck, written.deck);
  EXPECT_EQ(read.optimizer, "adamw");
  EXPECT_EQ(read.tokenizer, written.tokenizer);
  EXPECT_EQ(read.huggingface_config, "");
  EXPECT_EQ(read.dtypes, written.dtypes);
  ASSERT_EQ(read.parameters.size(), 2u);
  EXPECT_EQ(read.parameters[0].path(), "block.0/a");
  EXPECT_EQ(read.parameters[0].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(read.parameters[0].unit, "unit 0");
  EXPECT_TRUE(read.parameters[0].frozen);
  EXPECT_FALSE(read.parameters[1].frozen);
  ASSERT_EQ(read.files.size(), 2u);
  EXPECT_EQ(read.bytes(), 1500);
  EXPECT_EQ(read.files[0].structure, 0xfedcba9876543210u);
  ASSERT_EQ(read.files[0].pieces.size(), 3u);
  const PieceEntry& last = read.files[0].pieces[2];
  EXPECT_EQ(last.slice.state, State::first_moment);
  EXPECT_EQ(last.slice.parameter, 1);
  EXPECT_EQ(last.slice.first, 2);
  EXPECT_EQ(last.slice.count, 3);
  EXPECT_EQ(last.offset, 988);
  EXPECT_EQ(last.checksums, std::vector<std::uint64_t>{3});
  EXPECT_EQ(read.files[1].pieces[0].rank, 1);
}

TEST(Manifest, DecksComeBackExactly) {
  Manifest manifest = small_manifest();
  for (const char* deck : {"", "\n", "a", "a\n", "\n\na\n\nb", "a\r\n\tb"}) {
    manifest.deck = deck;
    EXPECT_EQ(read_manifest(write_manifest(manifest), "m").deck, deck);
  }
}

TEST(Manifest, FloatingPointNumbersComeBackExactly) {
  Manifest manifest = small_manifest();
  std::mt19937_64 random(1);
  const auto any = [&] {
    for (;;) {
      const std::uint64_t bits = random();
      double value = 0.0;
      std::memcpy(&value, &bits, sizeof value);
      if (std::isfinite(value)) return value;
    }
  };
  for (int i = 0; i < 2000; ++i) {
    auto& outliers = *manifest.progress.outliers;
    outliers.loss_mean = any();
    outliers.loss_variance = any();
    outliers.gradient_norm_mean = static_cast<double>(random() % 4 == 0 ? 0 : random());
    outliers.gradient_norm_variance = any() * 1e-300;  // often subnormal
    manifest.progress.loss_scale = std::abs(any());
    const Progress read = read_manifest(write_manifest(manifest), "m").progress;
    EXPECT_EQ(std::memcmp(&read.outliers->loss_mean, &outliers.loss_mean, 4 * sizeof(double)), 0);
    EXPECT_EQ(read.loss_scale, manifest.progress.loss_scale);
  }
}

TEST(Manifest, IsNotWrittenWithWhatTextCanNotSay) {
  Manifest manifest = small_manifest();
  manifest.progress.loss_scale = std::numeric_limits<double>::infinity();
  EXPECT_NE(error_of([&] { write_manifest(manifest); }).find("number inf"), std::string::npos);
  manifest = small_manifest();
  manifest.progress.outliers->loss_mean = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(error_of([&] { write_manifest(manifest); }).find("number nan"), std::string::npos);
  manifest = small_manifest();
  manifest.deck = "\xFF";
  EXPECT_NE(error_of([&] { write_manifest(manifest); }).find("is not UTF-8"), std::string::npos);
}

TEST(Manifest, IsNotWrittenLongerThanItMayBe) {
  const std::string text = write_manifest(small_manifest());
  const auto bytes = static_cast<std::int64_t>(text.size());
  EXPECT_EQ(write_manifest(small_manifest(), bytes), text);
  EXPECT_NE(error_of([&] {
              write_manifest(small_manifest(), bytes - 1);
            }).find(std::to_string(bytes) + " bytes; expected at most"),
            std::string::npos);
}

TEST(Manifest, CountsThatNoRunGetsToAreRefused) {
  constexpr std::int64_t most = std::int64_t{1} << 53, most_skipped = 2147483647;
  Manifest manifest = small_manifest();
  manifest.sequence = most;
  manifest.progress.step = manifest.progress.updates = manifest.progress.samples = most;
  manifest.progress.skipped_in_a_row = most_skipped;
  EXPECT_EQ(refusal_of(manifest), "no error");
  const auto refusal = [&](auto change) {
    Manifest changed = manifest;
    ++change(changed);
    return refusal_of(changed);
  };
  using Count = std::int64_t&;
  expect_refused(refusal([](Manifest& m) -> Count { return m.sequence; }),
                 ": sequence is 9007199254740993; expected at most 9007199254740992");
  expect_refused(refusal([](Manifest& m) -> Count { return m.progress.step; }), ": step is 9");
  expect_refused(refusal([](Manifest& m) -> Count { return m.progress.updates; }),
                 ": updates is 9");
  expect_refused(refusal([](Manifest& m) -> Count { return m.progress.samples; }),
                 ": samples is 9");
  expect_refused(refusal([](Manifest& m) -> Count { return m.progress.skipped_in_a_row; }),
                 ": skipped_in_a_row is 2147483648; expected at most 2147483647");
}

TEST(Manifest, EveryDamageIsSeen) {
  const std::string text = write_manifest(small_manifest());
  const std::size_t version = text.find("\"version\": 1") + 11;
  for (std::size_t i = 0; i < text.size(); ++i)
    for (const int bit : {0, 5, 7}) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      // But "version": 0 may be another program's.
      const bool is_version = bit == 0 && i == version;
      EXPECT_NE(refusal_of(damaged, !is_version), "no error")
          << "bit " << bit << " of character " << i;
    }
  for (std::size_t length = 0; length < text.size(); ++length)
    EXPECT_NE(refusal_of(text.substr(0, length), true), "no error") << length;
  EXPECT_NE(refusal_of(text + " ", true), "no error");
}

/// What another program wrote is not damaged.
TEST(Manifest, TellsDamageFromOtherVersions) {
  const auto is_damage = [](const std::string& text) {
    return finds_damage([&] { read_manifest(text, "manifest.json"); });
  };
  const std::string advice = "use the program that wrote it, or a later one";
  for (const char* const version : {"2", "0", "18446744073709551615"}) {
    const std::string other = replaced("\"version\": 1", text("\"version\": ", version));
    expect_refused(refusal_of(other), advice);
    // Its checksum is made in another way, stands elsewhere, or is not there.
    std::string unlike = other;
    unlike.back() = ' ';
    expect_refused(refusal_of(unlike), advice);
    const std::size_t place = unlike.find("\"checksum\"");
    expect_refused(refusal_of(unlike.replace(place, 10, "\"sha256\"")), advice);
    expect_refused(
        refusal_of(text("{\"format\": \"ostrakon-checkpoint\", \"more\": {\"version\": 1}, ",
                        "\"version\": ", version, "}")),
        advice);
    // What is not whole is damaged, whatever it says.
    EXPECT_TRUE(is_damage(unlike.substr(0, unlike.size() - 2)));
  }
  EXPECT_TRUE(is_damage("{\"format\": \"other\", \"version\": 2}"));
  EXPECT_TRUE(is_damage("{\"format\": \"ostrakon-checkpoint\", \"version\": 1}"));
  EXPECT_TRUE(is_damage("{\"format\": \"ostrakon-checkpoint\", \"more\": {\"version\": 2}}"));
  EXPECT_TRUE(is_damage("[]"));
  EXPECT_TRUE(is_damage(std::string(1 << 20, '[')));
  // With a right checksum it is as it was written.
  expect_refused(refusal_of(replaced("\"step\": 12", "\"more\": 1,\n  \"step\": 12")),
                 "has the unknown key \"more\": it was written by \"Ostrakon");
  expect_refused(refusal_of(replaced("\"version\": 1", "\"version\": true")), ": version is true");
  expect_refused(refusal_of(replaced("\"step\": 12", "\"step\": -1")), ": step is -1");
}

/// The reader must not depend on the checksum, which anyone can make.
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
  expect_refused(refusal_of("", true), "is no manifest of a checkpoint, or damaged");
  expect_refused(refusal_of("{}", true), "is no manifest of a checkpoint, or damaged");
  expect_refused(refusal_of(signed_again("{\n  \"checksum\": \"0000000000000000\"}")),
                 "does not begin with its format and version");
  expect_refused(refusal_of(replaced("\"ostrakon-checkpoint\"", "\"other\"")),
                 ": format is \"other\"; expected \"ostrakon-checkpoint\"");
  expect_refused(refusal_of(replaced("\"version\": 1", "\"version\": 2")),
                 "is of version 2; this program reads version 1");
  expect_refused(refusal_of(replaced("\"step\": 12", "\"steps\": 12")),
                 "has the unknown key \"steps\"");
  expect_refused(refusal_of(replaced("  \"step\": 12,\n", "")), "' has no step");
  expect_refused(refusal_of(replaced("\"step\": 12", "\"step\": 12, \"step\": 12")),
                 "has the key \"step\" twice");
  expect_refused(refusal_of(replaced("\"step\": 12", "\"step\": -1")),
                 ": step is -1; expected a whole number from 0");
  expect_refused(refusal_of(replaced("\"step\": 12", "\"step\": 9223372036854775808")),
                 ": step is 9223372036854775808; expected a whole number from 0 to 92");
  expect_refused(refusal_of(replaced("\"step\": 12", "\"step\": 12.0")), ": step is 12.0;");
  expect_refused(refusal_of(replaced("\"step\": 12", "\"step\": [12]")),
                 ": step is an array; expected one value");
  expect_refused(refusal_of(replaced("\"loss_scale\": 1024.0", "\"loss_scale\": 1e999")),
                 "not JSON");
  expect_refused(refusal_of(replaced("\"loss_scale\": 1024.0", "\"loss_scale\": NaN")), "not JSON");
  expect_refused(refusal_of(replaced("\"ranks\": 2", "\"ranks\": 0")),
                 ": ranks is 0; expected a whole number from 1");
  expect_refused(refusal_of(replaced("\"outliers\": {", "\"outliers\": 5, \"x\": {")),
                 ": outliers is 5; expected an object or null");
  expect_refused(refusal_of(replaced("\"loss_mean\": 0.1", "\"loss_mean\": null")),
                 ": outliers.loss_mean is null; expected a number with a decimal point");
  expect_refused(refusal_of(replaced("\"plan\": \"0123456789abcdef\"", "\"plan\": \"0123\"")),
                 ": plan is \"0123\"; expected sixteen digits");
  expect_refused(refusal_of(replaced("\"first_moment\": \"fp32\"", "\"first_moment\": \"fp16\"")),
                 ": numbers.first_moment is \"fp16\"; expected fp32 or bf16");
  expect_refused(refusal_of(replaced("\"a: 1\"", "{}")), ": deck[0] is an object; expected text");
  expect_refused(refusal_of(replaced("[2,3]", "[2,-3]")),
                 ": parameters[0].shape[1] is -3; expected a whole number from 1");
  expect_refused(refusal_of(replaced("[2,3]", "[2,0]")), ": parameters[0].shape[1] is 0;");
  expect_refused(refusal_of(replaced("[2,3]", "[2,[3]]")), ": parameters[0].shape[1] is an array;");
  std::string ones = "[2,3";
  for (int i = 0; i < 40; ++i) ones += ",1";
  expect_refused(refusal_of(replaced("[2,3]", ones + "]")), "expected at most 32 extents");
  expect_refused(refusal_of(replaced("\"frozen\": true", "\"frozen\": 1")),
                 ": parameters[0].frozen is 1; expected true or false");
  expect_refused(refusal_of(replaced("\"name\": \"rank-00001.h5\", ", "")),
                 ": files[1] has no name");
  expect_refused(refusal_of(replaced("\"0000000000000003\"", "3")),
                 ": files[0].pieces[2].checksums[0] is 3; expected sixteen digits");
  expect_refused(refusal_of(replaced("\"files\": [", "\"files\": [7,")),
                 ": files[0] is 7; expected an object");
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

/// Text of the right form which says what can't be.
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

TEST(FileEntry, ComesBackAsItWas) {
  const FileEntry file = small_manifest().files[0];
  const std::string text = write_file_entry(file);
  const FileEntry read = read_file_entry(text);
  EXPECT_EQ(read.name, file.name);
  EXPECT_EQ(read.bytes, file.bytes);
  EXPECT_EQ(read.structure, file.structure);
  ASSERT_EQ(read.pieces.size(), 3u);
  EXPECT_EQ(read.pieces[1].checksums, file.pieces[1].checksums);
  EXPECT_EQ(write_file_entry(read), text);
  EXPECT_NE(error_of([&] { read_file_entry(text.substr(1)); }), "no error");
  EXPECT_NE(error_of([&] { read_file_entry(""); }), "no error");
  EXPECT_NE(error_of([&] { read_file_entry("{}"); }).find("has no name"), std::string::npos);
}

TEST(LoadManifest, SaysWhatIsMissing) {
  const ScratchFolder folder;
  const std::string path = folder.file("checkpoint");
  EXPECT_EQ(error_of([&] { load_manifest(path); }),
            "checkpoint '" + path + "' does not exist, or is not visible on this host");
  write_bytes(path, "");
  EXPECT_NE(error_of([&] { load_manifest(path); }).find("is not a folder"), std::string::npos);
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_NE(error_of([&] { load_manifest(path); }).find("has no manifest.json"), std::string::npos);
  write_bytes(manifest_path(path), "text");
  EXPECT_EQ(load_manifest(path), "text");
  std::filesystem::resize_file(manifest_path(path), most_manifest_bytes + 1);
  EXPECT_NE(error_of([&] { load_manifest(path); }).find("expected at most"), std::string::npos);
}

TEST(LoadManifest, TellsDamageFromWhatCanNotBeRead) {
  namespace fs = std::filesystem;
  const ScratchFolder folder;
  const std::string path = folder.file("checkpoint");
  const auto load = [&] { load_manifest(path); };
  EXPECT_NE(error_of(load), "no error");
  EXPECT_FALSE(finds_damage(load));
  fs::create_symlink("checkpoint", path);  // a link to itself
  EXPECT_NE(error_of(load), "no error");
  EXPECT_FALSE(finds_damage(load));
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_NE(error_of(load), "no error");
  EXPECT_FALSE(finds_damage(load));
  fs::create_symlink("manifest.json", manifest_path(path));
  EXPECT_NE(error_of(load), "no error");
  EXPECT_FALSE(finds_damage(load));
  fs::remove(manifest_path(path));
  write_bytes(manifest_path(path), "");
  EXPECT_EQ(error_of(load), "no error");
  fs::resize_file(manifest_path(path), most_manifest_bytes + 1);
  EXPECT_TRUE(finds_damage(load));
}

}  // namespace
}  // namespace ostrakon::checkpoint
