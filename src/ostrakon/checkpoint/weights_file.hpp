// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/hdf5/hdf5.hpp>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

// A weights file, `ostrakon-weights` version 1, is an HDF5 file with only the parameters of a
// model: /parameters/<owner>/<parameter>, float32, row-major, in the parameter's shape, each with
// its XXH3 (64 bits) in the attribute `checksum`. Attributes of the root group: format, version,
// deck (the resolved deck's text), step, tokenizer and, if the model began as one of Hugging
// Face's, huggingface_config (the kept part of its config.json).

/// Writes a weights file, parameter by parameter, from one process. The file appears under its name
/// only after finish().
class WeightsWriter {
 public:
  /// `deck`: the resolved deck, from which the model can be built again. `step`: number of
  /// optimizer steps. `tokenizer`: the tokenizer of the training data. `huggingface_config`:
  /// HuggingFaceConfig::text; empty: unknown.
  WeightsWriter(const std::string& path, const std::string& deck, std::int64_t step,
                const std::string& tokenizer, const std::string& huggingface_config = "");

  /// `unit`: the parameter's owner, such as `block.3`, also if blocks are grouped into larger
  /// units. A '/' in it creates groups. `values`: host memory, row-major, of the size of `shape`.
  void write(const std::string& unit, const std::string& parameter,
             const std::vector<std::int64_t>& shape, const float* values);
  /// Reads back all parameters, and renames the file if they are correct.
  void finish();

 private:
  hdf5::File file_;
};

/// Reads a weights file, in one process.
class WeightsReader : public ParameterSource {
 public:
  /// Throws Error if `path` is missing, a folder, empty, not HDF5, truncated or not a weights file.
  explicit WeightsReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  std::string deck() const override { return deck_; }
  std::int64_t step() const { return step_; }
  std::string tokenizer() const override { return tokenizer_; }
  std::string huggingface_config() const override { return huggingface_config_; }

  /// `values` (host memory) = the parameter, row-major. Throws Error if it is missing, of another
  /// shape, or fails its checksum.
  void read(const std::string& unit, const std::string& parameter,
            const std::vector<std::int64_t>& shape, float* values) const;

  /// Reads elements [first, first + count) of a parameter. The checksum, which covers the whole
  /// parameter, is not checked.
  void read(const std::string& unit, const std::string& parameter,
            const std::vector<std::int64_t>& shape, std::int64_t first, std::int64_t count,
            float* values) override;

  /// Reads and checks all parameters.
  void verify() override;

  struct Entry {
    std::string unit;
    std::string parameter;
    std::vector<std::int64_t> shape;
  };
  /// Lists the parameters in the file, sorted by name.
  std::vector<Entry> parameters() const;

 private:
  hdf5::Dataset find(const std::string& unit, const std::string& parameter,
                     const std::vector<std::int64_t>& shape) const;

  hdf5::File file_;
  std::string deck_;
  std::int64_t step_ = 0;
  std::string tokenizer_;
  std::string huggingface_config_;
};

}  // namespace ostrakon::checkpoint
