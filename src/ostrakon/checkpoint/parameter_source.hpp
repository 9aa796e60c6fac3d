// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/model/decoder.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// The values of a model's parameters, by name, from a file. Each rank reads the slices that it
/// needs.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;

  /// values (host memory) = elements [first, first + count) of a parameter of that shape,
  /// row-major, in fp32. `owner` and `parameter` as in model::Parameter: "block.3" and
  /// "attention.qkv.weight". Throws Error, naming the file, if the parameter is missing, of another
  /// shape, or can't be read.
  virtual void read(const std::string& owner, const std::string& parameter,
                    const std::vector<std::int64_t>& shape, std::int64_t first, std::int64_t count,
                    float* values) = 0;

  /// Whether it has the parameter. Those that it does not have begin with initial values: adapters
  /// of a model whose other weights these are.
  virtual bool contains(const std::string& /*owner*/, const std::string& /*parameter*/) const {
    return true;
  }

  /// Reads the whole file once, and throws Error if a checksum is wrong; does nothing for formats
  /// without checksums.
  virtual void verify() = 0;

  /// Whether read() itself detects damage, which makes a verify() before it redundant.
  virtual bool checks_what_it_reads() const { return false; }

  /// The resolved deck of the run that saved these weights; empty if they are not from a run.
  virtual std::string deck() const { return ""; }

  /// The tokenizer of the training data; empty if unknown.
  virtual std::string tokenizer() const { return ""; }

  /// HuggingFaceConfig::text of the config.json that came with these weights, or with the weights
  /// that they were trained from; empty if there was none.
  virtual std::string huggingface_config() const { return ""; }

  /// Describes in one line the settings of the model that could be checked, but that nothing stored
  /// with the weights confirms; empty if there are none.
  virtual std::string unchecked() const { return ""; }
};

/// Returns the parameters of a model, in order. `positions`: rows of the learned position table.
std::vector<model::Parameter> parameters_of(const model::DecoderSettings& settings,
                                            std::int64_t positions);

}  // namespace ostrakon::checkpoint
