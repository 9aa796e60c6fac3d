// SPDX-License-Identifier: Apache-2.0
#pragma once

// Models as transformers computes them: files of expected/, which README.md describes.

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostrakon/data/dataset.hpp>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::test::transformers {

using Floats = std::vector<float>;
using Tokens = std::vector<std::int32_t>;

struct ExpectedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  Floats values;
};

struct ExpectedModel {
  std::string name;
  std::uint64_t seed = 0;               ///< of all values that are made by formula
  nlohmann::json config;                ///< config.json
  std::vector<ExpectedTensor> tensors;  ///< model.safetensors, by name
  std::int64_t parameters = 0;
  std::vector<Tokens> batch;  ///< sequences, each with one token more than it has targets
  std::vector<double> log_probabilities;  ///< of the targets of the first sequence
  Tokens prompt, greedy;                  ///< its first tokens, and the likeliest that follow
  nlohmann::json adamw;                   ///< keys of a deck's section `optimizer`
  std::vector<double> losses;             ///< of steps on the batch: before each update
  std::vector<std::int64_t> documents;    ///< lengths of those of a sequence; empty: not computed
  std::vector<double> losses_in_documents;

  std::vector<double> some_losses;  ///< the same where only some targets count; may be empty

  std::int64_t sequence_length() const { return static_cast<std::int64_t>(batch[0].size()) - 1; }
};

/// Returns the names of all files, in alphabetical order, without their ending.
std::vector<std::string> expected_names();

ExpectedModel read_expected(const std::string& name);

/// Numbers in [center - 3/8, center + 3/8] of what has a name, by the formula of README.md.
Floats values_of(std::uint64_t seed, const std::string& name, std::int64_t count, double center);

/// Writes config.json and model.safetensors into a folder.
void write_folder(const ExpectedModel& expected, const std::string& folder);

/// The batch, again and again; with documents of these lengths, it has where they begin, too.
class RepeatedBatch : public data::Dataset {
 public:
  explicit RepeatedBatch(std::vector<Tokens> batch, const std::vector<std::int64_t>& documents = {})
      : Dataset(static_cast<std::int64_t>(batch[0].size())), batch_(std::move(batch)) {
    for (const std::int64_t length : documents)
      begins_.insert(begins_.end(), static_cast<std::size_t>(length),
                     static_cast<std::int32_t>(begins_.size()));
  }
  bool has_documents() const override { return !begins_.empty(); }
  void read_rows(std::uint64_t index, const data::SampleRows& rows) override {
    Dataset::read_rows(index, {rows.tokens, rows.targets, nullptr});
    std::copy(begins_.begin(), begins_.end(), rows.document_begins);
  }
  void read(std::uint64_t index, std::int32_t* tokens) override {
    const Tokens& sequence = batch_[index % batch_.size()];
    std::copy(sequence.begin(), sequence.end(), tokens);
  }
  std::uint64_t samples() const override { return batch_.size(); }

 private:
  std::vector<Tokens> batch_;
  Tokens begins_;
};

}  // namespace ostrakon::test::transformers
