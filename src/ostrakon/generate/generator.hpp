// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/base/dtype.hpp>
#include <ostrakon/checkpoint/parameter_source.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/model/model.hpp>
#include <ostrakon/runtime/arena.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <vector>

namespace ostrakon::train {

/// What a Generator has besides a model.
struct GeneratorSettings {
  std::int64_t sequences = 1;  ///< texts that are computed together, at most
  DType dtype = DType::fp32;   ///< of weights, of what is computed, and of what is kept of tokens
};

/// Tells which tokens come next in texts, on one rank. Of earlier tokens it keeps what attention
/// takes of them (KV cache): keys and values, or their latents, in layers with a window of the
/// latest tokens alone (model::LeafShape::cached_rows). Each of its sequences has a text of its
/// own. Rows of all of them are computed together: a prompt in runs of tokens_at_once, of other
/// texts the newest token. In fp32 a text's logits have the same bits whatever is computed with it.
class Generator {
 public:
  /// Uses the model and the sequence length of `settings`; the latter is the context length. Reads
  /// all of `weights`, which need not outlive the constructor. Throws Error where they can't be
  /// read, or there is too little memory.
  Generator(const config::Settings& settings, checkpoint::ParameterSource& weights,
            const GeneratorSettings& own = {});

  /// Bytes of memory that one would take.
  static std::int64_t memory_bytes(const config::Settings& settings, const GeneratorSettings& own);

  const config::Settings& settings() const { return settings_; }
  std::int64_t sequences() const { return static_cast<std::int64_t>(sequences_.size()); }

  using Tokens = std::vector<std::int32_t>;

  /// A text of a sequence; `tokens`: at least one, at most the sequence length.
  struct Text {
    std::int64_t sequence;
    const Tokens* tokens;
  };

  /// Returns the logits (vocabulary) of the token after each text, in host memory, until the next
  /// call. The texts are of different sequences. Computes only tokens that the sequence did not
  /// have in its previous text, or all of them where layers with a window no longer have what those
  /// see, or a delta net's state has passed others. Of equal texts one is computed.
  const std::vector<std::vector<float>>& logits(const std::vector<Text>& texts);
  /// Returns the logits after one text, which is that of sequence 0.
  const std::vector<float>& logits(const Tokens& tokens);

  /// Has a sequence begin anew. Where a model has delta nets, whose chunks begin with each run of
  /// tokens, a text has the bits of its own history only so.
  void forget(std::int64_t sequence) { sequences_.at(static_cast<std::size_t>(sequence)) = {}; }

 private:
  static constexpr std::int64_t tokens_at_once = 256;

  /// What is in the arena of a sequence.
  struct Sequence {
    Tokens context;             ///< tokens whose keys and values are there
    std::int64_t computed = 0;  ///< tokens since `context` began, with those rolled back
  };

  static std::unique_ptr<model::Model> make_model(const config::Settings& settings,
                                                  const GeneratorSettings& own);
  static plan::StepPlan make_plan(const model::Model& model);
  void install();
  void load(checkpoint::ParameterSource& weights);
  Sequence& sequence_of(const Text& text) {
    return sequences_[static_cast<std::size_t>(text.sequence)];
  }
  void check(const std::vector<Text>& texts) const;
  /// Has the sequence's context end after the tokens that it has in common with the text, or begin
  /// anew.
  void roll_back(const Text& text);
  /// Returns for each text the first equal one, whose sequence has what more than one token takes.
  std::vector<std::size_t> find_sources(const std::vector<Text>& texts);
  /// Computes some tokens of texts in `left`, and takes those from there that are complete.
  void run(const std::vector<Text>& texts, std::vector<std::size_t>& left);
  void copy_sequence(const Text& from, const Text& to);
  void run_unit(const runtime::ActionBuffers& buffers);
  runtime::Arenas arenas() const { return {arena_->data(), host_arena_->data()}; }

  config::Settings settings_;
  std::unique_ptr<model::Model> model_;
  model::LeafShape leaf_;
  runtime::Program program_;
  std::unique_ptr<runtime::Arena> arena_, host_arena_;
  std::unique_ptr<runtime::Executor> executor_;
  std::vector<int> saved_;  ///< by unit, the buffer with what it keeps of sequences; -1: none
  std::vector<int> tied_to_;
  std::vector<Sequence> sequences_;
  Tokens pending_;           ///< tokens that are being computed
  model::DecodedRuns runs_;  ///< and where they belong
  int left_ = -1;            ///< host buffer with the logits of a run
  std::vector<std::vector<float>> logits_;
};

}  // namespace ostrakon::train
