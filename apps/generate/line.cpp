// SPDX-License-Identifier: Apache-2.0
#include "line.hpp"

#include <limits>

namespace ostrakon::apps {
namespace {

/// A number of at least `least`.
Value number(double& to, double least, double most, const char* expected) {
  return {[&to, least, most, expected](const std::string& value) {
    const auto found = read_number(value, least, most);
    to = found.value_or(0.0);
    return found ? "" : expected;
  }};
}

/// Texts, one of each time that the option is given.
Value any_texts(std::vector<std::string>& to) {
  Value value{[&to](const std::string& given) {
    to.push_back(given);
    return "";
  }};
  value.may_repeat = value.is_any_text = true;
  return value;
}

Value stop_texts(std::vector<std::string>& to) {
  Value value = any_texts(to);
  value.take = [take = value.take](const std::string& given) {
    return given.empty() ? "a text" : take(given);
  };
  return value;
}

std::vector<Option> prompt_options(Line& line) {
  return {
      heading("What is continued"),
      {"--prompt", "TEXT", any_texts(line.prompts), "text to continue; may be given several times"},
      {"--prompt-file", "FILE", word(line.prompt_file),
       "the same from a file; -: from standard input. Without either, a new document begins. A "
       "newline at the end of a file or of standard input is no part of the prompt"},
      {"--prompts", "FILE", word(line.prompts_file),
       "several from the lines of a file (-: from standard input), each a string in JSON or an "
       "object with `prompt`, or with `messages` (as --messages)"},
      {"--chat", "", flag(line.is_chat),
       "prompts are what a user says to the model, in its chat template; its answers are written"},
      {"--messages", "FILE", word(line.messages_file),
       "a chat, which the model answers: a JSON list of messages with `role` and `content`, or "
       "an object with `messages` and what else the chat template takes"}};
}

std::vector<Option> sampling_options(Line& line) {
  train::SamplingSettings& to = line.sampling;
  return {heading("How tokens are chosen, in this order"),
          {"--repetition-penalty", "R", above_zero(to.repetition_penalty),
           "logits of tokens that the text has are divided by R, or multiplied if negative (1)"},
          {"--temperature", "T",
           number(to.temperature, 0.0, std::numeric_limits<double>::max(), "a number >= 0"),
           "0 always takes the likeliest token (0.8)"},
          {"--top-k", "K", integer(to.top_k, 0),
           "choose among the K likeliest tokens; 0: among all (0)"},
          {"--top-p", "P", above_zero(to.top_p, 1.0),
           "choose among the fewest likeliest tokens whose probabilities, after temperature and "
           "--top-k, sum to P or more; 1: among all (1)"},
          {"--min-p", "P", number(to.min_p, 0.0, 1.0, "a number from 0 to 1"),
           "choose among tokens that are at least P times as likely as the likeliest (0)"},
          {"--seed", "S", integer(to.seed, 0), "seed of the random choice (1)"}};
}

std::vector<Option> text_options(Line& line) {
  return {heading("What is written"),
          {"--tokens", "N", integer(line.tokens, 1), "tokens to write, at most (400)"},
          {"--samples", "N", integer(line.samples, 1), "texts to write for each prompt (1)"},
          {"--stop", "TEXT", stop_texts(line.stops),
           "a text ends before this one; may be given several times"},
          {"--ignore-end", "", flag(line.ignore_end), "continue after the end of a document"},
          {"--json", "", flag(line.json),
           "a line of JSON for each text: `prompt` or `messages`, `sample`, `text` (what follows "
           "the prompt; with --ids `ids`), `tokens`, and `ended_by`: end, stop or tokens"},
          {"--ids", "", flag(line.ids),
           "the prompt and what is written are token ids. Ids of the prompt have commas or white "
           "space between them; each text is a line"},
          {"--end-of-text", "ID", with("--ids", integer(line.end_of_text, 0)),
           "the token that ends a document, and begins one where there is no prompt"}};
}

std::vector<Option> model_options(Line& line) {
  return {heading("The model"),
          deck_option(line),
          {"--tokenizer", "T", any_text(line.tokenizer),
           "tokenizer of the model: `byte`, a folder or a file (default: what MODEL names, found "
           "beside it, in its run's folder, or where its first weights came from). With --ids a "
           "name"},
          {"--context", "N", integer(line.context, 1),
           "length of the context, with learned positions at most as many as these (default: as "
           "trained; for safetensors the positions of config.json). A text that outgrows it goes "
           "on from its newer half"},
          {"--dtype", "TYPE", choice(line.dtype, dtype_names),
           "of weights and all that is computed: fp32 (default), bf16 or fp16"},
          {"--batch", "N", integer(line.batch, 1),
           "texts that are computed together, at most (default: as many as memory has room for, up "
           "to 8)"},
          {"--library-threads", "N", integer(line.threads, 1, 4096),
           "of matrix products (default: as many as Kokkos has)"}};
}

}  // namespace

Program generate_program(Line& line) {
  std::vector<Option> all;
  for (const auto& options :
       {prompt_options(line), text_options(line), sampling_options(line), model_options(line)})
    all.insert(all.end(), options.begin(), options.end());
  return {
      "ostrakon-generate",
      "",
      {{"",
        "MODEL",
        R"(Continues texts with the model in MODEL: weights.h5 of ostrakon-train, one of its checkpoints, a
run's folder (its weights.h5 or, if there is none yet, its newest undamaged checkpoint), or
safetensors with Hugging Face's names (a file, an index, or a folder with either).)",
        std::move(all),
        {},
        {{"--prompt", "--prompt-file"},
         {"--prompt", "--prompts"},
         {"--prompt-file", "--prompts"},
         {"--messages", "--prompt"},
         {"--messages", "--prompt-file"},
         {"--messages", "--prompts"},
         {"--messages", "--ids"},
         {"--chat", "--ids"},
         {"--stop", "--ids"}}}},
      {},
      "",
      Runs::on_one_rank};
}

}  // namespace ostrakon::apps
