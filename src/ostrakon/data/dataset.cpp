// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/data/dataset.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <limits>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/comm/agreement.hpp>
#include <ostrakon/data/mixture.hpp>
#include <ostrakon/data/packed_dataset.hpp>
#include <ostrakon/data/pair_dataset.hpp>
#include <ostrakon/data/random_integer.hpp>
#include <ostrakon/data/sample_order.hpp>
#include <ostrakon/data/token_file.hpp>
#include <ostrakon/math/attention/sequence_parts.hpp>

namespace ostrakon::data {
namespace {

// --- Tokens --------------------------------------------------------------------------------------

SampleOrder make_order(const TokenFile& file, Split split, std::int64_t sequence_length,
                       std::uint64_t seed) {
  const std::int64_t tokens = file.info().token_count;
  require(tokens > sequence_length, "token file '", file.path(), "' holds ", tokens,
          " tokens, too few for one sample: training.sequence_length ", sequence_length, " needs ",
          sequence_length + 1);
  return split == Split::training ? SampleOrder::shuffled(tokens, sequence_length, seed)
                                  : SampleOrder::fixed(tokens, sequence_length);
}

class TokenDataset : public Dataset {
 public:
  TokenDataset(TokenFile file, SampleOrder order, std::int64_t sequence_length)
      : Dataset(sequence_length + 1),
        file_(std::move(file)),
        order_(order),
        counts_(static_cast<std::size_t>(length())) {}

  void read(std::uint64_t index, std::int32_t* tokens) override {
    file_.read(order_.first_token(index), length(), tokens, counts_.data());
  }
  void read_rows(std::uint64_t index, const SampleRows& rows) override {
    Dataset::read_rows(index, rows);
    for (std::int64_t i = 0; i + 1 < length(); ++i)
      if (counts_[static_cast<std::size_t>(i + 1)] == 0) rows.targets[i] = not_counted;
  }
  std::uint64_t samples() const override { return order_.samples(); }
  std::string tokenizer() const override { return file_.info().tokenizer; }
  Facts identity() const override { return file_.info().identity(); }
  std::optional<double> bytes_per_token() const override {
    return file_.info().has_mask ? std::nullopt : file_.info().bytes_per_token();
  }

 private:
  TokenFile file_;
  SampleOrder order_;
  std::vector<std::uint8_t> counts_;  ///< of the sample that was read last
};

/// What samples are wanted of a token file.
struct Wanted {
  Objective objective;
  Documents documents;
  Split split;
  std::int64_t sequence_length;
  std::int64_t vocabulary;
  std::uint64_t seed;
  bool verify;
};

std::unique_ptr<Dataset> open_tokens(const std::string& path, const Wanted& wanted) {
  TokenFile file(path);
  const TokenFileInfo& info = file.info();
  require(info.vocabulary <= wanted.vocabulary, "token file '", path, "' has a vocabulary of ",
          info.vocabulary, " (tokenizer ", info.tokenizer, "), but model.vocabulary is ",
          wanted.vocabulary, ": set it to at least ", info.vocabulary);
  if (wanted.objective == Objective::dpo) {
    if (wanted.verify) file.verify();
    return open_pairs(std::move(file), wanted.split, wanted.sequence_length, wanted.seed);
  }
  require(!info.pairs, "token file '", path, "' has pairs of answers, and training.objective is ",
          name(wanted.objective), ", which would train on rejected answers, too; expected ",
          "training.objective = ", name(Objective::dpo), ", or a file without pairs");
  if (wanted.documents == Documents::separate) {
    if (wanted.verify) file.verify();
    return open_packed(std::move(file), wanted.split, wanted.sequence_length, wanted.seed);
  }
  const SampleOrder order = make_order(file, wanted.split, wanted.sequence_length, wanted.seed);
  if (wanted.verify) file.verify();
  return std::make_unique<TokenDataset>(std::move(file), order, wanted.sequence_length);
}

/// Returns the files of a split.
std::vector<WeightedFile> files_of(const DataSettings& settings, Split split) {
  if (split == Split::training) return read_files(settings.path);
  return {{settings.validation_path, 1.0}};
}

/// Throws Error where two paths of a mixture lead to one file.
void require_different_files(const std::vector<WeightedFile>& files) {
  std::map<std::filesystem::path, std::string> found;
  for (const WeightedFile& file : files) {
    std::error_code failure;
    const std::filesystem::path path = std::filesystem::canonical(file.path, failure);
    if (failure) continue;  // opening it says why
    const auto [other, is_new] = found.emplace(path, file.path);
    require(is_new, "token file '", file.path, "' is in the mixture twice",
            other->second == file.path ? "" : text(", also as '", other->second, "'"),
            "; expected each file once, with the sum of its weights");
  }
}

std::unique_ptr<Dataset> open_files(const std::vector<WeightedFile>& files, Wanted wanted) {
  if (files.size() == 1) return open_tokens(files[0].path, wanted);
  require(wanted.objective != Objective::dpo, "data.path names ", files.size(),
          " files with training.objective = ", name(wanted.objective), "; expected one");
  require_different_files(files);
  std::vector<MixtureSource> sources;
  const std::uint64_t key = math::random_key(wanted.seed, "sources of a mixture");
  const std::uint64_t seed = wanted.seed;
  for (std::size_t k = 0; k < files.size(); ++k) {
    // Files of equal length, as texts and their translations, have orders of their own.
    if (k > 0) wanted.seed = random_integer(key, k, 0);
    sources.push_back({files[k], open_tokens(files[k].path, wanted)});
  }
  return make_mixture(std::move(sources), seed);
}

// --- Synthetic -----------------------------------------------------------------------------------

/// A Markov chain: each token is followed by its successor under a random permutation of the
/// vocabulary or, with probability `noise`, by a token drawn uniformly. A model can learn the
/// permutation; the loss that remains is the entropy, known in closed form.
class SyntheticDataset : public Dataset {
 public:
  SyntheticDataset(double noise, Split split, std::int64_t sequence_length, std::int64_t vocabulary,
                   std::uint64_t seed)
      : Dataset(sequence_length + 1),
        noise_(noise),
        seed_(seed),
        vocabulary_(static_cast<std::uint64_t>(vocabulary)),
        successor_(vocabulary_, math::random_key(seed, "synthetic successor")),
        key_(math::random_key(seed, std::string("synthetic ") + name(split))) {}

  void read(std::uint64_t index, std::int32_t* tokens) override {
    std::uint64_t token = draw(0, index);
    tokens[0] = static_cast<std::int32_t>(token);
    for (std::int64_t i = 1; i < length(); ++i) {
      const auto position = static_cast<std::uint64_t>(i);
      // Odd counters decide between successor and noise, even counters draw the token.
      const bool random = random_unit(key_, 2 * position + 1, index) < noise_;
      token = random ? draw(position, index) : successor_(token);
      tokens[i] = static_cast<std::int32_t>(token);
    }
  }

  /// So many samples that no run sees one twice.
  std::uint64_t samples() const override { return std::uint64_t{1} << 48; }

  Facts identity() const override {
    TextWriter noise;
    noise << std::setprecision(17) << noise_;
    return {{"dataset", name(DatasetKind::synthetic)},
            {"noise", noise.str()},
            {"vocabulary", std::to_string(vocabulary_)},
            {"seed", std::to_string(seed_)}};
  }

  std::optional<double> entropy() const override {
    const auto size = static_cast<double>(vocabulary_);
    const double other = noise_ / size;  // probability of each token except the successor
    const double successor = 1.0 - noise_ + other;
    const auto information = [](double p) { return p > 0.0 ? -p * std::log(p) : 0.0; };
    return information(successor) + (size - 1.0) * information(other);
  }

 private:
  std::uint64_t draw(std::uint64_t position, std::uint64_t index) const {
    return random_integer(key_, 2 * position, index) % vocabulary_;
  }

  double noise_;
  std::uint64_t seed_;
  std::uint64_t vocabulary_;
  Permutation successor_;
  std::uint64_t key_;
};

}  // namespace

void Dataset::fill(std::uint64_t first, std::int64_t count, void* batch) {
  fill_part(first, count, {}, batch);
}

void Dataset::fill_part(std::uint64_t first, std::int64_t count, const SamplePart& part,
                        void* batch) {
  const std::int64_t length = length_ - 1, arrays = has_documents() ? 3 : 2;
  const math::SequenceParts sequence{length, part.parts, part.pieces};
  const std::int64_t tokens = sequence.part_tokens();
  auto* const out = static_cast<std::int32_t*>(batch);
  const SampleRows sample{sample_.data(), sample_.data() + length,
                          has_documents() ? sample_.data() + 2 * length : nullptr};
  for (std::int64_t s = 0; s < count; ++s) {
    read_rows(first + static_cast<std::uint64_t>(s), sample);
    for (std::int64_t r = 0; r < sequence.runs(); ++r) {
      const math::TokenRun run = sequence.run(part.index, r);
      const std::int64_t row = s * tokens + run.row;
      for (std::int64_t a = 0; a < arrays; ++a)
        std::copy_n(sample_.data() + a * length + run.position, run.count,
                    out + a * count * tokens + row);
    }
  }
}

void Dataset::read_rows(std::uint64_t index, const SampleRows& rows) {
  window_.resize(static_cast<std::size_t>(length_));
  read(index, window_.data());
  std::copy(window_.begin(), window_.end() - 1, rows.tokens);
  std::copy(window_.begin() + 1, window_.end(), rows.targets);
}

std::unique_ptr<Dataset> open_dataset(const DataSettings& settings, Split split,
                                      std::int64_t sequence_length, std::int64_t vocabulary,
                                      std::uint64_t seed, comm::Communicator& world) {
  require(sequence_length >= 1, "a sequence length of ", sequence_length, "; expected at least 1");
  require(vocabulary >= 1 && vocabulary <= std::numeric_limits<std::int32_t>::max(),
          "a vocabulary of ", vocabulary, "; expected 1 to ",
          std::numeric_limits<std::int32_t>::max());
  if (settings.dataset == DatasetKind::synthetic) {
    require(settings.synthetic_noise >= 0.0 && settings.synthetic_noise <= 1.0,
            "data.synthetic_noise is ", settings.synthetic_noise, "; expected 0 to 1");
    require(settings.documents == Documents::continued, "data.documents is ",
            name(settings.documents), ", but data.dataset is ", name(settings.dataset),
            ", which has no documents; expected data.documents = ", name(Documents::continued));
    return std::make_unique<SyntheticDataset>(settings.synthetic_noise, split, sequence_length,
                                              vocabulary, seed);
  }

  const std::string& path = split == Split::training ? settings.path : settings.validation_path;
  if (split == Split::validation && path.empty()) return nullptr;
  require(!path.empty(), "data.path names no token file; make one with ostrakon-data build");

  std::unique_ptr<Dataset> dataset;
  world.run_collectively([&] {
    const bool verify = settings.verify && world.rank() == 0;
    dataset = open_files(files_of(settings, split), {settings.objective, settings.documents, split,
                                                     sequence_length, vocabulary, seed, verify});
  });
  comm::require_agreement(world, text("ranks find different ", name(split), " data in ", path),
                          dataset->identity());
  return dataset;
}

}  // namespace ostrakon::data
