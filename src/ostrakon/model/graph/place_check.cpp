// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/graph/place_check.hpp>

#include <algorithm>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <stdexcept>
#include <vector>

namespace ostrakon::model::graph {
namespace {

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

bool overlap_in_runs(const Graph& graph, const Place& a, const Place& b) {
  const std::vector<Place> of_a = runs_of(graph, a), of_b = runs_of(graph, b);
  return any_of(of_a, [&](const Place& one) {
    return any_of(of_b, [&](const Place& other) { return overlap(graph, one, other); });
  });
}

/// A phase of forward or backward. Phases that keep their workspace have one.
struct AtPhase {
  const plan::Phases* list;
  int number;
  int workspace;  // of all
};

/// A call for one of a rank's pieces, or for all of them.
struct Step {
  const PlacedCall* placed;
  std::int64_t piece;
  AtPhase at;
};

/// A value, or a piece of one, that was written and not read for the last time.
struct Live {
  int v;
  std::int64_t piece;
  Place place;
  int last;  // step that needs it; -1: none
};

/// What is live in a buffer, by where it begins.
struct BufferContent {
  std::multimap<std::int64_t, Live> live;
  std::int64_t longest = 0;
};

/// Walks over the calls in the order in which they run, and keeps what is live.
class PlaceCheck {
 public:
  PlaceCheck(const Listing& listing, const Program& program, bool only_saves)
      : l_(listing),
        program_(program),
        only_saves_(only_saves),
        last_(l_.graph.values.size()),
        found_(l_.graph.values.size()) {
    add_steps(program.forward, program.forward_phases);
    forward_ = steps_.size();
    if (!only_saves) add_steps(program.backward, program.backward_phases);
    for (const Step& step : steps_)
      for (int v : step.placed->call.writes) {
        written_.insert(v);
        if (l_.value(v).whole >= 0) chunks_of_[l_.value(v).whole].insert(v);
      }
    for (std::size_t v = 0; v < last_.size(); ++v) {
      last_[v].assign(static_cast<std::size_t>(l_.graph.values[v].pieces), -1);
      found_[v].assign(last_[v].size(), nullptr);
    }
    find_last_reads();
  }

  void run() {
    expiring_.resize(steps_.size() + 2);
    for (now_ = 0; now_ < steps_.size(); ++now_) {
      if (now_ == forward_) begin_backward();
      check_ends();
      check_reads();
      check_writes();
      check_scratch();
      for (const auto& [buffer, live] : expiring_[now_]) remove(buffer, live);
    }
    if (only_saves_) return;
    for (int output : l_.graph.outputs)
      for (int v : sources_of(output))
        if (was_written_.count({v, 0}) == 0)
          throw std::logic_error("no call writes the output " + l_.value(v).name);
  }

 private:
  using Content = std::multimap<std::int64_t, Live>::iterator;

  /// Neighbouring calls of a loop run for the first piece, then for the second, and so on.
  void add_steps(const std::vector<std::vector<PlacedCall>>& phases, const plan::Phases& list) {
    for (std::size_t p = 0; p < phases.size(); ++p) {
      if (p == 0 || !list[p - 1].keeps_workspace) ++workspaces_;
      const AtPhase at{&list, static_cast<int>(p), workspaces_};
      const std::vector<PlacedCall>& calls = phases[p];
      for (std::size_t i = 0, end = 0; i < calls.size(); i = end) {
        for (end = i + 1; end < calls.size() && calls[end].loop == calls[i].loop;) ++end;
        const std::int64_t times = calls[i].call.is_by_piece ? program_.own_pieces : 1;
        for (std::int64_t piece = 0; piece < times; ++piece)
          for (std::size_t c = i; c < end; ++c)
            if (calls[c].saves || !only_saves_) steps_.push_back({&calls[c], piece, at});
      }
    }
  }

  /// The values that were written to make this one: its chunks, or what it is a chunk of.
  std::vector<int> sources_of(int v) const {
    const auto chunks = chunks_of_.find(v);
    if (chunks != chunks_of_.end()) return {chunks->second.begin(), chunks->second.end()};
    return {l_.value(v).whole >= 0 && written_.count(v) == 0 ? l_.value(v).whole : v};
  }
  const Step& step() const { return steps_[now_]; }
  const Call& call() const { return step().placed->call; }
  /// Tells which pieces of a value a step takes or makes.
  std::pair<std::int64_t, std::int64_t> pieces_here(const Step& step, int v) const {
    if (l_.value(v).pieces == 1) return {0, 1};
    if (!step.placed->call.is_by_piece) return {0, l_.value(v).pieces};
    return {step.piece, step.piece + 1};
  }
  int& last_of(int v, std::int64_t piece) {
    return last_[static_cast<std::size_t>(v)][static_cast<std::size_t>(piece)];
  }
  const Live*& found(int v, std::int64_t piece) {
    return found_[static_cast<std::size_t>(v)][static_cast<std::size_t>(piece)];
  }

  /// The last step that needs each value. Outputs are needed behind forward, and the gradient of
  /// the input behind backward.
  void find_last_reads() {
    int gradient = -1, backward = 0;
    const int deferred = static_cast<int>(program_.backward.size()) - program_.deferred_phases;
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      const Step& step = steps_[s];
      for (int of : step.placed->call.all_reads())
        for (int v : sources_of(of)) {
          const auto [first, end] = pieces_here(step, v);
          for (std::int64_t piece = first; piece < end; ++piece)
            last_of(v, piece) = static_cast<int>(s);
        }
      for (int v : step.placed->call.writes)
        if (l_.in_gradient.count(v) > 0) gradient = v;
      if (s < forward_ || step.at.number < deferred) backward = static_cast<int>(s) + 1;
    }
    for (int v : l_.graph.outputs)
      for (int one : sources_of(v)) last_of(one, 0) = static_cast<int>(forward_);
    if (gradient >= 0) last_of(gradient, 0) = backward;
  }

  void begin_backward() {
    if (l_.graph.setting.is_loss) {  // evaluation has the one, training the other
      buffers_.clear();
      was_written_.clear();
      for (auto& pieces : found_) pieces.assign(pieces.size(), nullptr);
      for (auto& expiring : expiring_) expiring.clear();
    }
    for (int v : l_.output_gradients)
      for (const Step& step : steps_) {
        const auto& reads = step.placed->call.reads;
        const auto read = std::find(reads.begin(), reads.end(), v);
        if (read == reads.end()) continue;
        add(v, 0, step.placed->reads[static_cast<std::size_t>(read - reads.begin())]);
        break;
      }
  }

  /// Where it lies in this walk.
  Place at(Place place) const {
    if (!only_saves_ || place.spare < 0) return place;
    place.home = Home::workspace;
    place.offset = place.spare;
    return place;
  }
  /// A buffer of its own for each workspace and each exchange.
  std::pair<Home, int> buffer_of(const Place& place) const {
    if (place.home == Home::workspace) return {place.home, step().at.workspace};
    if (place.home != Home::exchanged) return {place.home, 0};
    return {place.home, 2 * step().at.number + (now_ < forward_ ? 0 : 1)};
  }
  void add(int v, std::int64_t piece, const Place& place) {
    const auto buffer = buffer_of(place);
    BufferContent& content = buffers_[buffer];
    const int last = last_of(v, piece);
    content.longest = std::max(content.longest, hull_end(place) - place.offset);
    const Content made = content.live.emplace(place.offset, Live{v, piece, place, last});
    found(v, piece) = &made->second;
    workspace_of_[v] = step().at.workspace;
    expiring_[std::max(static_cast<std::size_t>(std::max(last, 0)), now_)].emplace_back(buffer,
                                                                                        made);
  }
  void remove(const std::pair<Home, int>& buffer, Content live) {
    found(live->second.v, live->second.piece) = nullptr;
    buffers_[buffer].live.erase(live);
  }
  std::int64_t hull_end(const Place& place) const {
    std::int64_t end = place.offset;
    for (const Place& run : runs_of(l_.graph, place)) end = std::max(end, end_of(l_.graph, run));
    return end;
  }
  /// What is live and lies there.
  template <class Act>
  void for_each_beside(const Place& place, const Act& act) {
    const auto found = buffers_.find(buffer_of(place));
    if (place.columns == 0 || found == buffers_.end()) return;
    const auto& live = found->second.live;
    const std::int64_t end = hull_end(place);
    for (auto one = live.lower_bound(place.offset - found->second.longest);
         one != live.end() && one->first < end; ++one)
      if (overlap_in_runs(l_.graph, place, one->second.place)) act(one->second);
  }
  bool is_needed(const Live& one) const { return one.last >= static_cast<int>(now_); }
  void fail(const char* what, int v) const {
    throw std::logic_error(call().name + what + l_.value(v).name);
  }

  std::int64_t bytes_of(const Place& place, bool is_written) const {
    const plan::Phases& list = *step().at.list;
    const plan::Phase& own = list[static_cast<std::size_t>(step().at.number)];
    const auto brought = [&](std::size_t index) {
      if (index >= own.reads.size()) return std::int64_t{0};
      return list[static_cast<std::size_t>(own.reads[index])].then->bytes_out();
    };
    const Graph& g = l_.graph;
    switch (place.home) {
      case Home::workspace:
        return plan::workspace_bytes(list, step().at.number);
      case Home::input:
        return g.bytes_of(g.input);
      case Home::output:
        return program_.output_bytes;
      case Home::gradient:
        return std::max(program_.output_bytes, g.input < 0 ? 0 : g.bytes_of(g.input));
      case Home::saved:
        return program_.saved_bytes;
      case Home::deferred:
        return program_.deferred_bytes;
      case Home::handed:
        return own.then ? own.then->bytes_in() : 0;
      case Home::exchanged:
        return is_written ? own.then->bytes_out() : brought(0);
      case Home::second_exchanged:
        return brought(1);
    }
    return 0;
  }

  void check_ends() const {
    const auto check = [&](const std::vector<Place>& places, bool is_written) {
      for (const Place& one : places) {
        const Place place = at(one);
        if (place.columns > 0 &&
            hull_end(piece_of(place, place.pieces - 1)) > bytes_of(place, is_written))
          throw std::logic_error(call().name + " reaches beyond the end of a buffer");
      }
    };
    check(step().placed->reads, false);
    check(step().placed->weights, false);
    check(step().placed->writes, true);
    check(step().placed->scratch, true);
  }

  void check_reads() {
    for (int of : call().all_reads())
      for (int v : sources_of(of)) {
        if (v == l_.graph.input) continue;
        const auto [first, end] = pieces_here(step(), v);
        for (std::int64_t piece = first; piece < end; ++piece) {
          const Live* one = found(v, piece);
          if (one == nullptr ||
              (one->place.home == Home::workspace && workspace_of_[v] != step().at.workspace))
            fail(" reads before it is written, or after it is lost: ", v);
        }
      }
    for (auto [to, from] : call().replaces) {
      const Place *a = place_of(to), *b = place_of(from);
      const bool is_there = a->home == b->home && a->offset == b->offset;
      const bool adds = call().adds && !call().adds_from_anywhere && from == call().reads.back();
      if (!is_there && (call().in_place || adds))
        fail(" works in place, but elsewhere than where this lies: ", from);
    }
  }
  /// Finds where this call has a value; null: it does not have it.
  const Place* place_of(int v) const {
    const PlacedCall& placed = *step().placed;
    for (std::size_t i = 0; i < placed.call.writes.size(); ++i)
      if (placed.call.writes[i] == v) return &placed.writes[i];
    for (std::size_t i = 0; i < placed.call.reads.size(); ++i)
      if (placed.call.reads[i] == v) return &placed.reads[i];
    return nullptr;
  }

  void check_writes() {
    for (std::size_t i = 0; i < call().writes.size(); ++i) {
      const int w = call().writes[i];
      const auto [first, end] = pieces_here(step(), w);
      // Each piece adds to a sum.
      const bool continues = step().piece > 0 && l_.value(w).over_tensor == Over::sum;
      for (std::int64_t piece = first; piece < end; ++piece) {
        const Place place = piece_of(at(step().placed->writes[i]), piece);
        if (!continues && !was_written_.insert({w, piece}).second)
          fail(" writes a second time: ", w);
        for_each_beside(place, [&](const Live& one) {
          if (one.v != w && is_needed(one) && !may_replace(w, piece, place, one))
            fail(" overwrites ", one.v);
        });
        if (!continues) add(w, piece, place);
      }
    }
  }
  /// Whether value `w`, written there, may replace this one. A chunk is replaced with all others of
  /// the value.
  bool may_replace(int w, std::int64_t piece, const Place& place, const Live& one) const {
    const int v = l_.value(one.v).is_in_whole ? l_.value(one.v).whole : one.v;
    if (one.last != static_cast<int>(now_) || one.piece != piece ||
        !contains(call().replaces, std::pair{w, v}))
      return false;
    const Place replaced = piece_of(*place_of(v), piece);
    return place.offset == replaced.offset && end_of(l_.graph, place) == end_of(l_.graph, replaced);
  }

  void check_scratch() {
    for (const Place& own : step().placed->scratch)
      for_each_beside(own, [&](const Live& one) {
        if (is_needed(one) || contains(call().writes, one.v))
          fail(" works where this lies: ", one.v);
      });
  }

  const Listing& l_;
  const Program& program_;
  const bool only_saves_;
  std::vector<Step> steps_;
  int workspaces_ = 0;
  std::size_t forward_ = 0, now_ = 0;
  std::set<int> written_;
  std::map<int, std::set<int>> chunks_of_;  // of a value, those that are written
  std::vector<std::vector<int>> last_;      // steps, by value and piece
  std::vector<std::vector<const Live*>> found_;
  std::map<int, int> workspace_of_;
  std::map<std::pair<Home, int>, BufferContent> buffers_;
  std::vector<std::vector<std::pair<std::pair<Home, int>, Content>>> expiring_;  // by step
  std::set<std::pair<int, std::int64_t>> was_written_;
};

}  // namespace

void check_places(const Listing& listing, const Program& program) {
  for (const bool only_saves : {false, true}) PlaceCheck(listing, program, only_saves).run();
}

void check_gradients(const Program& program) {
  std::vector<std::int64_t> written(program.weights.size(), 0);
  for (const std::vector<PlacedCall>& phase : program.backward)
    for (const PlacedCall& placed : phase)
      for (int w : placed.call.gradients)
        if (w >= 0 && w != Call::none)
          written[static_cast<std::size_t>(w)] +=
              placed.call.gradient_elements > 0
                  ? placed.call.gradient_elements
                  : program.weights[static_cast<std::size_t>(w)].elements;
  for (std::size_t w = 0; w < written.size(); ++w) {
    const Weight& weight = program.weights[w];
    if (written[w] != (weight.trained ? weight.elements : 0))
      throw std::logic_error(text("of the gradient of ", weight.name, " ", written[w],
                                  " elements are computed, of ", weight.elements));
  }
}

}  // namespace ostrakon::model::graph
