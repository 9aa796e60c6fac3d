// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/generate/sampler.hpp>
#include <ostrakon/model/decoder.hpp>
#include <ostrakon/runtime/arena.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <vector>

namespace ostrakon::train {

/// Continues texts, token by token, on one rank. Of earlier tokens it keeps what attention takes of
/// them (KV cache): keys and values, or their latents, in layers with a window of the latest tokens
/// alone (model::LeafShape::cached_rows). A prompt is computed in runs of tokens_at_once.
class Generator {
 public:
  /// Uses the model and the sequence length of `settings`; the latter is the context length. Reads
  /// all of `weights`, which need not outlive the constructor. Throws Error where they can't be
  /// read, or there is too little memory.
  Generator(const config::Settings& settings, checkpoint::ParameterSource& weights);

  const config::Settings& settings() const { return settings_; }

  /// Returns the logits (vocabulary) of the token after `tokens` (at least one, at most the
  /// sequence length), in host memory. Computes only tokens that the previous call did not have, or
  /// all of them where layers with a window no longer have what those see, or a delta net's state
  /// has passed others.
  const std::vector<float>& logits(const std::vector<std::int32_t>& tokens);

  /// Calls emit(token) for up to `count` tokens after `prompt`; stops when emit returns false. When
  /// the text outgrows the context, the older half of the context is dropped.
  void continue_text(const std::vector<std::int32_t>& prompt, std::int64_t count,
                     const SamplingSettings& sampling,
                     const std::function<bool(std::int32_t)>& emit);

 private:
  static constexpr std::int64_t tokens_at_once = 256;

  void install();
  void load(checkpoint::ParameterSource& weights);
  /// Has `context_` end after the tokens that it has in common with `tokens`, or begin anew.
  void roll_back(const std::vector<std::int32_t>& tokens);
  void run_unit(const runtime::ActionBuffers& buffers);
  void read_logits();
  runtime::Arenas arenas() const { return {arena_->data(), host_arena_->data()}; }

  config::Settings settings_;
  std::unique_ptr<model::Decoder<float>> decoder_;
  runtime::Program program_;
  std::unique_ptr<runtime::Arena> arena_, host_arena_;
  std::unique_ptr<runtime::Executor> executor_;
  std::vector<std::int32_t> context_;  ///< tokens whose keys and values are in the arena
  std::int64_t computed_ = 0;          ///< tokens since `context_` began, with those rolled back
  std::vector<std::int32_t> pending_;  ///< tokens that are being computed
  int left_ = -1;                      ///< host buffer with the logits of a run
  std::vector<float> logits_;
};

}  // namespace ostrakon::train
