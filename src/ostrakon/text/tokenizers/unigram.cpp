// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/text/tokenizers/unigram.hpp>

#include <algorithm>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/text/utf8.hpp>

namespace ostrakon::texts {
namespace {

/// What an unknown character costs beyond the piece with the smallest score.
constexpr double unknown_penalty = 10.0;

constexpr std::int32_t no_piece = -1;

[[noreturn]] void refuse_uncovered(std::string_view part) {
  throw Error(
      text("no piece covers ", shown(std::string(part)), ", and the tokenizer has no unk_id"));
}

}  // namespace

Unigram::Unigram(Settings settings)
    : pieces_(std::move(settings.pieces)), unknown_(settings.unknown) {
  const auto count = static_cast<std::int32_t>(pieces_.size());
  require(!unknown_ || (*unknown_ >= 0 && *unknown_ < count), "unk_id is ", unknown_.value_or(0),
          "; expected an index of the ", count, " pieces");
  double least = std::numeric_limits<double>::infinity();
  for (std::int32_t id = 0; id < count; ++id) {
    const Piece& piece = pieces_[static_cast<std::size_t>(id)];
    id_of_[piece.text] = id;
    least = std::min(least, piece.score);
  }
  unknown_score_ = least - unknown_penalty;
  byte_ids_.fill(no_piece);
  for (std::size_t byte = 0; settings.byte_fallback && byte < byte_ids_.size(); ++byte) {
    byte_ids_[byte] = id_of(print("<0x%02X>", static_cast<unsigned>(byte))).value_or(no_piece);
  }

  std::vector<std::int32_t> sorted;
  for (const auto& [piece, id] : id_of_)
    if (!piece.empty()) sorted.push_back(id);
  const auto text_of = [&](std::int32_t id) -> const std::string& {
    return pieces_[static_cast<std::size_t>(id)].text;
  };
  std::sort(sorted.begin(), sorted.end(),
            [&](auto one, auto other) { return text_of(one) < text_of(other); });
  nodes_.emplace_back();
  grow(0, sorted, 0, sorted.size(), 0);
}

/// Adds what is below a node: pieces [begin, end) of `sorted`, which have `depth` bytes in common.
void Unigram::grow(std::uint32_t node, const std::vector<std::int32_t>& sorted, std::size_t begin,
                   std::size_t end, std::size_t depth) {
  const auto text_at = [&](std::size_t i) -> const std::string& {
    return pieces_[static_cast<std::size_t>(sorted[i])].text;
  };
  if (begin < end && text_at(begin).size() == depth) nodes_[node].id = sorted[begin++];
  struct Range {
    std::size_t begin, end;
  };
  std::vector<Range> ranges;
  const auto first = static_cast<std::uint32_t>(nodes_.size());
  for (std::size_t at = begin; at < end; at = ranges.back().end) {
    const char byte = text_at(at)[depth];
    std::size_t next = at;
    while (next < end && text_at(next)[depth] == byte) ++next;
    ranges.push_back({at, next});
    nodes_.emplace_back();
    nodes_.back().byte = static_cast<unsigned char>(byte);
  }
  nodes_[node].first_child = first;
  nodes_[node].children = static_cast<std::uint16_t>(ranges.size());
  for (std::size_t i = 0; i < ranges.size(); ++i)
    grow(first + static_cast<std::uint32_t>(i), sorted, ranges[i].begin, ranges[i].end, depth + 1);
}

const Unigram::Node* Unigram::child(const Node& node, unsigned char byte) const {
  const Node* const begin = nodes_.data() + node.first_child;
  const Node* const end = begin + node.children;
  const Node* const found =
      std::lower_bound(begin, end, byte, [](const Node& one, auto b) { return one.byte < b; });
  return found != end && found->byte == byte ? found : nullptr;
}

std::optional<std::int32_t> Unigram::id_of(std::string_view piece) const {
  const auto found = id_of_.find(piece);
  return found == id_of_.end() ? std::nullopt : std::optional(found->second);
}

void Unigram::encode(std::string_view text, std::vector<std::int32_t>& ids) const {
  // The best way to each place: its sum of scores, and its last piece.
  constexpr std::size_t nowhere = std::numeric_limits<std::size_t>::max();
  struct Reached {
    double sum = 0.0;
    std::size_t begin = nowhere;
    std::int32_t id = 0;
  };
  std::vector<Reached> places(text.size() + 1);
  const auto reach = [&](std::size_t begin, std::size_t end, double score, std::int32_t id) {
    const double sum = score + places[begin].sum;
    Reached& place = places[end];
    if (place.begin == nowhere || sum > place.sum) place = {sum, begin, id};
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t next = std::min(at + utf8_length(text[at]), text.size());
    bool covers_character = false;
    const Node* node = nodes_.data();
    for (std::size_t end = at; end < text.size();) {
      node = child(*node, static_cast<unsigned char>(text[end++]));
      if (node == nullptr) break;
      if (node->id == no_piece) continue;
      reach(at, end, pieces_[static_cast<std::size_t>(node->id)].score, node->id);
      covers_character |= end == next;
    }
    if (!covers_character) {
      reach(at, next, unknown_score_, unknown_.value_or(no_piece));
      if (places[next].id == no_piece) refuse_uncovered(text.substr(at, next - at));
    }
    at = next;
  }

  // Neighbours that are unknown become one part.
  std::vector<std::string_view> parts;
  bool fuses = false;
  for (std::size_t end = text.size(); end > 0; end = places[end].begin) {
    const Reached& place = places[end];
    const bool is_unknown = unknown_ && place.id == *unknown_;
    const std::string_view part = text.substr(place.begin, end - place.begin);
    if (is_unknown && fuses)
      parts.back() = {part.data(), part.size() + parts.back().size()};
    else
      parts.push_back(part);
    fuses = is_unknown;
  }
  std::for_each(parts.rbegin(), parts.rend(), [&](auto part) { append(part, ids); });
}

void Unigram::append(std::string_view part, std::vector<std::int32_t>& ids) const {
  if (const auto id = id_of(part)) {
    ids.push_back(*id);
    return;
  }
  const auto id_of_byte = [this](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
  const bool has_all_bytes = std::all_of(part.begin(), part.end(),
                                         [&](char byte) { return id_of_byte(byte) != no_piece; });
  if (has_all_bytes) {
    for (const char byte : part) ids.push_back(id_of_byte(byte));
    return;
  }
  if (!unknown_) refuse_uncovered(part);
  ids.push_back(*unknown_);
}

}  // namespace ostrakon::texts
