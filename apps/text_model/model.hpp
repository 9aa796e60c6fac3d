// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <ostrakon/text/tokenizer.hpp>
#include <string>
#include <vector>

#include "../common/model_file.hpp"
#include "../common/options.hpp"

namespace ostrakon::apps {

/// What a command line says of the model and its tokenizer.
struct ModelChoice {
  std::optional<std::string> deck, tokenizer;
  std::optional<std::int64_t> context;
  bool ids = false;  ///< what is read and written are ids, without a tokenizer
  /// What messages on the tokenizer end with: how to do without one.
  const char* or_ids = "; or --ids, to read and write token ids";
};

/// The option --deck of programs that read a model.
Option deck_option(ModelChoice& choice);

/// A model, and the tokenizer that turns its tokens into text.
struct TextModel {
  ModelFile file;
  std::string path;
  std::unique_ptr<texts::Tokenizer> tokenizer;  ///< null with --ids
  std::string tokenizer_path;                   ///< what it was opened as
};

/// Opens weights and checks that this program can use them as requested. Throws Error.
TextModel open_text_model(const std::string& path, const ModelChoice& choice);

/// Sets the context length, which may be shorter than a table of learned positions, but not longer.
/// Throws Error.
void set_context(ModelFile& file, std::int64_t context, const std::string& path);

/// Shortens the context to the tokens of the longest text, for which less memory is needed. Of a
/// model whose rotary frequencies are others for longer contexts (longrope), to those for which
/// they are the same or, if the user sets no context, to the shorter ones where texts fit in these.
void fit_context(TextModel& model, std::int64_t longest_text, const ModelChoice& choice);

/// The tokens with which a document begins, by which a text is preceded. Bytes have no
/// post-processor, and documents of them begin behind the end of others.
std::vector<std::int32_t> begin_of_document(const texts::Tokenizer& tokenizer);

/// The token behind which a text begins where nothing precedes it: the one that begins or else ends
/// a text. Throws Error, beginning with the tokenizer, where it has neither; `expected`: what is
/// needed then.
std::int32_t first_token(const texts::Tokenizer& tokenizer, const char* expected);

}  // namespace ostrakon::apps
