// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/model/decoder.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// Values of a model's parameters, by name, from a file: read by each rank for itself, the slices
/// that it needs.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;

  /// values (host memory) = elements [first, first + count) of a parameter of that shape,
  /// row-major, in fp32. `owner` and `parameter` as in model::Parameter: "block.3" and
  /// "attention.qkv.weight". Throws Error, naming the file, where it is missing, of another shape
  /// or can't be read.
  virtual void read(const std::string& owner, const std::string& parameter,
                    const std::vector<std::int64_t>& shape, std::int64_t first, std::int64_t count,
                    float* values) = 0;

  /// Reads all of it once and throws Error where a checksum says that it is damaged; does nothing
  /// for formats without checksums.
  virtual void verify() = 0;

  /// Whether read() itself finds damage, so that verify() before it adds nothing.
  virtual bool checks_what_it_reads() const { return false; }

  /// The resolved deck of the run that saved these weights; empty where they are not from a run.
  virtual std::string deck() const { return ""; }

  /// The tokenizer whose tokens they were trained on; empty where nothing says.
  virtual std::string tokenizer() const { return ""; }

  /// HuggingFaceConfig::text of the config.json that came with these weights, or with those that
  /// they were trained from; empty where none did.
  virtual std::string huggingface_config() const { return ""; }

  /// What the model's settings say that nothing stored with the weights confirms, where something
  /// could: one line for people; empty otherwise.
  virtual std::string unchecked() const { return ""; }
};

/// Parameters of a model, in order. `positions`: rows of the table of learned positions.
std::vector<model::Parameter> parameters_of(const model::DecoderSettings& settings,
                                            std::int64_t positions);

}  // namespace ostrakon::checkpoint
