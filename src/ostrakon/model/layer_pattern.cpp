// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/layer_pattern.hpp>

#include <algorithm>
#include <ostrakon/base/text.hpp>

namespace ostrakon::model {
namespace {

constexpr std::int64_t most_layers = 1'000'000;

/// Takes `word` from the start of `rest`, and spaces behind it. Returns whether it was there.
bool take(std::string& rest, const std::string& word) {
  if (rest.rfind(word, 0) != 0) return false;
  rest.erase(0, std::min(rest.find_first_not_of(' ', word.size()), rest.size()));
  return true;
}

std::optional<std::int64_t> take_number(std::string& rest) {
  const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  if (digits == 0 || digits > 7) return std::nullopt;
  const std::int64_t number = std::stoll(rest.substr(0, digits));
  rest.erase(0, digits);
  if (number > most_layers) return std::nullopt;
  return number;
}

/// The ending of an ordinal number: "st", "nd", "rd" or "th".
const char* ending(std::int64_t number) {
  const std::int64_t tens = number % 100, ones = number % 10;
  if (tens >= 11 && tens <= 13) return "th";
  return ones == 1 ? "st" : ones == 2 ? "nd" : ones == 3 ? "rd" : "th";
}

}  // namespace

std::optional<LayerPattern> LayerPattern::parse(const std::string& text) {
  LayerPattern pattern;
  std::string rest = text;
  if (rest == "all") return pattern;
  pattern.inverted_ = false;
  if (rest == "none") return pattern;
  pattern.inverted_ = take(rest, "all but");
  if (take(rest, "every ")) {
    const auto number = take_number(rest);
    if (!number || *number < 2 || rest != ending(*number)) return std::nullopt;
    pattern.every_ = *number;
    return pattern;
  }
  if (take(rest, "first ")) {
    const auto number = take_number(rest);
    if (!number || *number < 1 || !rest.empty()) return std::nullopt;
    pattern.first_ = *number;
    return pattern;
  }
  do {
    const auto first = take_number(rest);
    const auto last = take(rest, "-") ? take_number(rest) : first;
    const std::int64_t before = pattern.ranges_.empty() ? -1 : pattern.ranges_.back().second;
    if (!first || !last || *first <= before || *last < *first) return std::nullopt;
    if (!pattern.ranges_.empty() && *first == before + 1)
      pattern.ranges_.back().second = *last;
    else
      pattern.ranges_.emplace_back(*first, *last);
  } while (take(rest, ","));
  if (!rest.empty()) return std::nullopt;
  return pattern;
}

LayerPattern LayerPattern::of(const std::vector<bool>& layers) {
  const auto count = static_cast<std::int64_t>(layers.size());
  std::vector<LayerPattern> patterns;
  const auto add = [&](bool inverted, std::int64_t every, std::int64_t first) {
    patterns.emplace_back();
    patterns.back().inverted_ = inverted;
    patterns.back().every_ = every;
    patterns.back().first_ = first;
  };
  for (const bool inverted : {true, false}) add(inverted, 0, 0);
  for (std::int64_t n = 1; n < count; ++n)
    for (const bool inverted : {false, true}) {
      add(inverted, 0, n);
      if (n > 1) add(inverted, n, 0);
    }
  LayerPattern listed;
  listed.inverted_ = false;
  for (std::int64_t l = 0; l < count; ++l) {
    if (!layers[static_cast<std::size_t>(l)]) continue;
    if (listed.ranges_.empty() || listed.ranges_.back().second + 1 < l)
      listed.ranges_.emplace_back(l, l);
    else
      listed.ranges_.back().second = l;
  }
  const auto fits = [&](const LayerPattern& pattern) {
    for (std::int64_t l = 0; l < count; ++l)
      if (pattern.has(l) != layers[static_cast<std::size_t>(l)]) return false;
    return true;
  };
  std::optional<LayerPattern> shortest;
  for (const LayerPattern& pattern : patterns)
    if (fits(pattern) && (!shortest || pattern.text().size() < shortest->text().size()))
      shortest = pattern;
  return shortest.value_or(listed);
}

bool LayerPattern::has(std::int64_t layer) const {
  bool named = false;
  if (every_ > 0)
    named = (layer + 1) % every_ == 0;
  else if (first_ > 0)
    named = layer < first_;
  else
    for (const auto& [first, last] : ranges_) named = named || (first <= layer && layer <= last);
  return named != inverted_;
}

std::int64_t LayerPattern::count(std::int64_t layers) const {
  std::int64_t count = 0;
  for (std::int64_t l = 0; l < layers; ++l) count += has(l) ? 1 : 0;
  return count;
}

std::int64_t LayerPattern::least_layers() const {
  return ranges_.empty() ? std::max(every_, first_) : ranges_.back().second + 1;
}

std::string LayerPattern::text() const {
  std::string words;
  if (every_ > 0) {
    words = ostrakon::text("every ", every_, ending(every_));
  } else if (first_ > 0) {
    words = ostrakon::text("first ", first_);
  } else {
    if (ranges_.empty()) return inverted_ ? "all" : "none";
    for (const auto& [first, last] : ranges_) {
      words += ostrakon::text(words.empty() ? "" : ", ", first);
      if (last > first) words += ostrakon::text("-", last);
    }
  }
  return (inverted_ ? "all but " : "") + words;
}

}  // namespace ostrakon::model
