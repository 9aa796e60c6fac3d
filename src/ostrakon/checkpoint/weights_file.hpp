// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/hdf5.hpp>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

// A weights file, `ostrakon-weights` version 1, is an HDF5 file of a model's parameters and of no
// other state: /parameters/<owner>/<parameter>, float32, row-major, in the parameter's own shape,
// each with its XXH3 (64 bits) in the attribute `checksum`. Attributes of the root group: format,
// version, deck (the resolved deck's text), step, tokenizer and, where the model began as one of
// Hugging Face's, huggingface_config (what is kept of its config.json).

/// Writes a weights file, parameter by parameter, from one process. Under its name there is a file
/// only after finish().
class WeightsWriter {
 public:
  /// `deck`: the resolved deck, from which the model can be built again. `step`: optimizer steps
  /// behind these weights. `tokenizer`: whose tokens they were trained on.
  /// `huggingface_config`: HuggingFaceConfig::text; empty: none is known.
  WeightsWriter(const std::string& path, const std::string& deck, std::int64_t step,
                const std::string& tokenizer, const std::string& huggingface_config = "");

  /// `unit`: the parameter's owner, as `block.3`, also where blocks are grouped into larger units.
  /// A '/' in it makes groups. `values`: host memory, row-major, as many as `shape` says.
  void write(const std::string& unit, const std::string& parameter,
             const std::vector<std::int64_t>& shape, const float* values);
  /// Reads what was written, and gives it its name where that is as it should be.
  void finish();

 private:
  hdf5::File file_;
};

/// Reads a weights file, by one process.
class WeightsReader : public ParameterSource {
 public:
  /// Throws Error where `path` is missing, a folder, empty, not HDF5, truncated or not a weights
  /// file.
  explicit WeightsReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  std::string deck() const override { return deck_; }
  std::int64_t step() const { return step_; }
  std::string tokenizer() const override { return tokenizer_; }
  std::string huggingface_config() const override { return huggingface_config_; }

  /// `values` (host memory) = the parameter, row-major. Throws Error where it is missing, of
  /// another shape, or fails its checksum.
  void read(const std::string& unit, const std::string& parameter,
            const std::vector<std::int64_t>& shape, float* values) const;

  /// Elements [first, first + count) of it, whose checksum is that of all of it and not looked at.
  void read(const std::string& unit, const std::string& parameter,
            const std::vector<std::int64_t>& shape, std::int64_t first, std::int64_t count,
            float* values) override;

  /// Reads everything that is in the file.
  void verify() override;

  struct Entry {
    std::string unit;
    std::string parameter;
    std::vector<std::int64_t> shape;
  };
  /// What is in the file, sorted by name.
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
