// SPDX-License-Identifier: Apache-2.0
#pragma once

// Words for what passes ask of short lists.

#include <algorithm>
#include <vector>

namespace ostrakon::model::graph {

template <class List, class Condition>
bool any_of(const List& list, const Condition& condition) {
  return std::any_of(list.begin(), list.end(), condition);
}
template <class List, class Item>
bool contains(const List& list, const Item& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}
/// The item of this index, which numbers of values, calls and phases are.
template <class List>
decltype(auto) at(List& list, int index) {
  return list[static_cast<std::size_t>(index)];
}
/// What a map has for `key`; where it has none, `other`.
template <class Map>
auto found_or(const Map& map, const typename Map::key_type& key, typename Map::mapped_type other) {
  const auto found = map.find(key);
  return found != map.end() ? found->second : other;
}
template <class Item>
void append(std::vector<Item>& list, const std::vector<Item>& more) {
  list.insert(list.end(), more.begin(), more.end());
}
template <class Item>
void insert_at(std::vector<Item>& list, std::size_t index, Item item) {
  list.insert(list.begin() + static_cast<std::ptrdiff_t>(index), std::move(item));
}
/// Moves item `from` to where the items before index `to` end, with from < to.
template <class Item>
void move_behind(std::vector<Item>& list, std::size_t from, std::size_t to) {
  const auto at = [&](std::size_t i) { return list.begin() + static_cast<std::ptrdiff_t>(i); };
  std::rotate(at(from), at(from + 1), at(to));
}

}  // namespace ostrakon::model::graph
