// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/file_type.hpp>
#include <ostrakon/text/chat_template.hpp>

#include "texts.hpp"

namespace ostrakon::apps {
namespace {

using Tokens = train::Generator::Tokens;

/// Returns the token that ends a document of ids, if it is known.
std::optional<std::int32_t> end_of_ids(const TextModel& model, const Line& line) {
  const std::int64_t vocabulary = model.file.settings.model.vocabulary;
  require(line.end_of_text.value_or(0) < vocabulary, "--end-of-text ", line.end_of_text.value_or(0),
          ": expected an id from 0 to ", vocabulary - 1);
  if (line.end_of_text) return static_cast<std::int32_t>(*line.end_of_text);
  const std::string tokenizer = line.tokenizer.value_or(model.file.tokenizer);
  if (tokenizer == data::ByteTokenizer::name && vocabulary == data::ByteTokenizer::vocabulary)
    return data::ByteTokenizer::end_of_text;
  return std::nullopt;
}

Tokens tokens_of_ids(const TextModel& model, const Prompt& prompt,
                     std::optional<std::int32_t> end) {
  Tokens tokens = parse_ids(prompt.text, model.file.settings.model.vocabulary);
  require(!tokens.empty() || end,
          "--ids without a prompt; expected --prompt ID,ID,..., or --end-of-text ID, with which a "
          "new document begins");
  if (tokens.empty()) tokens = {*end};
  return tokens;
}

Tokens tokens_of_text(const Line& line, const texts::Tokenizer& tokenizer, const Prompt& prompt) {
  if (tokenizer.name() != data::ByteTokenizer::name)
    require_utf8_prompt(line, prompt.text, "the tokenizer " + tokenizer.name());
  Tokens tokens = begin_of_document(tokenizer);
  tokenizer.encoder()->encode(prompt.text, true, tokens);
  if (tokens.empty()) tokens = {first_token(tokenizer, "a prompt")};
  return tokens;
}

/// A template writes the tokens that begin a text itself.
Tokens tokens_of_chat(const TextModel& model, const texts::ChatTemplate& chats,
                      const Prompt& prompt) {
  nlohmann::ordered_json more = prompt.chat;
  more.erase("messages");
  const std::string text = chats.render(prompt.chat.at("messages"), true, more);
  Tokens tokens;
  model.tokenizer->encoder()->encode(text, true, tokens);
  require(!tokens.empty(), "the chat template makes no text of the messages");
  return tokens;
}

/// The folder whose chat template belongs to the model: that of its tokenizer.
std::string folder_of_chats(const TextModel& model) {
  const std::string& path = model.tokenizer_path;
  require(path != data::ByteTokenizer::name, model.path,
          ": its tokenizer is byte, which has no chat template");
  if (is_folder(path)) return path;
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

std::int64_t Texts::longest() const {
  std::size_t most = 0;
  for (const train::TokenPrompt& one : beginnings) most = std::max(most, one.tokens.size());
  return static_cast<std::int64_t>(most);
}

Texts begin_texts(const TextModel& model, const Line& line, std::vector<Prompt> prompts) {
  Texts texts;
  texts.prompts = std::move(prompts);
  const auto end = line.ids ? end_of_ids(model, line) : std::nullopt;
  if (end) texts.ends = {*end};
  if (model.tokenizer) texts.ends = model.tokenizer->ends();
  std::unique_ptr<const texts::ChatTemplate> chats;
  for (const Prompt& prompt : texts.prompts) {
    if (prompt.is_chat() && !chats)
      chats = std::make_unique<const texts::ChatTemplate>(
          texts::ChatTemplate::of_folder(folder_of_chats(model)));
    const Tokens tokens = line.ids           ? tokens_of_ids(model, prompt, end)
                          : prompt.is_chat() ? tokens_of_chat(model, *chats, prompt)
                                             : tokens_of_text(line, *model.tokenizer, prompt);
    train::SamplingSettings sampling = line.sampling;
    for (std::int64_t sample = 0; sample < line.samples; ++sample) {
      sampling.sample = static_cast<std::uint64_t>(sample);
      texts.beginnings.push_back({tokens, sampling});
    }
  }
  const std::int64_t context = model.file.settings.training.sequence_length;
  for (std::size_t i = 0; i < texts.prompts.size(); ++i) {
    const auto count = static_cast<std::int64_t>(
        texts.beginnings[i * static_cast<std::size_t>(line.samples)].tokens.size());
    if (count > context)
      std::cerr << "the prompt has " << count << " tokens, the model looks back on " << context
                << ": the first " << count - (context + 1) / 2 << " are not seen" << std::endl;
  }
  return texts;
}

}  // namespace ostrakon::apps
