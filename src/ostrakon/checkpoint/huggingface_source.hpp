// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <ostrakon/checkpoint/huggingface_config.hpp>
#include <ostrakon/checkpoint/huggingface_names.hpp>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/checkpoint/safetensors.hpp>
#include <ostrakon/model/decoder.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// Reads our parameters out of Hugging Face's tensors.
class HuggingFaceSource : public ParameterSource {
 public:
  /// `path`: see SafetensorsReader. `config`: what the config.json next to them says, where there
  /// is one; it is not compared. Throws Error that lists the tensors of the model which are
  /// missing or of other shapes, and those that the model does not have.
  HuggingFaceSource(const std::string& path, const model::DecoderSettings& settings,
                    const std::optional<HuggingFaceConfig>& config = {});

  void read(const std::string& owner, const std::string& parameter,
            const std::vector<std::int64_t>& shape, std::int64_t first, std::int64_t count,
            float* values) override;

  /// Does nothing: what can be checked without checksums is checked when it is opened.
  void verify() override {}

  /// What the metadata name, as of files that were exported; else that of the files next to them
  /// (see huggingface_tokenizer).
  std::string tokenizer() const override;

  std::string huggingface_config() const override { return config_text_; }
  std::string unchecked() const override;

  const SafetensorsReader& file() const { return file_; }

  /// Rows of the table of learned positions; 1 where there is none.
  std::int64_t positions() const;

 private:
  bool has_shape(const HuggingFaceTensor& tensor) const;
  std::string shape_problem(const HuggingFaceTensor& tensor) const;
  void require_shape(const HuggingFaceTensor& tensor) const;
  void require_complete();
  void require_tied();
  void read_transposed(const HuggingFaceTensor& tensor, std::int64_t first, std::int64_t count,
                       float* values);

  model::DecoderSettings settings_;
  Family family_;
  std::string config_text_;
  SafetensorsReader file_;
  std::string prefix_;
  std::string kept_name_;  // of the tensor that was read last to be transposed
  std::vector<float> kept_;
};

}  // namespace ostrakon::checkpoint
