// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/checkpoint/adapters/adapted_rows.hpp>
#include <ostrakon/checkpoint/adapters/peft_reader.hpp>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/model/decoder.hpp>
#include <string>
#include <vector>

namespace ostrakon::checkpoint {

/// The parameters of a base model, with adapters from PEFT's files, or with none yet.
class AdaptedSource : public ParameterSource {
 public:
  /// `adapters`: null where there are none yet, and they begin with initial values.
  AdaptedSource(std::unique_ptr<ParameterSource> base, std::unique_ptr<PeftReader> adapters)
      : base_(std::move(base)), adapters_(std::move(adapters)) {}

  void read(const std::string& owner, const std::string& parameter,
            const std::vector<std::int64_t>& shape, std::int64_t first, std::int64_t count,
            float* values) override;
  bool contains(const std::string& owner, const std::string& parameter) const override;

  void verify() override { base_->verify(); }
  bool checks_what_it_reads() const override { return base_->checks_what_it_reads(); }
  std::string deck() const override { return base_->deck(); }
  std::string tokenizer() const override { return base_->tokenizer(); }
  std::string huggingface_config() const override { return base_->huggingface_config(); }
  std::string unchecked() const override { return base_->unchecked(); }

 private:
  std::unique_ptr<ParameterSource> base_;
  std::unique_ptr<PeftReader> adapters_;
};

/// The weights of a model with adapters as those of one without: W + scale B A, added up in double
/// and rounded once to fp32.
class MergedSource : public ParameterSource {
 public:
  /// `adapted`, which must outlive it, is of a model with these settings.
  MergedSource(ParameterSource& adapted, const model::DecoderSettings& settings)
      : adapted_(adapted), lora_(settings.lora), layers_(adapted_rows(settings)) {}

  void read(const std::string& owner, const std::string& parameter,
            const std::vector<std::int64_t>& shape, std::int64_t first, std::int64_t count,
            float* values) override;

  void verify() override { adapted_.verify(); }
  std::string tokenizer() const override { return adapted_.tokenizer(); }
  std::string huggingface_config() const override { return adapted_.huggingface_config(); }

 private:
  /// The adapter that was read last.
  struct Adapter {
    std::string owner, layer;
    std::vector<float> a, b;  // (rank, inputs), (rows, rank)
  };
  const Adapter& adapter(const std::string& owner, const AdaptedRows& layer);

  ParameterSource& adapted_;
  model::LoraSettings lora_;
  std::vector<AdaptedRows> layers_;
  Adapter kept_;
};

}  // namespace ostrakon::checkpoint
