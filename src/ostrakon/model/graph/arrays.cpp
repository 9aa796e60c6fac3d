// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/graph/arrays.hpp>

#include <algorithm>
#include <ostrakon/model/graph/lists.hpp>
#include <stdexcept>

namespace ostrakon::model::graph {

Numbered::Numbered(const Listing& listing) {
  int section = 0;
  for (const Calls* list : {&listing.forward, &listing.backward, &listing.deferred}) {
    for (const Call& call : *list) calls.push_back(&call);
    begins[++section] = static_cast<int>(calls.size());
  }
}

int ValueArrays::find_dead(const ValueArray& array) const {
  int best = -1;
  for (int i = 0; i < static_cast<int>(all.size()); ++i) {
    const ValueArray& saved = at(all, i);
    // A call for the first of several pieces comes before another for the last.
    const bool has_same_pieces = saved.pieces == own_pieces && array.pieces == own_pieces;
    if (saved.ends_by_piece && array.begins_by_piece && !has_same_pieces) continue;
    if (saved.home == Home::saved && !saved.is_guest && saved.last <= array.first &&
        saved.bytes >= array.bytes && saved.bytes <= 2 * array.bytes &&
        (best < 0 || saved.bytes < at(all, best).bytes))
      best = i;
  }
  return best;
}

namespace {

class ArrayFinder {
 public:
  ArrayFinder(const Listing& listing, const Numbered& calls) : l_(listing), calls_(calls) {
    arrays_.own_pieces = listing.graph.setting.own_pieces();
    arrays_.of.assign(l_.graph.values.size(), -1);
    last_read_.assign(l_.graph.values.size(), -1);
    for (int i = 0; i < calls.count(); ++i) {
      for (int v : calls[i].all_reads()) at(last_read_, v) = i;
      if (calls[i].exchange) exchanged_.insert(calls[i].writes.begin(), calls[i].writes.end());
    }
  }

  ValueArrays find() {
    for (int i = 0; i < calls_.count(); ++i) {
      const Call& call = calls_[i];
      for (auto [to, from] : call.replaces) share(i, to, from);
      for (int v : call.reads) use(i, v).is_for_exchange &= is_handed(call, v);
      for (int w : call.weights)
        if (is_value(w)) use(i, value_of(w)).is_for_exchange = false;
      for (int v : call.writes) use(i, v);
    }
    for (int v = 0; v < static_cast<int>(l_.graph.values.size()); ++v) set_home(v);
    for (ValueArray& array : arrays_.all)
      if (array.home == Home::workspace && array.is_for_exchange && array.last > array.first)
        array.home = Home::send_buffer;
    if (l_.graph.setting.is_loss) use_gradient();
    return std::move(arrays_);
  }

 private:
  void share(int call, int to, int from) {
    int& of = at(arrays_.of, to);
    const Value &value = l_.value(to), &replaced = l_.value(from);
    if (of < 0 && value.group < 0 && !value.is_in_whole && !replaced.is_in_whole &&
        replaced.group < 0 && !contains(l_.graph.inputs, from) && exchanged_.count(from) == 0 &&
        at(last_read_, from) == call &&
        l_.gradient_aliases.count(to) == l_.gradient_aliases.count(from) &&
        l_.graph.bytes_of(to) == l_.graph.bytes_of(from))
      of = at(arrays_.of, from);
  }

  /// Whether the call is an exchange, which takes the value as it lies.
  bool is_handed(const Call& call, int v) const {
    return call.exchange &&
           (l_.value(v).pieces == 1 || l_.value(v).has_interleaved_pieces ==
                                           l_.value(call.writes.front()).has_interleaved_pieces);
  }

  ValueArray& array_of(int v) {
    const Value& value = l_.value(v);
    int& of = at(arrays_.of, v);
    if (value.is_in_whole) {
      ValueArray& whole = array_of(value.whole);
      of = at(arrays_.of, value.whole);
      return whole;
    }
    if (of < 0) of = found_or(groups_, value.group, -1);
    if (of < 0) {
      of = static_cast<int>(arrays_.all.size());
      ValueArray array;
      array.bytes = l_.graph.bytes_of(v);
      array.pieces = value.pieces;
      array.is_vector = value.rows == 1;
      if (value.group >= 0) {
        groups_[value.group] = of;
        array.bytes = array.bytes / value.columns * l_.graph.columns_of_group(value.group);
      }
      arrays_.all.push_back(array);
    }
    return at(arrays_.all, of);
  }

  ValueArray& use(int call, int v) {
    ValueArray& array = array_of(v);  // calls come in order
    if (array.last < 0) {
      array.first = call;
      array.begins_by_piece = calls_[call].is_by_piece;
    }
    array.last = call;
    array.ends_by_piece = calls_[call].is_by_piece;
    return array;
  }

  /// Before a loss has gradients, there is room for another array of the first one's size.
  void use_gradient() {
    if (l_.input_gradients.empty()) return;
    const ValueArray& gradient = arrays_.array_of(l_.input_gradients.front());
    int first = gradient.first;
    for (int v : l_.input_gradients) first = std::min(first, arrays_.array_of(v).first);
    for (ValueArray& array : arrays_.all)
      if (array.home == Home::workspace && calls_.section(array.first) == 1 &&
          array.bytes == gradient.bytes && array.last < first) {
        array.home = Home::gradient;
        return;
      }
  }

  void set_home(int v) {
    const int of = at(arrays_.of, v);
    if (of < 0 || l_.value(v).is_in_whole) return;
    ValueArray& array = at(arrays_.all, of);
    if (exchanged_.count(v) > 0) array.home = Home::recv_buffer;
    if (l_.kept.count(v) > 0) array.home = Home::saved;
    if (contains(l_.graph.inputs, v)) array.home = Home::input;
    if (l_.gradient_aliases.count(v) > 0) array.home = Home::gradient;
    if (!contains(l_.graph.outputs, v)) return;
    if (array.home == Home::saved)
      throw std::logic_error("backward reads the unit's output " + l_.value(v).name);
    array.home = Home::output;
  }

  const Listing& l_;
  const Numbered& calls_;
  ValueArrays arrays_;
  std::vector<int> last_read_;
  std::set<int> exchanged_;
  std::map<int, int> groups_;
};

}  // namespace

std::vector<bool> find_what_saves(const Listing& listing) {
  std::set<int> needed = listing.kept;
  const auto is_needed = [&](int v) {
    return needed.count(v) > 0 || needed.count(listing.value(v).whole) > 0;
  };
  std::vector<bool> saves(listing.forward.size());
  for (std::size_t i = saves.size(); i-- > 0;) {
    const Call& call = listing.forward[i];
    saves[i] = any_of(call.writes, is_needed);
    if (!saves[i]) continue;
    for (int v : call.all_reads()) {
      needed.insert(v);
      if (listing.value(v).is_in_whole) needed.insert(listing.value(v).whole);
    }
  }
  return saves;
}

ValueArrays find_arrays(const Listing& listing, const Numbered& numbered) {
  return ArrayFinder(listing, numbered).find();
}

}  // namespace ostrakon::model::graph
