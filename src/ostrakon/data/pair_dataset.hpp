// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <ostrakon/data/dataset.hpp>
#include <ostrakon/data/sample_order.hpp>
#include <ostrakon/data/token_file.hpp>
#include <vector>

namespace ostrakon::data {

/// Pairs of answers to a prompt, for DPO. A sample is one pair: the document with the chosen
/// answer, then the one with the rejected answer, which do not see each other, then padding.
/// Targets are the tokens of the answers alone. A batch has, behind what those of other data sets
/// have, two floats for each pair: the log-probabilities that the reference gives to its answers.
class PairDataset : public Dataset {
 public:
  /// Throws Error unless the file has pairs, each document at least two tokens, and each pair room
  /// in a sample.
  PairDataset(TokenFile file, Split split, std::int64_t sequence_length, std::uint64_t seed);

  void read(std::uint64_t index, std::int32_t* tokens) override;
  void read_rows(std::uint64_t index, const SampleRows& rows) override;
  void fill_part(std::uint64_t first, std::int64_t count, const SamplePart& part,
                 void* batch) override;
  std::int64_t sample_bytes() const override;
  bool has_documents() const override { return true; }
  std::uint64_t samples() const override { return order_.samples(); }
  std::string tokenizer() const override { return file_.info().tokenizer; }
  /// Returns the facts of the file and, once set, of the reference's log-probabilities.
  Facts identity() const override;
  double padding() const override;
  PairDataset* pairs() override { return this; }

  /// The facts that identify the file.
  Facts identity_of_file() const { return file_.info().identity(); }
  /// Returns which pair of the file sample `index` is.
  std::uint64_t pair(std::uint64_t index) const { return order_(index); }
  /// Sets the reference's log-probabilities of all pairs of the file (2 * pairs): of the chosen
  /// answer, then of the rejected one. They are 0 before.
  void set_references(std::vector<float> log_probabilities);

 private:
  TokenFile file_;
  std::vector<std::int64_t> offsets_;  ///< of documents
  EpochOrder order_;
  std::vector<float> references_;
  std::string references_checksum_;  ///< empty: they are not set
  // A document, and what read() has no use for.
  std::vector<std::int32_t> tokens_;
  std::vector<std::uint8_t> counts_;
  std::vector<std::int32_t> targets_, begins_;
};

std::unique_ptr<Dataset> open_pairs(TokenFile file, Split split, std::int64_t sequence_length,
                                    std::uint64_t seed);

}  // namespace ostrakon::data
