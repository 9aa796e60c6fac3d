// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/checkpoint/families/model_settings.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>
#include <set>

namespace ostrakon::checkpoint {
namespace {

using Lines = std::vector<std::string>;

std::string written(double number) { return nlohmann::json(number).dump(); }

/// What a config.json, or else its type of models, says of a key of a deck.
std::string said_of(const HuggingFaceConfig& config, const ModelDifference& difference) {
  std::string words;
  for (const ConfigReading::Said& one : config.said)
    if (one.deck_key == difference.key) words += (words.empty() ? "" : ", ") + one.words;
  if (!words.empty()) return words;
  return text(difference.key, " of ", config.family->model_type, " is ", difference.theirs);
}

void compare_values(const HuggingFaceConfig& theirs, const model::DecoderSettings& ours,
                    std::int64_t tokens, Lines& lines) {
  std::set<std::string> listed;
  model::DecoderSettings model = theirs.model;
  // Not all modules that files have need be read.
  model.multi_token_depth = std::min(theirs.multi_token_depth, ours.multi_token_depth);
  for (const ModelDifference& one : model_differences(model, ours, tokens)) {
    const std::string words = said_of(theirs, one);
    // A key that sets several is listed once.
    if (listed.insert(words).second)
      lines.push_back(text(words, ", but model.", one.key, " is ", one.ours));
  }
}

void compare_positions(const HuggingFaceConfig& theirs, const model::DecoderSettings& ours,
                       std::int64_t tokens, Lines& lines) {
  const bool is_same = theirs.positions == ours.position_rows(tokens);
  if (theirs.model.positions != model::Positions::learned || is_same) return;
  if (ours.max_positions > 0)
    lines.push_back(text(theirs.shown_positions, ", but model.max_positions is ",
                         ours.max_positions, "; expected the same"));
  else
    lines.push_back(text(
        theirs.shown_positions, ", but training.sequence_length is ", tokens,
        tokens < theirs.positions
            ? text("; expected model.max_positions = ", theirs.positions,
                   ", the rows of its table, of which shorter sequences use the first")
            : text("; sequences can't be longer than its table of learned positions: expected a "
                   "sequence_length of ",
                   theirs.positions, " or less, and model.max_positions = ", theirs.positions)));
}

void require_none(const Lines& lines, const std::string& title) {
  if (lines.empty()) return;
  std::string all = title + ":";
  for (const std::string& line : lines) all += "\n  " + line;
  throw Error(all);
}

}  // namespace

void require_same_model(const HuggingFaceConfig& theirs, const model::DecoderSettings& ours,
                        std::int64_t tokens) {
  Lines lines;
  compare_values(theirs, ours, tokens, lines);
  compare_positions(theirs, ours, tokens, lines);
  lines.insert(lines.end(), theirs.problems.begin(), theirs.problems.end());
  require_none(lines, text("'", theirs.name, "' is not of the model that the deck describes"));
}

void require_computed(const HuggingFaceConfig& config, std::int64_t tokens) {
  Lines lines = config.problems;
  constexpr const char* context = "the context (--context)";
  if (config.model.positions == model::Positions::learned && tokens > config.positions)
    lines.push_back(text(config.shown_positions, ", but ", context, " is ", tokens,
                         "; learned positions are as many as in the file"));
  require_none(lines, text("'", config.name, "' is of a model that Ostrakon does not support"));
}

std::string unverified_settings(const Family& family, const model::DecoderSettings& settings) {
  std::string words =
      text("no config.json next to the tensors: not checked are model.heads = ", settings.heads,
           ", model.norm_epsilon = ", written(settings.norm_epsilon));
  if (settings.positions == model::Positions::rotary)
    words += text(", model.rotary_base = ", written(settings.rotary.base));
  if (settings.experts.exist())
    words += text(", model.experts_per_token = ", settings.experts.per_token,
                  ", model.router_normalize = ", settings.experts.normalize ? "true" : "false");
  return words + text(", and that the model is a plain ", family.model_type);
}

}  // namespace ostrakon::checkpoint
