// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/text/json_fields.hpp>
#include <ostrakon/text/tokenizers/pattern.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace ostrakon::texts {

/// A text that is cut into pieces step by step.
struct Pieces {
  std::string text;
  std::vector<Span> spans;  ///< in order, none empty; what is between them is dropped
  /// Whether the first piece begins where the whole text of a document begins.
  bool begins_document = false;

  std::string_view piece(const Span& span) const {
    return {text.data() + span.begin, span.end - span.begin};
  }

  // Room for steps.
  std::string changed;
  std::vector<Span> matches, cut;
};

/// The `pre_tokenizer` of a tokenizer.json, or a step of it. Its functions change nothing else: any
/// number of threads may call them at once.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Cuts each piece into smaller ones; may change their text.
  virtual void cut(Pieces& pieces) const = 0;
};

/// What a pre-tokenizer does, in order, and what its last pieces are.
struct PreTokenizerSteps {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  /// Pieces are bytes, each for its character of the byte-level alphabet: the model is to take them
  /// so. Without it pieces are the text that the model takes.
  bool ends_with_bytes = false;
  /// A step looks at Pieces::begins_document.
  bool knows_begin = false;
};

/// Reads a pre-tokenizer of any type. Throws Error for one that is not implemented.
PreTokenizerSteps read_pre_tokenizer(JsonFields& fields);

}  // namespace ostrakon::texts
