// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostrakon/base/facts.hpp>
#include <ostrakon/base/names.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/data/data_settings.hpp>
#include <ostrakon/data/sample_source.hpp>
#include <ostrakon/data/tokenizer.hpp>
#include <string>
#include <vector>

namespace ostrakon::data {

/// Target of a place in a sample whose prediction does not count in the loss.
constexpr std::int32_t not_counted = -1;

/// Arrays of one sample, each of sequence_length elements, in the order of positions.
struct SampleRows {
  std::int32_t* tokens;
  std::int32_t* targets;  ///< what to predict after each token; not_counted: does not count
  /// For each token, the position of the first token of its document. Null unless has_documents().
  std::int32_t* document_begins;
};

/// Separates the name of a fact from the number of its source in a mixture ("checksum of source
/// 2"); facts of the first source have no number.
constexpr const char* of_source = " of source ";

/// A source of a mixture: what has been drawn from it.
struct SourceUse {
  std::string path;
  double share = 0.0;                  ///< of samples, from now on
  std::int64_t samples = 0;            ///< drawn so far
  std::uint64_t samples_of_epoch = 1;  ///< of this source
  double padding = 0.0;                ///< as Dataset::padding()
};

class PairDataset;

/// Sequences of tokens by global index: the content of a sample is a function of (seed, index),
/// never of the number of ranks; of a mixture that was resumed with other weights also of those
/// before.
class Dataset : public SampleSource {
 public:
  /// Writes `length` tokens of sample `index` (host memory), all in [0, vocabulary): its inputs,
  /// and what follows the last one. Indices run through epochs, each in another order. Throws Error
  /// if the file can't be read or a token is out of range.
  virtual void read(std::uint64_t index, std::int32_t* tokens) = 0;
  /// Writes inputs and targets of sample `index`, and where its documents begin. Without an
  /// override, targets are the tokens shifted by one, and all count.
  virtual void read_rows(std::uint64_t index, const SampleRows& rows);
  /// Whether a sample has documents that do not see each other: a batch then says where they begin.
  virtual bool has_documents() const { return false; }

  /// Writes a batch: tokens (samples, sequence_length), then targets (samples, sequence_length),
  /// then, if has_documents(), document_begins (samples, sequence_length), as int32.
  void fill(std::uint64_t first, std::int64_t count, void* batch) override;
  /// Writes a part of each sample, with the tokens in the order of math::SequenceParts.
  void fill_part(std::uint64_t first, std::int64_t count, const SamplePart& part,
                 void* batch) override;
  std::int64_t sample_bytes() const override {
    return (has_documents() ? 3 : 2) * (length_ - 1) *
           static_cast<std::int64_t>(sizeof(std::int32_t));
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
  /// process its parameters. Those of the second and later files of a mixture are named "checksum
  /// of source 2". Empty: unknown.
  Facts identity() const override { return {}; }
  /// Mean number of bytes of text per token, if known (token files in which all tokens count).
  virtual std::optional<double> bytes_per_token() const { return std::nullopt; }
  /// Share of the places in samples that are padding: of whole documents, packed.
  virtual double padding() const { return 0.0; }
  /// This as a data set of pairs, if it is one; else null.
  virtual PairDataset* pairs() { return nullptr; }
  /// The sources of a mixture, after `samples` samples; empty unless it is one.
  virtual std::vector<SourceUse> sources(std::uint64_t) { return {}; }

 protected:
  explicit Dataset(std::int64_t length)
      : length_(length), sample_(static_cast<std::size_t>(3 * length)) {}

 private:
  std::int64_t length_;
  std::vector<std::int32_t> sample_;  ///< arrays of one sample, for fill
  std::vector<std::int32_t> window_;  ///< tokens of one sample, for read_rows
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
