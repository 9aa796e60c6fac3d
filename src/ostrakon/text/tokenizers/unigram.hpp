// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ostrakon::texts {

/// The Unigram model of a tokenizer.json: a text becomes the sequence of pieces with the largest
/// sum of scores (Kudo, "Subword Regularization", 2018, section 3.2). Sums are of doubles, from the
/// text's begin; of equal sums the one whose last piece begins first wins, as in the library
/// `tokenizers`.
class Unigram {
 public:
  struct Piece {
    std::string text;
    double score;
  };
  struct Settings {
    std::vector<Piece> pieces;            ///< an id is an index; of equal texts the last one counts
    std::optional<std::int32_t> unknown;  ///< the id of what no piece covers
    bool byte_fallback = false;           ///< what no piece covers becomes pieces "<0x0A>" if there
  };

  /// Throws Error for an `unknown` that is no index.
  explicit Unigram(Settings settings);
  Unigram(const Unigram&) = delete;
  Unigram& operator=(const Unigram&) = delete;

  const std::vector<Piece>& pieces() const { return pieces_; }
  std::optional<std::int32_t> id_of(std::string_view piece) const;

  /// Appends the ids of `text`, UTF-8. Throws Error for a character that no piece covers where
  /// there is no `unknown`.
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const;

 private:
  /// A node of the trie of all pieces. Its children lie side by side, sorted by their bytes.
  struct Node {
    std::uint32_t first_child = 0;
    std::uint16_t children = 0;
    unsigned char byte = 0;
    std::int32_t id = -1;  ///< -1: no piece ends here
  };
  void grow(std::uint32_t node, const std::vector<std::int32_t>& sorted, std::size_t begin,
            std::size_t end, std::size_t depth);
  const Node* child(const Node& node, unsigned char byte) const;

  /// Appends the id of a part of the text, or those of its bytes.
  void append(std::string_view part, std::vector<std::int32_t>& ids) const;

  std::vector<Piece> pieces_;
  std::optional<std::int32_t> unknown_;
  double unknown_score_ = 0.0;
  std::unordered_map<std::string_view, std::int32_t> id_of_;
  std::array<std::int32_t, 256> byte_ids_;  ///< of pieces "<0x0A>"; -1: there is none
  std::vector<Node> nodes_;
};

}  // namespace ostrakon::texts
