// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/checkpoint/manifest.hpp>
#include <string>
#include <utility>
#include <vector>

#include "../support/scratch_folder.hpp"

namespace ostrakon::checkpoint {

inline PieceEntry piece(State state, int parameter, std::int64_t first, std::int64_t count,
                        int rank, std::int64_t offset, std::vector<std::uint64_t> checksums) {
  return {{state, parameter, first, count}, rank, offset, std::move(checksums)};
}

/// Returns a manifest of two ranks with a file each; "b" has a first moment, nothing has a second.
inline Manifest small_manifest() {
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

/// Whether `work` throws DamagedError, rather than another Error or nothing.
template <class Work>
inline bool finds_damage(const Work& work) {
  try {
    work();
  } catch (const DamagedError&) {
    return true;
  } catch (const Error&) {
  }
  return false;
}

/// Returns the message for a text. `is_damage`: whether it must be a DamagedError.
inline std::string refusal_of(const std::string& text, bool is_damage = false) {
  const auto read = [&] { read_manifest(text, "manifest.json"); };
  const std::string refusal = testing::error_of(read);
  EXPECT_EQ(finds_damage(read), is_damage && refusal != "no error") << refusal;
  return refusal;
}
inline std::string refusal_of(const Manifest& manifest) {
  return refusal_of(write_manifest(manifest));
}

/// Returns a changed manifest with a correct checksum.
inline std::string signed_again(std::string text) {
  const std::string key = "\"checksum\": \"";
  const std::size_t place = text.find(key) + key.size();
  text.replace(place, 16, std::string(16, '0'));
  hdf5::Checksum sum;
  sum.add(text.data(), static_cast<std::int64_t>(text.size()));
  return text.replace(place, 16, sum.hex());
}

inline std::string replaced(const std::string& from, const std::string& to) {
  std::string text = write_manifest(small_manifest());
  const std::size_t place = text.find(from);
  EXPECT_NE(place, std::string::npos) << from;
  return signed_again(text.replace(place, from.size(), to));
}

inline void expect_refused(const std::string& refusal, const std::string& part) {
  EXPECT_NE(refusal.find(part), std::string::npos) << refusal << "\nexpected: " << part;
  EXPECT_NE(refusal.find("manifest.json"), std::string::npos) << refusal;
}

}  // namespace ostrakon::checkpoint
