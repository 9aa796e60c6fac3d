// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <ostrakon/checkpoint/weights_file.hpp>
#include <random>

#include "../support/scratch_folder.hpp"

namespace ostrakon::checkpoint {
namespace {

using ostrakon::testing::error_of;
using ostrakon::testing::read_bytes;
using ostrakon::testing::ScratchFolder;
using ostrakon::testing::write_bytes;

using Floats = std::vector<float>;

constexpr int units = 12;  // enough links and attributes for HDF5's dense storage

std::string unit_name(int unit) { return "block " + std::to_string(unit); }

Floats values_of(int unit) {
  std::mt19937 generator(static_cast<unsigned>(unit));
  Floats values(35);
  for (float& value : values) value = static_cast<float>(generator()) * 1e-9f - 2.0f;
  values[3] = -0.0f;
  return values;
}

void write_model(const std::string& path, const std::string& deck = "model:\n  layers: 12\n") {
  WeightsWriter writer(path, deck, 1234, "some tokenizer");
  for (int unit = 0; unit < units; ++unit) {
    const Floats values = values_of(unit);
    writer.write(unit_name(unit), "attention.qkv.weight", {5, 7}, values.data());
    writer.write(unit_name(unit), "norm.weight", {35}, values.data());
  }
  writer.finish();
}

Floats read_one(const WeightsReader& reader, int unit) {
  Floats values(35);
  reader.read(unit_name(unit), "attention.qkv.weight", {5, 7}, values.data());
  return values;
}

TEST(WeightsFile, ComesBackBitByBit) {
  const ScratchFolder folder;
  const std::string path = folder.file("weights.h5");
  write_model(path);
  const WeightsReader reader(path);
  EXPECT_EQ(reader.deck(), "model:\n  layers: 12\n");
  EXPECT_EQ(reader.step(), 1234);
  EXPECT_EQ(reader.tokenizer(), "some tokenizer");
  EXPECT_EQ(reader.huggingface_config(), "");
  for (int unit = 0; unit < units; ++unit) {
    EXPECT_EQ(read_one(reader, unit), values_of(unit));
    EXPECT_TRUE(std::signbit(read_one(reader, unit)[3]));
  }
}

TEST(WeightsFile, TakesALongDeckAndAnEmptyOne) {
  const ScratchFolder folder;
  for (const std::string& deck : {std::string(100'000, 'x'), std::string()}) {
    write_model(folder.file("weights.h5"), deck);
    EXPECT_EQ(WeightsReader(folder.file("weights.h5")).deck(), deck);
  }
}

TEST(WeightsFile, AppearsOnlyWhenFinished) {
  const ScratchFolder folder;
  const std::string path = folder.file("weights.h5");
  {
    WeightsWriter writer(path, "", 1, "byte");
    writer.write("unit", "parameter", {35}, values_of(0).data());
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST(WeightsFile, NamesWhatIsWrong) {
  const ScratchFolder folder;
  const std::string path = folder.file("weights.h5");
  write_model(path);
  const WeightsReader reader(path);
  Floats values(1000);
  const auto error = [&](const std::string& unit, const std::string& parameter,
                         const std::vector<std::int64_t>& shape) {
    return error_of([&] { reader.read(unit, parameter, shape, values.data()); });
  };
  EXPECT_HAS(error("block 99", "norm.weight", {35}),
             "has no parameter 'norm.weight' of unit 'block 99'");
  EXPECT_HAS(error("block 1", "norm.bias", {35}), "has no parameter 'norm.bias' of unit 'block 1'");
  EXPECT_HAS(error("block 1", "attention.qkv.weight", {7, 5}),
             "has the shape (5, 7) in weights file '" + path + "', expected (7, 5)");
  EXPECT_HAS(error("block 1", "attention.qkv.weight", {35}), "(5, 7)");
  EXPECT_HAS(error_of([&] {
               WeightsWriter(folder.file("w.h5"), "", 1, "byte").write("u", "p", {3, 0}, nullptr);
             }),
             "has the shape (3, 0); expected positive extents");
}

TEST(WeightsFile, RefusesWhatIsNoWeightsFile) {
  const ScratchFolder folder;
  const auto error = [&](const std::string& path) {
    return error_of([&] { WeightsReader reader(path); });
  };
  EXPECT_HAS(error(folder.file("none.h5")), "weights file '");
  EXPECT_HAS(error(folder.file("none.h5")), "does not exist");
  EXPECT_HAS(error(folder.file("")), "is a folder; expected a weights file");
  write_bytes(folder.file("text.h5"), "some text");
  EXPECT_HAS(error(folder.file("text.h5")), "is not an HDF5 file");
  hdf5::File file = hdf5::File::create(folder.file("tokens.h5"), "file");
  file.write_format("ostrakon-tokens", 1);
  file.commit();
  EXPECT_HAS(error(folder.file("tokens.h5")),
             "its format is 'ostrakon-tokens', expected 'ostrakon-weights'");
}

/// Returns whether the damage is detected; the test fails if it is not and other values are read.
bool detected(const std::string& path, const std::string& damaged) {
  write_bytes(path, damaged);
  try {
    const WeightsReader reader(path);
    EXPECT_EQ(reader.deck(), "model:\n  layers: 12\n");
    EXPECT_EQ(reader.step(), 1234);
    for (int unit = 0; unit < units; ++unit) {
      EXPECT_EQ(read_one(reader, unit), values_of(unit));
      Floats values(35);
      reader.read(unit_name(unit), "norm.weight", {35}, values.data());
      EXPECT_EQ(values, values_of(unit));
    }
    return false;
  } catch (const Error& error) {
    EXPECT_HAS(error.what(), path);
    return true;
  }
}

TEST(WeightsFile, TruncationIsFound) {
  const ScratchFolder folder;
  const std::string path = folder.file("weights.h5");
  write_model(path);
  const std::string bytes = read_bytes(path);
  for (std::size_t size = 0; size < bytes.size(); size += 1 + bytes.size() / 40) {
    EXPECT_TRUE(detected(path, bytes.substr(0, size))) << size;
  }
  EXPECT_TRUE(detected(path, bytes.substr(0, bytes.size() - 1)));
}

TEST(WeightsFile, FlippedBytesAreFoundOrHarmless) {
  const ScratchFolder folder;
  const std::string path = folder.file("weights.h5");
  write_model(path);
  const std::string bytes = read_bytes(path);
  std::mt19937 generator(3);
  int found = 0;
  for (int flip = 0; flip < 100; ++flip) {
    std::string damaged = bytes;
    const std::size_t at = generator() % damaged.size();
    damaged[at] = static_cast<char>(damaged[at] ^ (1 + generator() % 255));
    found += detected(path, damaged) ? 1 : 0;
    ASSERT_FALSE(::testing::Test::HasFailure()) << "byte " << at;
  }
  EXPECT_GE(found, 20);
}

}  // namespace
}  // namespace ostrakon::checkpoint
