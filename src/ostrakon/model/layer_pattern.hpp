// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ostrakon::model {

/// Says which layers of a model have a property, in words that a deck holds: "all", "none", "every
/// 6th" (the 6th, 12th, ... layer), "first 3", or layers counted from 0, as in parameters' names:
/// "0, 4-7". "all but" before any of the last three means the other layers: "all but every 6th".
class LayerPattern {
 public:
  LayerPattern() = default;  ///< all layers

  /// Returns nothing if `text` is no pattern.
  static std::optional<LayerPattern> parse(const std::string& text);
  /// Returns the shortest pattern for these layers that is no list; a list if there is no such one.
  static LayerPattern of(const std::vector<bool>& layers);

  bool has(std::int64_t layer) const;  ///< of layers from 0 on
  /// The number of the first `layers` layers that have the property.
  std::int64_t count(std::int64_t layers) const;
  /// The number of layers that a model needs at least for all layers that are named to exist.
  std::int64_t least_layers() const;
  std::string text() const;

  friend bool operator==(const LayerPattern& a, const LayerPattern& b) {
    return a.text() == b.text();
  }
  friend bool operator!=(const LayerPattern& a, const LayerPattern& b) { return !(a == b); }

 private:
  bool inverted_ = true;
  std::int64_t every_ = 0;                                     // above 0: every n-th layer
  std::int64_t first_ = 0;                                     // above 0: the first n layers
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges_;  // otherwise: [first, last] of each
};

}  // namespace ostrakon::model
