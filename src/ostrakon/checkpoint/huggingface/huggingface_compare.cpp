// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/checkpoint/huggingface/huggingface_config.hpp>

namespace ostrakon::checkpoint {
namespace {

using Lines = std::vector<std::string>;

std::string shown(double number) { return nlohmann::json(number).dump(); }

bool equal(const ComparedKey& key, double theirs, double ours) {
  if (key.in_float) return static_cast<float>(theirs) == static_cast<float>(ours);
  return theirs == ours;
}

void compare_values(const HuggingFaceConfig& theirs, const model::DecoderSettings& ours,
                    Lines& lines) {
  for (const HuggingFaceConfig::Value& value : theirs.values) {
    const double setting = value.key->get(ours);
    if (!equal(*value.key, value.value, setting))
      lines.push_back(text(value.key->name, " is ", value.shown, ", but ", value.key->deck_key,
                           " is ", json_text(*value.key, setting)));
  }
  if (theirs.rotary_bases.empty() || theirs.model.rotary.base == ours.rotary.base) return;
  std::string bases;
  for (const std::string& one : theirs.rotary_bases) bases += (bases.empty() ? "" : ", ") + one;
  lines.push_back(text(bases, ", but model.rotary_base is ", shown(ours.rotary.base)));
}

void compare_positions(const HuggingFaceConfig& theirs, const model::DecoderSettings& ours,
                       std::int64_t tokens, Lines& lines) {
  const bool is_same = theirs.positions == ours.position_rows(tokens);
  if (theirs.model.positions != model::Positions::learned || is_same) return;
  if (ours.max_positions > 0)
    lines.push_back(
        text(theirs.shown_positions, ", but model.max_positions is ", ours.max_positions));
  else
    lines.push_back(text(
        theirs.shown_positions, ", but training.sequence_length is ", tokens,
        tokens < theirs.positions
            ? text("; to train on shorter sequences, set model.max_positions = ", theirs.positions)
            : "; learned positions are as many as in the file"));
}

/// `length`: the setting of `tokens`, for messages.
void compare_window(const HuggingFaceConfig& theirs, std::int64_t tokens, const char* length,
                    Lines& lines) {
  if (theirs.window && *theirs.window < tokens)
    lines.push_back(text(theirs.shown_window, ", but ", length, " is ", tokens,
                         "; this program attends to all tokens before, which is the same for at "
                         "most ",
                         *theirs.window));
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
  Lines lines = structure_differences(theirs.family, ours);
  compare_values(theirs, ours, lines);
  compare_positions(theirs, ours, tokens, lines);
  compare_window(theirs, tokens, "training.sequence_length", lines);
  lines.insert(lines.end(), theirs.problems.begin(), theirs.problems.end());
  require_none(lines, text("'", theirs.name, "' is not of the model that the deck describes"));
}

void require_computed(const HuggingFaceConfig& config, std::int64_t tokens) {
  Lines lines = config.problems;
  // If two keys set the same value, both are compared.
  compare_values(config, config.model, lines);
  constexpr const char* context = "the context (--context)";
  if (config.model.positions == model::Positions::learned && tokens > config.positions)
    lines.push_back(text(config.shown_positions, ", but ", context, " is ", tokens,
                         "; learned positions are as many as in the file"));
  compare_window(config, tokens, context, lines);
  require_none(lines, text("'", config.name, "' is of a model that Ostrakon does not support"));
}

std::string unverified_settings(Family family, const model::DecoderSettings& settings) {
  std::string words =
      text("no config.json next to the tensors: not checked are model.heads = ", settings.heads,
           ", model.norm_epsilon = ", shown(settings.norm_epsilon));
  if (settings.positions == model::Positions::rotary)
    words += text(", model.rotary_base = ", shown(settings.rotary.base));
  if (settings.experts.exist())
    words += text(", model.experts_per_token = ", settings.experts.per_token,
                  ", model.router_normalize = ", settings.experts.normalize ? "true" : "false");
  return words + text(", and that the model is a plain ", model_type(family));
}

}  // namespace ostrakon::checkpoint
