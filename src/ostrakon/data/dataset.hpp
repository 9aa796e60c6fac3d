// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostrakon/base/facts.hpp>
#include <ostrakon/base/names.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/data/sample_source.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <string>
#include <vector>

namespace ostrakon::data {

enum class DatasetKind { tokens, synthetic };
constexpr Named<DatasetKind> dataset_names[] = {{DatasetKind::tokens, "tokens"},
                                                {DatasetKind::synthetic, "synthetic"}};
constexpr const char* name(DatasetKind kind) { return name_in(dataset_names, kind); }

/// What a sample has of documents.
enum class Documents {
  continued,  ///< consecutive tokens, in which one document follows the other
  separate    ///< whole documents, which do not see each other
};
constexpr Named<Documents> documents_names[] = {{Documents::continued, "continue"},
                                                {Documents::separate, "separate"}};
constexpr const char* name(Documents documents) { return name_in(documents_names, documents); }
/// DataSettings::restart_positions.
constexpr Named<bool> document_positions_names[] = {{true, "restart"}, {false, "continue"}};

struct DataSettings {
  DatasetKind dataset = DatasetKind::tokens;
  std::string path;             ///< token file, for `tokens`
  std::string validation_path;  ///< token file, or empty: no validation
  bool verify = true;           ///< check the file's checksum before training
  Documents documents = Documents::continued;
  bool restart_positions = true;  ///< whether positions of separate documents begin at 0 each
  double synthetic_noise = 0.1;   ///< fraction of tokens that the synthetic process draws at random
};

/// Sequences of tokens by global index: the content of a sample is a function of (seed, index),
/// never of the number of ranks.
class Dataset : public SampleSource {
 public:
  /// Writes `length` tokens of sample `index` (host memory), all in [0, vocabulary). Indices run
  /// through epochs, each in another order. Throws Error if the file can't be read or a token is
  /// out of range.
  virtual void read(std::uint64_t index, std::int32_t* tokens) = 0;

  /// Writes a batch: tokens (samples, sequence_length), then targets, which are the tokens shifted
  /// by one, as int32.
  void fill(std::uint64_t first, std::int64_t count, void* batch) override;
  /// Writes a part of each sample, with the tokens in the order of math::SequenceParts.
  void fill_part(std::uint64_t first, std::int64_t count, const SamplePart& part,
                 void* batch) override;
  std::int64_t sample_bytes() const override {
    return 2 * (length_ - 1) * static_cast<std::int64_t>(sizeof(std::int32_t));
  }

  /// Tokens per sample: sequence_length + 1, for inputs and targets.
  std::int64_t length() const { return length_; }
  /// Samples in one epoch.
  virtual std::uint64_t samples() const = 0;
  /// Entropy in nats per token, if known (synthetic).
  virtual std::optional<double> entropy() const { return std::nullopt; }
  /// Name of the tokenizer that made the token file; no_tokenizer for data that was not made from
  /// text.
  virtual std::string tokenizer() const { return no_tokenizer; }
  /// Facts that identify the data, independent of the file that holds it: the dataset and, for a
  /// token file, its checksum, number of tokens, vocabulary and tokenizer; for the synthetic
  /// process its parameters. Empty: unknown.
  Facts identity() const override { return {}; }
  /// Mean number of bytes of text per token, if known (token files).
  virtual std::optional<double> bytes_per_token() const { return std::nullopt; }

 protected:
  explicit Dataset(std::int64_t length)
      : length_(length), sample_(static_cast<std::size_t>(length)) {}

 private:
  std::int64_t length_;
  std::vector<std::int32_t> sample_;  ///< one sample, for fill
};

enum class Split { training, validation };
constexpr Named<Split> split_names[] = {{Split::training, "training"},
                                        {Split::validation, "validation"}};
constexpr const char* name(Split split) { return name_in(split_names, split); }

/// Collective over `world`: rank 0 verifies the file, and all ranks open it. Throws the same Error
/// on all ranks if one can't, or finds other data in it. Returns null for a validation split that
/// the settings do not name (synthetic data always has one). The validation samples of a token file
/// come in one order, whatever the seed; the first few are spread over the whole file.
std::unique_ptr<Dataset> open_dataset(const DataSettings& settings, Split split,
                                      std::int64_t sequence_length, std::int64_t vocabulary,
                                      std::uint64_t seed, comm::Communicator& world);

}  // namespace ostrakon::data
