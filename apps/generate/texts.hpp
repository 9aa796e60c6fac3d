// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/generate/continue_texts.hpp>
#include <vector>

#include "line.hpp"
#include "prompt.hpp"

namespace ostrakon::apps {

/// What is written: of each prompt all samples, one after the other.
struct Texts {
  std::vector<Prompt> prompts;
  std::vector<train::TokenPrompt> beginnings;  ///< samples, of the first prompt first
  std::vector<std::int32_t> ends;              ///< tokens that end a text

  const Prompt& prompt_of(std::size_t text) const {
    return prompts[text / (beginnings.size() / prompts.size())];
  }
  /// Tokens of the longest beginning.
  std::int64_t longest() const;
};

/// Makes tokens of prompts: as documents begin in training, or in the chat template of the model.
/// Throws Error.
Texts begin_texts(const TextModel& model, const Line& line, std::vector<Prompt> prompts);

/// Continues all texts and writes them to the standard output, in their order. Throws Error where
/// it can't be written.
void write_texts(train::Generator& generator, const TextModel& model, const Line& line,
                 const Texts& texts);

}  // namespace ostrakon::apps
