// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace ostrakon::texts {

/// A chat as the text that a model is trained on.
struct ChatText {
  std::string text;
  /// The bytes [begin, end) that an assistant wrote, with the mark that ends its turn.
  struct Span {
    std::size_t begin, end;
  };
  std::vector<Span> assistant;
};

/// The chat template of a model's folder: the part of Jinja that published templates use. Throws
/// Error with file and line for what it lacks, when it is read; and for a template's own
/// raise_exception and for data that it can't use, when a chat is rendered. JSON keeps the order of
/// its keys: templates print objects. Any number of threads may render with one at once.
class ChatTemplate {
 public:
  /// Reads chat_template.jinja, or `chat_template` of tokenizer_config.json or
  /// chat_template.json, in `folder`, with the special tokens that templates name (bos_token and
  /// the like).
  static ChatTemplate of_folder(const std::string& folder);
  /// Reads the template in the file `path` instead of the model's own.
  static ChatTemplate of_file(const std::string& path, const std::string& folder);
  /// `name`: of the file, for messages. `variables`: a JSON object of what the template may read.
  ChatTemplate(const std::string& source, const std::string& name,
               const nlohmann::ordered_json& variables);
  ChatTemplate(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// Returns the text of `messages` ([{"role": ..., "content": ...}, ...]), byte for byte as
  /// transformers' apply_chat_template. `with_prompt`: ends with what begins an assistant's turn.
  /// `more`: an object of further variables, such as tools.
  std::string render(const nlohmann::ordered_json& messages, bool with_prompt,
                     const nlohmann::ordered_json& more) const;

  /// Renders a chat and finds what the assistant wrote: by the template's own `generation` blocks
  /// or, without these, by the text of the messages up to each of its turns. Throws Error where
  /// these do not begin the whole text.
  ChatText render_for_training(const nlohmann::ordered_json& messages,
                               const nlohmann::ordered_json& more) const;

 private:
  struct Program;
  std::unique_ptr<Program> program_;
};

}  // namespace ostrakon::texts
