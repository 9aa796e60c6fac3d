// SPDX-License-Identifier: Apache-2.0
#include "encoder.hpp"

#include <algorithm>
#include <ostrakon/base/error.hpp>

#include "model.hpp"

namespace ostrakon::apps {

using evaluate::Sequence;

Encoder::Encoder(const texts::Tokenizer& tokenizer)
    : tokenizer_(tokenizer), encoder_(tokenizer.encoder()), before_(begin_of_document(tokenizer)) {}

Encoder::Tokens Encoder::encode(const std::string& text) {
  Tokens tokens;
  encoder_->encode(text, true, tokens);
  return tokens;
}

/// Returns the tokens of a text behind those that documents begin with, unless it has these itself.
Encoder::Tokens Encoder::begun(const std::string& text) {
  Tokens tokens = encode(text);
  const bool has_them =
      tokens.size() >= before_.size() && std::equal(before_.begin(), before_.end(), tokens.begin());
  if (!has_them) tokens.insert(tokens.begin(), before_.begin(), before_.end());
  return tokens;
}

std::int32_t Encoder::first() const {
  if (!before_.empty()) return before_.back();
  return first_token(tokenizer_, "a context");
}

Sequence Encoder::text(const std::string& text) {
  Sequence made;
  made.tokens = begun(text);
  if (before_.empty()) made.tokens.insert(made.tokens.begin(), first());
  made.first = static_cast<std::int64_t>(std::max<std::size_t>(before_.size(), 1));
  require(static_cast<std::int64_t>(made.tokens.size()) > made.first, "the text has no tokens");
  return made;
}

Sequence Encoder::pair(std::string context, std::string continuation) {
  const std::size_t end = context.find_last_not_of(" \t\n\v\f\r") + 1;
  continuation.insert(0, context, end);
  context.resize(end);
  Sequence made;
  if (context.empty()) {
    made.tokens = encode(continuation);
    if (made.tokens.empty() || made.tokens[0] != first())
      made.tokens.insert(made.tokens.begin(), first());
    made.first = 1;
  } else {
    made.tokens = begun(context + continuation);
    made.first = static_cast<std::int64_t>(begun(context).size());
  }
  require(static_cast<std::int64_t>(made.tokens.size()) > made.first,
          "the continuation adds no token to the context");
  return made;
}

}  // namespace ostrakon::apps
