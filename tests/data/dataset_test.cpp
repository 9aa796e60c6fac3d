// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <ostrakon/data/dataset.hpp>
#include <ostrakon/data/packing.hpp>
#include <ostrakon/data/sample_order.hpp>
#include <ostrakon/data/token_file.hpp>
#include <ostrakon/math/attention/sequence_parts.hpp>
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

// --- Masks, documents and mixtures ---------------------------------------------------------------

/// Token files of documents of 1 to 99 tokens, in which token i is (first + i) % vocabulary, and
/// does not count where i % 5 is less than `masked`.
class DocumentDatasets : public ::testing::Test {
 protected:
  static constexpr std::int64_t vocabulary = 251, sequence = 48;

  struct Content {
    std::int64_t first = 0, tokens = 3000;
    int masked = 0;
    std::string tokenizer = "test";
  };

  void SetUp() override {
    folder_ = world_.broadcast(world_.rank() == 0 ? scratch_.file("") : "", 0);
    write("a.h5", {0});
    write("b.h5", {1000, 5000, 1});
    write("c.h5", {2000, 800, 2});
    write("other.h5", {0, 800, 0, "another"});
  }
  void TearDown() override { world_.barrier(); }

  void write(const std::string& name, const Content& content) {
    if (world_.rank() == 0) {
      TokenFileWriter writer(folder_ + name, content.tokenizer, vocabulary, {});
      std::int64_t length = 1;
      for (std::int64_t i = 0; i < content.tokens; ++i) {
        const auto token = static_cast<std::int32_t>((content.first + i) % vocabulary);
        const std::uint8_t counts = i % 5 < content.masked ? 0 : 1;
        writer.append(&token, 1, &counts);
        if (--length > 0) continue;
        writer.end_document();
        length = 1 + i * 37 % 99;
      }
      writer.finish();
    }
    world_.barrier();
  }

  std::unique_ptr<Dataset> open(const std::string& path, Documents documents,
                                Split split = Split::training) {
    DataSettings settings;
    settings.path = settings.validation_path = path;
    settings.documents = documents;
    return open_dataset(settings, split, sequence, vocabulary, 5, world_);
  }
  std::string in_folder(const std::string& name) const { return folder_ + name; }

  /// A sample's arrays.
  struct Rows {
    std::vector<std::int32_t> tokens, targets, begins;
  };
  static Rows rows(Dataset& dataset, std::uint64_t index) {
    Rows rows;
    for (auto* array : {&rows.tokens, &rows.targets, &rows.begins}) array->resize(sequence);
    dataset.read_rows(index, {rows.tokens.data(), rows.targets.data(), rows.begins.data()});
    return rows;
  }

  ScratchFolder scratch_;
  comm::Communicator world_ = comm::Communicator::duplicate(MPI_COMM_WORLD);
  std::string folder_;
};

TEST_F(DocumentDatasets, TargetsThatDoNotCountAreMinusOne) {
  const auto dataset = open(in_folder("b.h5"), Documents::continued);
  EXPECT_FALSE(dataset->has_documents());
  EXPECT_EQ(dataset->sample_bytes(), 2 * 4 * sequence);
  const SampleOrder order = SampleOrder::shuffled(5000, sequence, 5);
  for (std::uint64_t index = 0; index < 2 * dataset->samples(); ++index) {
    const Rows found = rows(*dataset, index);
    for (std::int64_t i = 0; i < sequence; ++i) {
      const std::int64_t at = order.first_token(index) + i;
      ASSERT_EQ(found.tokens[static_cast<std::size_t>(i)], (1000 + at) % vocabulary);
      ASSERT_EQ(found.targets[static_cast<std::size_t>(i)],
                (at + 1) % 5 < 1 ? -1 : (1001 + at) % vocabulary);
    }
  }
}

TEST_F(DocumentDatasets, PackedSamplesHaveWholeDocuments) {
  for (const Split split : {Split::training, Split::validation}) {
    const auto dataset = open(in_folder("b.h5"), Documents::separate, split);
    ASSERT_TRUE(dataset->has_documents());
    ASSERT_EQ(dataset->sample_bytes(), 3 * 4 * sequence);
    const Packing packing(TokenFile(in_folder("b.h5")).document_offsets(), sequence);
    ASSERT_EQ(dataset->samples(), packing.samples());
    EXPECT_NEAR(dataset->padding(),
                1.0 - static_cast<double>(packing.used_places()) /
                          static_cast<double>(packing.samples() * sequence),
                1e-12);
    EXPECT_LT(dataset->padding(), 0.1);
    // What a sample should be, of each of the packing.
    std::multiset<std::vector<std::int32_t>> expected, found, second;
    for (std::uint64_t s = 0; s < packing.samples(); ++s) {
      std::vector<std::int32_t> tokens(sequence, 0), targets(sequence, -1), begins(sequence);
      std::iota(begins.begin(), begins.end(), 0);
      std::size_t at = 0;
      for (const Packing::Piece& piece : packing.pieces(s)) {
        const std::size_t begin = at;
        for (std::int64_t i = piece.begin; i < piece.begin + piece.places; ++i, ++at) {
          tokens[at] = static_cast<std::int32_t>((1000 + i) % vocabulary);
          if ((i + 1) % 5 >= 1) targets[at] = static_cast<std::int32_t>((1001 + i) % vocabulary);
          begins[at] = static_cast<std::int32_t>(begin);
        }
      }
      tokens.insert(tokens.end(), targets.begin(), targets.end());
      tokens.insert(tokens.end(), begins.begin(), begins.end());
      expected.insert(tokens);
    }
    bool is_another_order = false;
    for (std::uint64_t index = 0; index < 2 * packing.samples(); ++index) {
      std::vector<std::int32_t> batch(3 * sequence), first(3 * sequence);
      dataset->fill(index, 1, batch.data());
      (index < packing.samples() ? found : second).insert(batch);
      dataset->fill(index % packing.samples(), 1, first.data());
      is_another_order |= first != batch;
    }
    EXPECT_EQ(found, expected);
    EXPECT_EQ(second, expected);
    EXPECT_EQ(is_another_order, split == Split::training);
  }
}

TEST_F(DocumentDatasets, PartsOfPackedSamplesAreTheirRows) {
  const auto dataset = open(in_folder("b.h5"), Documents::separate);
  constexpr std::int64_t count = 3, parts = 2, pieces = 4;
  const math::SequenceParts sequences{sequence, parts, pieces};
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::int64_t tokens = sequences.part_tokens();
    std::vector<std::int32_t> batch(static_cast<std::size_t>(3 * count * tokens));
    dataset->fill_part(7, count, {part, parts, pieces}, batch.data());
    for (std::int64_t s = 0; s < count; ++s) {
      const Rows whole = rows(*dataset, 7 + static_cast<std::uint64_t>(s));
      for (std::int64_t row = 0; row < tokens; ++row) {
        const auto position = static_cast<std::size_t>(sequences.position(part, row));
        const std::int32_t* at = batch.data() + s * tokens + row;
        ASSERT_EQ(at[0], whole.tokens[position]);
        ASSERT_EQ(at[count * tokens], whole.targets[position]);
        ASSERT_EQ(at[2 * count * tokens], whole.begins[position]);
      }
    }
  }
}

TEST_F(DocumentDatasets, MixturesGoThroughEachOfTheirFiles) {
  for (const Documents documents : {Documents::continued, Documents::separate}) {
    const std::string both = "3 " + in_folder("a.h5") + "; 1 " + in_folder("b.h5");
    const auto mixture = open(both, documents);
    const auto first = open(in_folder("a.h5"), documents);
    EXPECT_EQ(mixture->samples(), first->samples() + open(in_folder("b.h5"), documents)->samples());
    EXPECT_EQ(mixture->has_documents(), documents == Documents::separate);
    std::vector<std::uint64_t> next(3, 0);
    const auto expect_next = [&](Dataset& data, std::uint64_t index, std::size_t files) {
      const std::vector<SourceUse> before = data.sources(index), after = data.sources(index + 1);
      ASSERT_EQ(before.size(), files);
      std::size_t source = 0;
      while (source + 1 < files && after[source].samples == before[source].samples) ++source;
      ASSERT_EQ(static_cast<std::uint64_t>(before[source].samples), next[source]);
      if (source == 0) {
        ASSERT_EQ(rows(data, index).tokens, rows(*first, next[0]).tokens);
      }
      ++next[source];
    };
    for (std::uint64_t index = 0; index < 300; ++index) expect_next(*mixture, index, 2);
    EXPECT_NEAR(static_cast<double>(next[0]), 225.0, 40.0);

    // It resumes with another file, and without samples of the first one.
    const Facts kept = facts_to_keep(*mixture, 300);
    const auto resumed =
        open("0 " + in_folder("a.h5") + "; 1 " + in_folder("b.h5") + "; 2 " + in_folder("c.h5"),
             documents);
    resumed->continue_from(300, kept_choices(kept));
    const std::vector<std::uint64_t> before = next;
    for (std::uint64_t index = 300; index < 600; ++index) expect_next(*resumed, index, 3);
    EXPECT_EQ(next[0], before[0]);
    EXPECT_NEAR(static_cast<double>(next[2]), 200.0, 40.0);
    EXPECT_EQ(kept_identity(kept).size(), mixture->identity().size());
    EXPECT_FALSE(first_difference(kept_identity(kept), mixture->identity()));
  }
}

TEST_F(DocumentDatasets, RefusesMixturesThatCannotBe) {
  EXPECT_HAS(error_of([&] {
               open(in_folder("a.h5") + "; " + in_folder("other.h5"), Documents::continued);
             }),
             "other.h5' has tokens of the tokenizer another, and '");
  EXPECT_HAS(error_of([&] { open(in_folder("a.h5") + "; none.h5", Documents::continued); }),
             "none.h5' does not exist");
  for (const char* const meant : {"x ", "0,7 ", "70% ", "nan "})
    EXPECT_HAS(error_of([&] { open(meant + in_folder("a.h5"), Documents::continued); }),
               "nothing before a space in it was taken as a weight; expected a number >= 0 and");
  for (const char* const after : {" 0.7", ", b.h5"})
    EXPECT_HAS(error_of([&] { open(in_folder("a.h5") + after, Documents::continued); }),
               "and ';' between files");
  if (world_.rank() == 0) std::filesystem::create_symlink(in_folder("a.h5"), in_folder("link.h5"));
  world_.barrier();
  for (const char* const name : {"a.h5", "link.h5"})
    EXPECT_HAS(error_of([&] {
                 open("0.7 " + in_folder("a.h5") + "; 0.3 " + in_folder(name),
                      Documents::continued);
               }),
               std::string(name) + "' is in the mixture twice");
  DataSettings synthetic;
  synthetic.dataset = DatasetKind::synthetic;
  synthetic.documents = Documents::separate;
  EXPECT_HAS(error_of([&] { open_dataset(synthetic, Split::training, 8, 20, 1, world_); }),
             "data.documents is separate, but data.dataset is synthetic");
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
