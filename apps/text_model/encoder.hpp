// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <ostrakon/evaluate/sequences.hpp>
#include <ostrakon/text/tokenizer.hpp>
#include <string>
#include <vector>

namespace ostrakon::apps {

/// Makes sequences of texts, as lm-evaluation-harness does for Hugging Face's models: a text begins
/// as documents do.
class Encoder {
 public:
  /// `tokenizer` must outlive it.
  explicit Encoder(const texts::Tokenizer& tokenizer);

  /// A text of which all tokens are predicted, the first from what documents begin with. Throws
  /// Error for a text without tokens.
  evaluate::Sequence text(const std::string& text);
  /// What continues a context. White space at the end of the context is part of the continuation,
  /// and both are encoded together. Throws Error where the continuation has no tokens.
  evaluate::Sequence pair(std::string context, std::string continuation);

 private:
  using Tokens = std::vector<std::int32_t>;
  Tokens encode(const std::string& text);
  Tokens begun(const std::string& text);
  std::int32_t first() const;

  const texts::Tokenizer& tokenizer_;
  std::unique_ptr<texts::Tokenizer::Encoder> encoder_;
  Tokens before_;  ///< what documents begin with
};

}  // namespace ostrakon::apps
