// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/graph/place_check.hpp>

#include <algorithm>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

namespace ostrakon::model::graph {
namespace {

/// A call for one of a rank's pieces, or for all of them.
struct Step {
  int call;
  std::int64_t piece;
};

/// In the order in which they run: neighbouring calls by piece for the first piece, then for the
/// second, and so on.
std::vector<Step> steps_of(const Numbered& calls, std::int64_t pieces,
                           const std::function<int(int call)>& first_by_piece) {
  std::vector<Step> steps;
  for (int i = 0; i < calls.count();) {
    int end = i + 1;
    while (end < calls.count() && first_by_piece(end) == i) ++end;
    const std::int64_t times = calls[i].is_by_piece ? pieces : 1;
    for (std::int64_t piece = 0; piece < times; ++piece)
      for (int call = i; call < end; ++call) steps.push_back({call, piece});
    i = end;
  }
  return steps;
}

/// A value, or a piece of one, that was written and not read for the last time.
struct Live {
  int v;
  std::int64_t piece;
  Place place;
  int run;        ///< phases with one workspace
  int last = -1;  ///< step that needs it
};

bool is_exchanged(Home home) { return home == Home::exchanged || home == Home::second_exchanged; }

/// The matrix of one piece.
Place piece_of(Place place, std::int64_t piece) {
  place.offset += piece * place.piece_stride;
  place.pieces = 1;
  return place;
}

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

/// The rows of each run, if these lie apart.
std::vector<Place> runs_of(const Graph& graph, const Place& place) {
  if (place.run_stride == 0) return {place};
  std::vector<Place> runs;
  for (std::int64_t run = 0; run < place.runs; ++run) {
    runs.push_back(place);
    runs.back().rows = place.rows / place.runs;
    runs.back().offset +=
        run * place.run_stride * place.stride * graph.element_bytes(place.element);
  }
  return runs;
}

bool overlap(const Graph& graph, const Live& a, const Live& b) {
  if (a.place.home != b.place.home || (a.place.home == Home::workspace && a.run != b.run))
    return false;
  const std::vector<Place> of_a = runs_of(graph, a.place), of_b = runs_of(graph, b.place);
  return any_of(of_a, [&](const Place& one) {
    return any_of(of_b, [&](const Place& other) { return overlap(graph, one, other); });
  });
}

/// Walks over the steps and keeps what is live.
class PlaceCheck {
 public:
  PlaceCheck(const Listing& listing, const Numbered& calls,
             const std::function<Place(int call, int v)>& place,
             const std::function<std::vector<Place>(int call)>& scratch,
             const std::function<int(int call)>& run, std::vector<Step> steps)
      : l_(listing),
        calls_(calls),
        place_(place),
        scratch_(scratch),
        run_(run),
        steps_(std::move(steps)) {
    for (const Call* call : calls_.calls)
      for (int v : call->writes) {
        written_.insert(v);
        if (l_.value(v).whole >= 0) chunks_of_[l_.value(v).whole].push_back(v);
      }
    find_last_reads();
  }

  void run() {
    if (l_.graph.input >= 0 && calls_.count() > 0) add(l_.graph.input, 0);
    bool is_backward = false;
    for (now_ = 0; now_ < static_cast<int>(steps_.size()); ++now_) {
      if (!is_backward && call_number() >= calls_.begins[1]) {
        is_backward = true;
        if (l_.graph.setting.is_loss) {  // evaluation has the one, training the other
          live_.erase(std::remove_if(live_.begin(), live_.end(),
                                     [&](const Live& one) { return one.v != l_.graph.input; }),
                      live_.end());
          was_written_.clear();
        }
        for (int v : l_.output_gradients)
          if (last_read_.count({v, 0}) > 0) add(v, call_number());
      }
      check_reads();
      check_writes();
      check_scratch();
      live_.erase(std::remove_if(live_.begin(), live_.end(),
                                 [&](const Live& one) { return one.last <= now_; }),
                  live_.end());
    }
    for (int output : l_.graph.outputs)
      for (int v : sources_of(output))
        if (was_written_.count({v, 0}) == 0)
          throw std::logic_error("no call writes the output " + l_.value(v).name);
  }

 private:
  /// The values that were written to make this one: its chunks, or what it is a chunk of.
  std::vector<int> sources_of(int v) const {
    const auto chunks = chunks_of_.find(v);
    if (chunks != chunks_of_.end()) return chunks->second;
    return {l_.value(v).whole >= 0 && written_.count(v) == 0 ? l_.value(v).whole : v};
  }
  int call_number() const { return steps_[static_cast<std::size_t>(now_)].call; }
  const Call& call() const { return calls_[call_number()]; }
  std::int64_t pieces_of(int v) const { return l_.value(v).pieces; }
  /// Tells which pieces of a value a step takes or makes.
  std::pair<std::int64_t, std::int64_t> pieces_here(const Step& step, int v) const {
    if (pieces_of(v) == 1) return {0, 1};
    if (!calls_[step.call].is_by_piece) return {0, pieces_of(v)};
    return {step.piece, step.piece + 1};
  }

  /// The last step that needs each value. Outputs are needed behind forward, and the gradient of
  /// the input behind backward.
  void find_last_reads() {
    int gradient = -1, forward = 0, backward = 0;
    for (int s = 0; s < static_cast<int>(steps_.size()); ++s) {
      const Step& step = steps_[static_cast<std::size_t>(s)];
      const Call& call = calls_[step.call];
      for (int of : call.all_reads())
        for (int v : sources_of(of)) {
          const auto [first, end] = pieces_here(step, v);
          for (std::int64_t piece = first; piece < end; ++piece) last_read_[{v, piece}] = s;
        }
      for (int v : call.writes)
        if (l_.in_gradient.count(v) > 0) gradient = v;
      if (step.call < calls_.begins[1]) forward = s + 1;
      if (step.call < calls_.begins[2]) backward = s + 1;
    }
    for (int output : l_.graph.outputs)
      for (int v : sources_of(output)) last_read_[{v, 0}] = forward;
    if (gradient >= 0) last_read_[{gradient, 0}] = backward;
  }

  Live live_at(int v, std::int64_t piece, int call) const {
    const auto last = last_read_.find({v, piece});
    return {v, piece, piece_of(place_(call, v), piece), run_(call),
            last == last_read_.end() ? -1 : last->second};
  }
  void add(int v, int call) {
    for (std::int64_t piece = 0; piece < pieces_of(v); ++piece)
      live_.push_back(live_at(v, piece, call));
  }
  bool is_needed(const Live& one) const { return one.last >= now_; }
  void fail(const char* what, int v) const {
    throw std::logic_error(call().name + what + l_.value(v).name);
  }

  void check_reads() {
    for (int of : call().all_reads())
      for (int v : sources_of(of)) {
        const auto [first, end] = pieces_here(steps_[static_cast<std::size_t>(now_)], v);
        for (std::int64_t piece = first; piece < end; ++piece) {
          bool found = false;
          for (const Live& one : live_)
            if (one.v == v && one.piece == piece)
              found = one.place.home != Home::workspace || one.run == run_(call_number());
          if (!found) fail(" reads before it is written, or after it is lost: ", v);
        }
      }
    for (auto [to, from] : call().replaces) {
      const Place a = place_(call_number(), to), b = place_(call_number(), from);
      const bool is_there = a.home == b.home && a.offset == b.offset;
      const bool adds = call().adds && !call().adds_from_anywhere && from == call().reads.back();
      if (!is_there && (call().in_place || adds))
        fail(" works in place, but elsewhere than where this lies: ", from);
    }
  }

  void check_writes() {
    const Step& step = steps_[static_cast<std::size_t>(now_)];
    for (int w : call().writes) {
      const auto [first, end] = pieces_here(step, w);
      // Each piece adds to a sum.
      const bool continues = step.piece > 0 && l_.value(w).over_tensor == Over::sum;
      for (std::int64_t piece = first; piece < end; ++piece) {
        const Live written = live_at(w, piece, call_number());
        if (!continues && !was_written_.insert({w, piece}).second)
          fail(" writes a second time: ", w);
        for (const Live& one : live_) {
          if (one.v == w) continue;
          // Each exchange has a buffer of its own.
          if (is_exchanged(one.place.home) && !contains(call().writes, one.v)) continue;
          if (!is_needed(one) || !overlap(l_.graph, written, one)) continue;
          // A chunk is replaced with all others of the value.
          const int v = l_.value(one.v).is_in_whole ? l_.value(one.v).whole : one.v;
          const Place replaced = live_at(v, piece, call_number()).place;
          const bool may = one.last == now_ && one.piece == piece &&
                           contains(call().replaces, std::pair{w, v}) &&
                           written.place.offset == replaced.offset &&
                           end_of(l_.graph, written.place) == end_of(l_.graph, replaced);
          if (!may) fail(" overwrites ", one.v);
        }
        if (!continues) live_.push_back(written);
      }
    }
  }

  void check_scratch() {
    const std::vector<Place> works_in = scratch_(call_number());
    for (const Live& one : live_)
      for (const Place& own : works_in)
        if (own.columns > 0 && (is_needed(one) || contains(call().writes, one.v)) &&
            overlap(l_.graph, {-1, 0, own, run_(call_number())}, one))
          fail(" works where this lies: ", one.v);
  }

  const Listing& l_;
  const Numbered& calls_;
  const std::function<Place(int call, int v)>& place_;
  const std::function<std::vector<Place>(int call)>& scratch_;
  const std::function<int(int call)>& run_;
  const std::vector<Step> steps_;
  int now_ = 0;
  std::set<int> written_;
  std::map<int, std::vector<int>> chunks_of_;              // of a value, those that are written
  std::map<std::pair<int, std::int64_t>, int> last_read_;  // by value and piece
  std::vector<Live> live_;
  std::set<std::pair<int, std::int64_t>> was_written_;
};

}  // namespace

void check_places(const Listing& listing, const Numbered& calls,
                  const std::function<Place(int call, int v)>& place,
                  const std::function<std::vector<Place>(int call)>& scratch,
                  const std::function<int(int call)>& run,
                  const std::function<int(int call)>& first_by_piece) {
  const std::int64_t pieces = listing.graph.setting.own_pieces();
  PlaceCheck(listing, calls, place, scratch, run, steps_of(calls, pieces, first_by_piece)).run();
}

void check_gradients(const Listing& listing, const Numbered& calls) {
  std::vector<std::int64_t> written(listing.graph.weights.size(), 0);
  const auto elements_of = [&](int w) {
    return listing.graph.weights[static_cast<std::size_t>(w)].elements;
  };
  for (const Call* call : calls.calls)
    for (int w : call->gradients)
      if (w >= 0 && w != Call::none)
        written[static_cast<std::size_t>(w)] +=
            call->gradient_elements > 0 ? call->gradient_elements : elements_of(w);
  for (std::size_t w = 0; w < written.size(); ++w) {
    const Weight& weight = listing.graph.weights[w];
    if (written[w] != (weight.trained ? weight.elements : 0))
      throw std::logic_error(text("of the gradient of ", weight.name, " ", written[w],
                                  " elements are computed, of ", weight.elements));
  }
}

}  // namespace ostrakon::model::graph
