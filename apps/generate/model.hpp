// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/text/tokenizer.hpp>
#include <string>

#include "../common/model_file.hpp"
#include "line.hpp"

namespace ostrakon::apps {

/// A model, and the tokenizer that turns its tokens into text.
struct TextModel {
  ModelFile file;
  std::string path;
  std::unique_ptr<texts::Tokenizer> tokenizer;  ///< null with --ids
  std::string tokenizer_path;                   ///< what it was opened as
};

/// Opens weights and checks that this program can use them as requested. Throws Error.
TextModel open_text_model(const std::string& path, const Line& line);

/// Sets the context length, which may be shorter than a table of learned positions, but not longer.
/// Throws Error.
void set_context(ModelFile& file, std::int64_t context, const std::string& path);

/// Shortens the context to the tokens of the longest text, for which less memory is needed. Of a
/// model whose rotary frequencies are others for longer contexts (longrope), to those for which
/// they are the same or, if the user sets no context, to the shorter ones where texts fit in these.
void fit_context(TextModel& model, std::int64_t longest_text, const Line& line);

}  // namespace ostrakon::apps
