// SPDX-License-Identifier: Apache-2.0
#include "line.hpp"

namespace ostrakon::apps {
namespace {

std::vector<Option> data_options(EvaluateLine& line) {
  return {
      heading("What is evaluated, in this order; each may be given several times, but --requests"),
      {"--text", "FILE", words(line.text_files),
       "loss, perplexity and bits per byte of a plain text: each of its tokens is predicted once"},
      {"--tokens", "FILE", words(line.token_files),
       "the same of a token file, as one sequence; tokens that do not count are left out"},
      {"--choices", "FILE", words(line.choice_files),
       "accuracy in choosing answers: in each line a JSON object with `context`, `choices` (a list "
       "of texts) and `answer` (the number of the right one, from 0)"},
      {"--requests", "FILE", word(line.requests_file),
       "log-probabilities: in each line a JSON object with `context` and `continuation`, or with "
       "`text` alone, each a text or a list of token ids; also `id`, which the answer gets"},
      {"--answers", "FILE", with("--requests", output(line.answers_file)),
       "where answers are written, a line of JSON each: `log_probability` (natural logarithm), "
       "`greedy` (whether each token is the likeliest), `tokens` (default: standard output)"},
      {"--delimiter", "TEXT", with("--choices", any_text(line.delimiter)),
       "between the context and a choice (default: a space)"},
      {"--json", "", flag(line.json), "write what is found as a line of JSON for each file"}};
}

std::vector<Option> model_options(EvaluateLine& line) {
  return {heading("The model, and how ranks share it"),
          deck_option(line),
          {"--tokenizer", "T", any_text(line.tokenizer),
           "tokenizer of the model: `byte`, a folder or a file (default: what MODEL names, found "
           "beside it, in its run's folder, or where its first weights came from)"},
          {"--context", "N", integer(line.context, 1),
           "tokens from which one is predicted, at most (default: as trained; for safetensors the "
           "positions of config.json)"},
          {"--stride", "N", integer(line.stride, 1),
           "tokens of a longer text that are predicted at a time: with fewer, each is predicted "
           "from more tokens, at least the context less N (default: the context)"},
          set_option(line.overrides)};
}

}  // namespace

Program evaluate_program(EvaluateLine& line) {
  std::vector<Option> all = data_options(line);
  for (Option& one : model_options(line)) all.push_back(std::move(one));
  return {
      "ostrakon-evaluate",
      "",
      {{"",
        "MODEL",
        R"(Says how likely texts are to the model in MODEL: weights.h5 of ostrakon-train, one of its
checkpoints, a run's folder (its weights.h5 or, if there is none yet, its newest undamaged
checkpoint), or safetensors with Hugging Face's names (a file, an index, or a folder with either).

Ranks share the work as --set says, with keys of the sections parallel, precision, memory and runtime,
training.micro_batch_size and the grains; the default is parallel.sharding = full.)",
        std::move(all),
        {},
        {}}},
      {},
      "",
      Runs::on_ranks};
}

}  // namespace ostrakon::apps
