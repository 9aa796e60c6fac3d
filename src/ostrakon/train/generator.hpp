// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/runtime/arena.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/train/sampler.hpp>
#include <vector>

namespace ostrakon::train {

/// Continues texts, token by token, on one rank. Keys and values of earlier tokens are kept, and
/// nothing else of them; a prompt is computed in runs of tokens_at_once.
class Generator {
 public:
  /// The model and the sequence length of `settings` count; the length is how many tokens it looks
  /// back on. Reads all of `weights`, which may go afterwards. Throws Error where they can't be
  /// read, or there is too little memory.
  Generator(const config::Settings& settings, checkpoint::ParameterSource& weights);

  const config::Settings& settings() const { return settings_; }

  /// Logits (vocabulary) of the token after `tokens` (at least one, at most the sequence length),
  /// in host memory. Work is done only for tokens that the call before did not have.
  const std::vector<float>& logits(const std::vector<std::int32_t>& tokens);

  /// Calls emit(token) for up to `count` tokens after `prompt`; stops when emit returns false.
  /// Where the text outgrows the context, the older half of it is forgotten.
  void continue_text(const std::vector<std::int32_t>& prompt, std::int64_t count,
                     const SamplingSettings& sampling,
                     const std::function<bool(std::int32_t)>& emit);

 private:
  static constexpr std::int64_t tokens_at_once = 256;

  void install();
  void load(checkpoint::ParameterSource& weights);
  void run_unit(const runtime::ActionBuffers& buffers);
  void read_logits();
  runtime::Arenas arenas() const { return {arena_->data(), host_arena_->data()}; }

  config::Settings settings_;
  std::unique_ptr<model::Decoder<float>> decoder_;
  runtime::Program program_;
  std::unique_ptr<runtime::Arena> arena_, host_arena_;
  std::unique_ptr<runtime::Executor> executor_;
  std::vector<std::int32_t> context_;  ///< tokens whose keys and values are in the arena
  std::vector<std::int32_t> pending_;  ///< those that are computed
  int left_ = -1;                      ///< buffer in host memory with the logits of a run
  std::vector<float> logits_;
};

}  // namespace ostrakon::train
