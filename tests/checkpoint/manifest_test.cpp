// SPDX-License-Identifier: Apache-2.0

// Manifests that are written read back equal.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <ostrakon/checkpoint/manifest.hpp>
#include <random>
#include <string>
#include <vector>

#include "../support/scratch_folder.hpp"
#include "manifest_fixture.hpp"

namespace ostrakon::checkpoint {
namespace {

using testing::error_of;
using testing::ScratchFolder;
using testing::write_bytes;

TEST(Manifest, TheConfigOfASourceMayBeThere) {
  Manifest written = small_manifest();
  EXPECT_LACKS(write_manifest(written), "huggingface_config");
  written.huggingface_config = R"({"model_type":"llama"})";
  const Manifest read = read_manifest(write_manifest(written), "manifest.json");
  EXPECT_EQ(read.huggingface_config, written.huggingface_config);
}

TEST(Manifest, TheIdentityOfTheDataMayBeThere) {
  Manifest written = small_manifest();
  EXPECT_LACKS(write_manifest(written), "\"data\"");
  written.data = {{"dataset", "tokens"}, {"checksum", "\"9f\u00e9\""}};
  const std::string text = write_manifest(written);
  const Manifest read = read_manifest(text, "manifest.json");
  EXPECT_FALSE(first_difference(read.data, written.data));
  EXPECT_EQ(write_manifest(read), text);
}

TEST(Manifest, PiecesOfColumnsMayBeThere) {
  Manifest written = small_manifest();
  EXPECT_LACKS(write_manifest(written), "column_pieces");
  EXPECT_EQ(read_manifest(write_manifest(written), "m").parameters[0].column_pieces, 1);
  written.parameters[0].column_pieces = 3;
  const std::string text = write_manifest(written);
  const Manifest read = read_manifest(text, "manifest.json");
  EXPECT_EQ(read.parameters[0].column_pieces, 3);
  EXPECT_EQ(read.parameters[1].column_pieces, 1);
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
  EXPECT_HAS(error_of([&] { write_manifest(manifest); }), "number inf");
  manifest = small_manifest();
  manifest.progress.outliers->loss_mean = std::numeric_limits<double>::quiet_NaN();
  EXPECT_HAS(error_of([&] { write_manifest(manifest); }), "number nan");
  manifest = small_manifest();
  manifest.deck = "\xFF";
  EXPECT_HAS(error_of([&] { write_manifest(manifest); }), "is not UTF-8");
}

TEST(Manifest, IsNotWrittenLongerThanItMayBe) {
  const std::string text = write_manifest(small_manifest());
  const auto bytes = static_cast<std::int64_t>(text.size());
  EXPECT_EQ(write_manifest(small_manifest(), bytes), text);
  EXPECT_HAS(error_of([&] { write_manifest(small_manifest(), bytes - 1); }),
             std::to_string(bytes) + " bytes; expected at most");
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
  EXPECT_HAS(error_of([&] { read_file_entry("{}"); }), "has no name");
}

TEST(LoadManifest, SaysWhatIsMissing) {
  const ScratchFolder folder;
  const std::string path = folder.file("checkpoint");
  EXPECT_EQ(error_of([&] { load_manifest(path); }),
            "checkpoint '" + path + "' does not exist, or is not visible on this host");
  write_bytes(path, "");
  EXPECT_HAS(error_of([&] { load_manifest(path); }), "is not a folder");
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_HAS(error_of([&] { load_manifest(path); }), "has no manifest.json");
  write_bytes(manifest_path(path), "text");
  EXPECT_EQ(load_manifest(path), "text");
  std::filesystem::resize_file(manifest_path(path), most_manifest_bytes + 1);
  EXPECT_HAS(error_of([&] { load_manifest(path); }), "expected at most");
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
