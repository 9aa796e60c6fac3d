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

std::int64_t end_of(const Graph& graph, const Place& place) {
  return place.offset +
         ((place.rows - 1) * place.stride + place.columns) * graph.element_bytes(place.element);
}

bool overlap(const Graph& graph, const Place& a, const Place& b) {
  if (a.columns == 0 || b.columns == 0) return false;
  if (a.stride != b.stride || a.element != b.element)
    return a.offset < end_of(graph, b) && b.offset < end_of(graph, a);
  // Rows of one array, or of arrays that are alike: rows of a and b that come close.
  const std::int64_t bytes = a.stride * graph.element_bytes(a.element);
  const std::int64_t element = bytes / a.stride, distance = b.offset - a.offset;
  for (std::int64_t row = -distance / bytes - 1; row <= -distance / bytes + 1; ++row)
    if (-row < a.rows && row < b.rows && distance + row * bytes < a.columns * element &&
        -(distance + row * bytes) < b.columns * element)
      return true;
  return false;
}

bool overlap(const Graph& graph, const Live& a, const Live& b) {
  if (a.place.home != b.place.home) return false;
  return (a.place.home != Home::workspace || a.run == b.run) && overlap(graph, a.place, b.place);
}

std::vector<int> all_reads(const Call& call) {
  std::vector<int> reads = call.reads;
  for (int w : call.weights)
    if (w < 0) reads.push_back(~w);
  return reads;
}

/// The last call that needs each value. Outputs are needed behind forward, and the gradient of the
/// input behind backward.
std::map<int, int> last_reads(const Listing& listing, const Numbered& calls) {
  std::map<int, int> last;
  int gradient = -1;
  for (int i = 0; i < calls.count(); ++i) {
    for (int v : all_reads(calls[i])) last[v] = i;
    for (int v : calls[i].writes)
      if (listing.in_gradient.count(v) > 0) gradient = v;
  }
  for (int v : listing.graph.outputs) last[v] = calls.begins[1];
  if (gradient >= 0) last[gradient] = calls.begins[2];
  return last;
}

}  // namespace

void check_places(const Listing& listing, const Numbered& calls,
                  const std::function<Place(int call, int v)>& place,
                  const std::function<std::vector<Place>(int call)>& scratch,
                  const std::function<int(int call)>& run) {
  const std::map<int, int> last_read = last_reads(listing, calls);
  const auto is_needed = [&](int v, int call) {
    const auto last = last_read.find(v);
    return last != last_read.end() && last->second >= call;
  };
  const auto fail = [&](const Call& call, const char* what, int v) {
    throw std::logic_error(call.name + what + listing.value(v).name);
  };
  std::vector<Live> live;
  bool is_backward = false;
  if (listing.graph.input >= 0 && calls.count() > 0)
    live.push_back({listing.graph.input, place(0, listing.graph.input), run(0)});
  for (int i = 0; i < calls.count(); ++i) {
    const Call& call = calls[i];
    if (!is_backward && i >= calls.begins[1]) {
      is_backward = true;
      if (listing.graph.setting.is_loss)  // evaluation has the one, training the other
        live.erase(live.begin() + 1, live.end());
      for (int v : listing.output_gradients)
        if (last_read.count(v) > 0) live.push_back({v, place(i, v), run(i)});
    }
    for (int v : all_reads(call)) {
      bool found = false;
      for (const Live& one : live)
        if (one.v == v) found = one.place.home != Home::workspace || one.run == run(i);
      if (!found) fail(call, " reads before it is written, or after it is lost: ", v);
    }
    for (auto [to, from] : call.replaces) {
      const bool is_there =
          place(i, to).home == place(i, from).home && place(i, to).offset == place(i, from).offset;
      if (!is_there && (call.in_place || (call.adds && from == call.reads.back())))
        fail(call, " works in place, but elsewhere than where this lies: ", from);
    }
    const std::vector<Place> works_in = scratch(i);
    for (int w : call.writes) {
      const Live written{w, place(i, w), run(i)};
      for (const Live& one : live) {
        if (one.v == w) fail(call, " writes a second time: ", w);
        // Each exchange has a buffer of its own.
        if (is_exchanged(one.place.home) && !contains(call.writes, one.v)) continue;
        if (!is_needed(one.v, i) || !overlap(listing.graph, written, one)) continue;
        const bool may = last_read.at(one.v) == i && contains(call.replaces, std::pair{w, one.v}) &&
                         written.place.offset == one.place.offset &&
                         end_of(listing.graph, written.place) == end_of(listing.graph, one.place);
        if (!may) fail(call, " overwrites ", one.v);
      }
      live.push_back(written);
    }
    for (const Live& one : live)
      for (const Place& own : works_in)
        if (own.columns > 0 && (is_needed(one.v, i) || contains(call.writes, one.v)) &&
            overlap(listing.graph, {-1, own, run(i)}, one))
          fail(call, " works where this lies: ", one.v);
  }
  for (int v : listing.graph.outputs)
    if (!any_of(live, [&](const Live& one) { return one.v == v; }))
      throw std::logic_error("no call writes the output " + listing.value(v).name);
}

void check_gradients(const Listing& listing, const Numbered& calls) {
  std::vector<int> times(listing.graph.weights.size(), 0);
  for (const Call* call : calls.calls)
    for (int w : call->gradients)
      if (w >= 0 && w != Call::none) ++times[static_cast<std::size_t>(w)];
  for (std::size_t w = 0; w < times.size(); ++w) {
    const Weight& weight = listing.graph.weights[w];
    if (times[w] != (weight.trained ? 1 : 0))
      throw std::logic_error("the gradient of " + weight.name + " is computed " +
                             std::to_string(times[w]) + " times");
  }
}

}  // namespace ostrakon::model::graph
