// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/graph/place_check.hpp>

#include <ostrakon/model/graph/lists.hpp>
#include <stdexcept>

namespace ostrakon::model::graph {
namespace {

/// A value that was written and not read for the last time.
struct Live {
  int v;
  Place place;
  int run;
};

bool is_exchanged(Home home) { return home == Home::exchanged || home == Home::second_exchanged; }

bool overlap(const Graph& graph, const Live& a, const Live& b) {
  if (a.place.home != b.place.home || is_exchanged(a.place.home)) return false;
  if (a.place.home == Home::workspace && a.run != b.run) return false;
  const auto value = [&](const Live& one) { return graph.values[static_cast<std::size_t>(one.v)]; };
  if (value(a).group >= 0 && value(a).group == value(b).group)
    return value(a).first_column < value(b).first_column + value(b).columns &&
           value(b).first_column < value(a).first_column + value(a).columns;
  const auto end = [&](const Place& place) {
    return place.offset +
           ((place.rows - 1) * place.stride + place.columns) * graph.element_bytes(place.element);
  };
  return a.place.offset < end(b.place) && b.place.offset < end(a.place);
}

std::vector<int> all_reads(const Call& call) {
  std::vector<int> reads = call.reads;
  for (int w : call.weights)
    if (w < 0) reads.push_back(~w);
  return reads;
}

}  // namespace

void check_places(const Listing& listing, const Numbered& calls,
                  const std::function<Place(int call, int v)>& place,
                  const std::function<int(int call)>& run) {
  std::map<int, int> last_read;
  for (int i = 0; i < calls.count(); ++i)
    for (int v : all_reads(calls[i])) last_read[v] = i;
  std::vector<Live> live;
  const auto begin = [&](int call, int v) { live.push_back({v, place(call, v), run(call)}); };
  const auto fail = [&](const Call& call, const char* what, int v) {
    throw std::logic_error(call.name + what + listing.value(v).name);
  };
  bool is_backward = false;
  if (listing.graph.input >= 0) begin(0, listing.graph.input);
  for (int i = 0; i < calls.count(); ++i) {
    const Call& call = calls[i];
    if (!is_backward && i >= calls.begins[1]) {
      is_backward = true;
      if (listing.graph.setting.is_loss)  // evaluation has the one, training the other
        live.erase(live.begin() + 1, live.end());
      for (int v : listing.output_gradients)
        if (last_read.count(v) > 0) begin(i, v);
    }
    for (int v : all_reads(call)) {
      bool found = false;
      for (const Live& one : live)
        if (one.v == v) found = one.place.home != Home::workspace || one.run == run(i);
      if (!found) fail(call, " reads before it is written, or after it is lost: ", v);
    }
    for (int w : call.writes) {
      const Live written{w, place(i, w), run(i)};
      for (const Live& one : live) {
        if (one.v == w) fail(call, " writes a second time: ", w);
        const auto last = last_read.find(one.v);
        if (last == last_read.end() || last->second < i || !overlap(listing.graph, written, one))
          continue;
        const bool may = last->second == i && contains(call.replaces, std::pair{w, one.v});
        if (!may) fail(call, " overwrites ", one.v);
      }
      live.push_back(written);
    }
  }
}

}  // namespace ostrakon::model::graph
