// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <ostrakon/data/dataset.hpp>
#include <ostrakon/data/sample_order.hpp>
#include <ostrakon/data/token_file.hpp>
#include <set>

#include "../support/scratch_folder.hpp"

namespace ostrakon::data {
namespace {

using testing::error_of;
using testing::ScratchFolder;

std::vector<std::int32_t> sample(Dataset& dataset, std::uint64_t index) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(dataset.length()));
  dataset.read(index, tokens.data());
  return tokens;
}

/// A token file that all ranks see: token i is i % vocabulary.
class TokenDatasets : public ::testing::Test {
 protected:
  static constexpr std::int64_t tokens = 5000;
  static constexpr std::int64_t vocabulary = 101;
  static constexpr std::int64_t sequence = 64;

  void SetUp() override {
    folder_ = world_.broadcast(world_.rank() == 0 ? scratch_.file("") : "", 0);
    settings_.path = folder_ + "train.h5";
    settings_.validation_path = folder_ + "validation.h5";
    if (world_.rank() == 0) {
      write(settings_.path, 7);
      write(settings_.validation_path, 9);
    }
    world_.barrier();
  }
  void TearDown() override { world_.barrier(); }

  static void write(const std::string& path, std::int64_t bytes) {
    std::vector<std::int32_t> values(tokens);
    for (std::size_t i = 0; i < tokens; ++i) values[i] = static_cast<std::int32_t>(i % vocabulary);
    TokenFileWriter writer(path, "test", vocabulary, {});
    writer.append(values.data(), tokens);
    if (bytes > 0) writer.add_text_bytes(bytes);
    writer.finish();
  }

  std::unique_ptr<Dataset> open(Split split, std::uint64_t seed) {
    return open_dataset(settings_, split, sequence, vocabulary, seed, world_);
  }

  ScratchFolder scratch_;
  comm::Communicator world_ = comm::Communicator::duplicate(MPI_COMM_WORLD);
  std::string folder_;
  DataSettings settings_;
};

TEST_F(TokenDatasets, SamplesAreWindowsOfTheFile) {
  const auto dataset = open(Split::training, 5);
  EXPECT_EQ(dataset->length(), sequence + 1);
  EXPECT_FALSE(dataset->entropy().has_value());
  EXPECT_EQ(dataset->tokenizer(), "test");
  EXPECT_DOUBLE_EQ(*dataset->bytes_per_token(), 7.0 / tokens);
  const SampleOrder order = SampleOrder::shuffled(tokens, sequence, 5);
  ASSERT_EQ(dataset->samples(), order.samples());
  for (std::uint64_t index = 0; index < 3 * dataset->samples(); ++index) {
    const std::vector<std::int32_t> found = sample(*dataset, index);
    for (std::int64_t i = 0; i <= sequence; ++i) {
      ASSERT_EQ(found[static_cast<std::size_t>(i)], (order.first_token(index) + i) % vocabulary);
    }
  }
}

TEST_F(TokenDatasets, BatchesAreTokensAndThenTargets) {
  const auto dataset = open(Split::training, 1);
  ASSERT_EQ(dataset->sample_bytes(), 2 * sequence * 4);
  constexpr std::int64_t count = 3, first = 5;
  std::vector<std::int32_t> batch(2 * count * sequence);
  dataset->fill(first, count, batch.data());
  for (std::int64_t s = 0; s < count; ++s) {
    const std::vector<std::int32_t> drawn = sample(*dataset, first + static_cast<std::uint64_t>(s));
    const auto begin = batch.begin() + s * sequence;
    EXPECT_TRUE(std::equal(begin, begin + sequence, drawn.begin()));
    const auto targets = begin + count * sequence;
    EXPECT_TRUE(std::equal(targets, targets + sequence, drawn.begin() + 1));
  }
}

TEST_F(TokenDatasets, RanksReadTheSame) {
  const auto dataset = open(Split::training, 5);
  std::uint64_t sum = 0;
  for (std::uint64_t index = 0; index < 200; ++index) {
    for (const std::int32_t token : sample(*dataset, index)) {
      sum = sum * 31 + static_cast<std::uint64_t>(token);
    }
  }
  for (const std::string& other : world_.gather_texts(std::to_string(sum))) {
    EXPECT_EQ(other, std::to_string(sum));
  }
}

TEST_F(TokenDatasets, ValidationIgnoresTheSeed) {
  const auto one = open(Split::validation, 1);
  const auto two = open(Split::validation, 2);
  EXPECT_EQ(one->samples(), static_cast<std::uint64_t>((tokens - 1) / sequence));
  EXPECT_DOUBLE_EQ(*one->bytes_per_token(), 9.0 / tokens);
  for (std::uint64_t index = 0; index < 2 * one->samples(); ++index) {
    EXPECT_EQ(sample(*one, index), sample(*two, index));
    EXPECT_EQ(sample(*one, index)[0],
              SampleOrder::fixed(tokens, sequence).first_token(index) % vocabulary);
  }
  world_.barrier();
  if (world_.rank() == 0) write(settings_.validation_path, 0);
  world_.barrier();
  EXPECT_FALSE(open(Split::validation, 1)->bytes_per_token().has_value());
  settings_.validation_path.clear();
  EXPECT_EQ(open(Split::validation, 1), nullptr);
}

TEST_F(TokenDatasets, RefusalsReachEveryRank) {
  const auto error = [&](std::int64_t length, std::int64_t model_vocabulary) {
    return error_of(
        [&] { open_dataset(settings_, Split::training, length, model_vocabulary, 1, world_); });
  };
  EXPECT_EQ(error(sequence, vocabulary), "no error");
  EXPECT_EQ(error(tokens - 1, 200), "no error");
  EXPECT_HAS(error(tokens, vocabulary),
             "holds 5000 tokens, too few for one sample: training.sequence_length 5000 "
             "needs 5001");
  EXPECT_HAS(error(sequence, 100),
             "has a vocabulary of 101 (tokenizer test), but model.vocabulary is 100");
  settings_.path = folder_ + "none.h5";
  EXPECT_HAS(error(sequence, vocabulary), "none.h5' does not exist");
  settings_.path = "";
  EXPECT_HAS(error(sequence, vocabulary), "data.path names no token file");
}

TEST_F(TokenDatasets, DamageIsFoundByRankZeroForAll) {
  if (world_.rank() == 0) {
    std::string bytes = testing::read_bytes(settings_.path);
    // The tokens 0, 1, 2, ... are stored as bytes.
    const std::size_t at = bytes.find("\x20\x21\x22\x23\x24\x25");
    EXPECT_NE(at, std::string::npos);
    bytes[at] = '\x55';
    testing::write_bytes(settings_.path, bytes);
  }
  world_.barrier();
  const std::string error = error_of([&] { open(Split::training, 1); });
  EXPECT_HAS(error, "train.h5'");

  settings_.verify = false;
  const auto dataset = open(Split::training, 1);
  EXPECT_NE(error_of([&] { sample(*dataset, 0); }), "no error") << "chunks carry checksums too";
}

// --- Synthetic -----------------------------------------------------------------------------------

std::unique_ptr<Dataset> synthetic(double noise, Split split, std::int64_t length,
                                   std::int64_t vocabulary, std::uint64_t seed) {
  auto world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  DataSettings settings;
  settings.dataset = DatasetKind::synthetic;
  settings.synthetic_noise = noise;
  return open_dataset(settings, split, length, vocabulary, seed, world);
}

TEST(Synthetic, EntropyAgreesWithBigramCounts) {
  constexpr std::size_t vocabulary = 11;
  for (const double noise : {0.0, 0.1, 0.7, 1.0}) {
    const auto dataset = synthetic(noise, Split::training, 500, vocabulary, 3);
    std::vector<double> counts(vocabulary * vocabulary, 0.0);
    for (std::uint64_t index = 0; index < 400; ++index) {
      const std::vector<std::int32_t> tokens = sample(*dataset, index);
      for (std::size_t i = 1; i < tokens.size(); ++i) {
        counts[static_cast<std::size_t>(tokens[i - 1]) * vocabulary +
               static_cast<std::size_t>(tokens[i])] += 1.0;
      }
    }
    double total = 0.0, entropy = 0.0;
    for (std::size_t from = 0; from < vocabulary; ++from) {
      const double* row = counts.data() + from * vocabulary;
      const double row_total = std::accumulate(row, row + vocabulary, 0.0);
      total += row_total;
      for (std::size_t to = 0; to < vocabulary; ++to) {
        if (row[to] > 0.0) entropy -= row[to] * std::log(row[to] / row_total);
      }
    }
    EXPECT_NEAR(entropy / total, *dataset->entropy(), 0.01) << "noise " << noise;
  }
}

TEST(Synthetic, NamesItsTokens) {
  EXPECT_EQ(synthetic(0.1, Split::training, 4, 10, 1)->tokenizer(), "synthetic");
}

TEST(Synthetic, EntropyInClosedForm) {
  EXPECT_DOUBLE_EQ(*synthetic(0.0, Split::training, 4, 100, 1)->entropy(), 0.0);
  EXPECT_NEAR(*synthetic(1.0, Split::training, 4, 100, 1)->entropy(), std::log(100.0), 1e-12);
  EXPECT_NEAR(*synthetic(0.5, Split::training, 4, 1, 1)->entropy(), 0.0, 1e-15);
  // With two tokens and noise 1/2, the successor has probability 3/4.
  EXPECT_NEAR(*synthetic(0.5, Split::training, 4, 2, 1)->entropy(),
              -0.75 * std::log(0.75) - 0.25 * std::log(0.25), 1e-12);
}

TEST(Synthetic, IsAFunctionOfSeedAndIndex) {
  const auto one = synthetic(0.1, Split::training, 50, 1000, 1);
  const auto again = synthetic(0.1, Split::training, 50, 1000, 1);
  const auto other = synthetic(0.1, Split::training, 50, 1000, 2);
  std::set<std::vector<std::int32_t>> seen;
  for (std::uint64_t index = 0; index < 100; ++index) {
    EXPECT_EQ(sample(*one, 99 - index), sample(*again, 99 - index));
    EXPECT_NE(sample(*one, index), sample(*other, index));
    seen.insert(sample(*one, index));
  }
  EXPECT_EQ(seen.size(), 100u);
  EXPECT_GT(one->samples(), std::uint64_t{1} << 40);
}

TEST(Synthetic, ValidationSharesThePermutationAlone) {
  const auto training = synthetic(0.0, Split::training, 200, 31, 1);
  const auto validation = synthetic(0.0, Split::validation, 200, 31, 1);
  std::vector<std::int32_t> successor(31, -1);
  bool differ = false;
  for (std::uint64_t index = 0; index < 50; ++index) {
    for (Dataset* dataset : {training.get(), validation.get()}) {
      const std::vector<std::int32_t> tokens = sample(*dataset, index);
      for (std::size_t i = 1; i < tokens.size(); ++i) {
        std::int32_t& known = successor[static_cast<std::size_t>(tokens[i - 1])];
        if (known == -1) known = tokens[i];
        ASSERT_EQ(tokens[i], known);
      }
    }
    differ |= sample(*training, index) != sample(*validation, index);
  }
  EXPECT_TRUE(differ);
}

TEST(Synthetic, RefusesImpossibleNoise) {
  EXPECT_EQ(error_of([] { synthetic(1.5, Split::training, 4, 10, 1); }),
            "data.synthetic_noise is 1.5; expected 0 to 1");
  EXPECT_NE(error_of([] { synthetic(std::nan(""), Split::training, 4, 10, 1); }), "no error");
  EXPECT_NE(error_of([] { synthetic(0.5, Split::training, 0, 10, 1); }), "no error");
  EXPECT_NE(error_of([] { synthetic(0.5, Split::training, 4, 0, 1); }), "no error");
}

}  // namespace
}  // namespace ostrakon::data
