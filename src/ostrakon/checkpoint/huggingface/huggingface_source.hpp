// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <ostrakon/checkpoint/huggingface/dequantizing_reader.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_tensors.hpp>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/model/decoder.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// Reads our parameters from Hugging Face's tensors, quantized ones dequantized (see
/// DequantizingReader).
class HuggingFaceSource : public ParameterSource {
 public:
  /// `path`: as for SafetensorsReader. `config`: the config.json next to the tensors, if there is
  /// one; it is not compared. Throws Error that lists the model's tensors that are missing or of
  /// other shapes, and the tensors that the model does not have.
  HuggingFaceSource(const std::string& path, const model::DecoderSettings& settings,
                    const std::optional<HuggingFaceConfig>& config = {});

  void read(const std::string& owner, const std::string& parameter,
            const std::vector<std::int64_t>& shape, std::int64_t first, std::int64_t count,
            float* values) override;

  /// Does nothing: there are no checksums, and other checks are made when the file is opened.
  void verify() override {}

  /// Returns the tokenizer in the metadata, which exported files have; else that of the files next
  /// to the tensors (see huggingface_tokenizer).
  std::string tokenizer() const override;

  std::string huggingface_config() const override { return config_text_; }
  std::string unchecked() const override;

  const DequantizingReader& file() const { return file_; }

  /// Returns the rows of the learned position table; 1 if there is none.
  std::int64_t positions() const;

 private:
  bool has_shape(const HuggingFaceTensor& tensor) const;
  std::string shape_problem(const HuggingFaceTensor& tensor) const;
  void require_shape(const HuggingFaceTensor& tensor) const;
  bool is_passed_over(const std::string& name) const;
  void require_complete();
  void require_tied();
  /// `why`: why both are expected to be one matrix.
  void require_copy(const TensorCopy& copy, const char* why);
  std::vector<HuggingFaceTensor> tensors_of(const std::string& owner, const std::string& parameter,
                                            const std::vector<std::int64_t>& shape) const;
  void read_reordered(const HuggingFaceTensor& tensor, std::int64_t columns, std::int64_t first,
                      std::int64_t count, float* values);

  model::DecoderSettings settings_;
  const Family& family_;
  TensorNames names_;
  std::string config_text_;
  DequantizingReader file_;
  std::string prefix_;
  // The last part of a tensor that was read in another order than ours, in ours.
  std::string kept_name_;
  std::int64_t kept_slice_ = 0;
  std::vector<float> kept_;
};

}  // namespace ostrakon::checkpoint
