// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/graph/passes.hpp>

#include <algorithm>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <stdexcept>
#include <tuple>
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
  return place.offset + ((place.rows - 1) * place.stride + place.columns) *
                            graph.setting.element_bytes(place.element);
}

bool overlap(const Graph& graph, const Place& a, const Place& b) {
  if (a.columns == 0 || b.columns == 0) return false;
  if (a.stride != b.stride || a.element != b.element)
    return a.offset < end_of(graph, b) && b.offset < end_of(graph, a);
  // Rows of one array, or of arrays that are alike: rows of a and b that come close.
  const std::int64_t bytes = a.stride * graph.setting.element_bytes(a.element);
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
        run * place.run_stride * place.stride * graph.setting.element_bytes(place.element);
  }
  return runs;
}

bool overlap_in_runs(const Graph& graph, const Place& a, const Place& b) {
  const std::vector<Place> of_a = runs_of(graph, a), of_b = runs_of(graph, b);
  return any_of(of_a, [&](const Place& one) {
    return any_of(of_b, [&](const Place& other) { return overlap(graph, one, other); });
  });
}

/// A call for one of a rank's pieces, or for all of them.
struct Step {
  const PlacedCall* placed;
  std::int64_t piece;
  bool is_forward;
  int phase;                      // of forward, or of backward
  const std::vector<int>* reads;  // exchanges that the phase reads
  int workspace;                  // phases that keep their workspace have one
};

/// A value, or a piece of one, that was written, and where.
struct Content {
  int v;
  std::int64_t piece;
  Place place;
};

/// A buffer with what lies there, by where it begins. None of it overlaps.
struct Buffer {
  std::multimap<std::int64_t, Content> contents;
  std::int64_t longest = 0;
};

/// Home, whether of forward, and the number of the workspace or of the exchange.
using BufferName = std::tuple<Home, bool, int>;

/// Where something begins.
struct Spot {
  BufferName buffer;
  std::int64_t offset;
};

/// Runs the calls on buffers that hold names of values: what is written takes the place of all that
/// it overlaps, and what is read has to be there.
class PlaceCheck {
 public:
  PlaceCheck(const Listing& listing, const Program& program, bool only_saves)
      : l_(listing), program_(program), only_saves_(only_saves) {
    const Graph& g = l_.graph;
    std::int64_t input = 0;
    const std::int64_t unit = array_alignment * g.setting.number_bytes;
    for (int v : g.inputs) input = (input + unit - 1) / unit * unit + g.bytes_of(v);
    bytes_ = {{{Home::input, true, 0}, input},
              {{Home::output, true, 0}, program.output_bytes},
              {{Home::gradient, true, 0}, std::max(program.output_bytes, input)},
              {{Home::saved, true, 0}, program.saved_bytes},
              {{Home::deferred, true, 0}, program.deferred_bytes}};
    add_steps(program.forward, program.forward_phases, true);
    forward_ = steps_.size();
    if (!only_saves) add_steps(program.backward, program.backward_phases, false);
    const int deferred = static_cast<int>(program.backward.size()) - program.deferred_phases;
    for (at_once_ = forward_; at_once_ < steps_.size() && steps_[at_once_].phase < deferred;)
      ++at_once_;
    for (const Step& step : steps_)
      for (int v : step.placed->call.writes) {
        written_.insert(v);
        if (l_.value(v).whole >= 0) chunks_of_[l_.value(v).whole].insert(v);
      }
  }

  void run() {
    for (now_ = 0; now_ < steps_.size(); ++now_) {
      if (now_ == forward_) end_forward();
      if (now_ == at_once_) require_gradients();
      run_step();
    }
    if (now_ == forward_) end_forward();
    if (now_ == at_once_) require_gradients();
  }

 private:
  /// Neighbouring calls of a loop run for the first piece, then for the second, and so on.
  void add_steps(const std::vector<std::vector<PlacedCall>>& phases, const plan::Phases& list,
                 bool is_forward) {
    for (std::size_t p = 0; p < phases.size(); ++p) {
      const int number = static_cast<int>(p);
      if (p == 0 || !list[p - 1].keeps_workspace) ++workspaces_;
      bytes_[{Home::workspace, is_forward, workspaces_}] = plan::workspace_bytes(list, number);
      if (list[p].then) {
        bytes_[{Home::send_buffer, is_forward, number}] = list[p].then->bytes_in();
        bytes_[{Home::recv_buffer, is_forward, number}] = list[p].then->bytes_out();
      }
      const std::vector<PlacedCall>& calls = phases[p];
      for (std::size_t i = 0, end = 0; i < calls.size(); i = end) {
        for (end = i + 1; end < calls.size() && calls[end].loop == calls[i].loop;) ++end;
        const std::int64_t times = calls[i].call.is_by_piece ? program_.setting.own_pieces() : 1;
        for (std::int64_t piece = 0; piece < times; ++piece)
          for (std::size_t c = i; c < end; ++c)
            if (calls[c].saves || !only_saves_)
              steps_.push_back({&calls[c], piece, is_forward, number, &list[p].reads, workspaces_});
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
  /// Tells which pieces of a value this step takes or makes.
  std::pair<std::int64_t, std::int64_t> pieces_here(int v) const {
    if (l_.value(v).pieces == 1) return {0, 1};
    if (!call().is_by_piece) return {0, l_.value(v).pieces};
    return {step().piece, step().piece + 1};
  }

  /// Where it lies in this walk.
  Place at(Place place) const {
    if (!only_saves_ || place.spare < 0) return place;
    place.home = Home::workspace;
    place.offset = place.spare;
    return place;
  }
  BufferName buffer_of(const Place& place, bool is_written) const {
    const bool is_forward = step().is_forward;
    switch (place.home) {
      case Home::workspace:
        return {Home::workspace, is_forward, step().workspace};
      case Home::send_buffer:
        return {Home::send_buffer, is_forward, step().phase};
      case Home::recv_buffer:
        return {Home::recv_buffer, is_forward, is_written ? step().phase : step().reads->at(0)};
      case Home::second_recv_buffer:
        return {Home::recv_buffer, is_forward, step().reads->at(1)};
      default:
        return {place.home, true, 0};
    }
  }
  std::int64_t hull_end(const Place& place) const {
    std::int64_t end = place.offset;
    for (const Place& run : runs_of(l_.graph, place)) end = std::max(end, end_of(l_.graph, run));
    return end;
  }

  void run_step() {
    check_reads(false);
    for (const Place& own : step().placed->scratch) take(own, -1);
    check_reads(false);  // and no scratch lies there
    for (std::size_t i = 0; i < call().writes.size(); ++i)
      write(call().writes[i], at(step().placed->writes[i]));
    check_reads(true);
    for (const Place& own : step().placed->scratch) take(own, -1);  // nor where results are
  }

  /// Takes the room from all but value `own`.
  void take(const Place& place, int own) {
    const BufferName name = buffer_of(place, true);
    if (place.columns == 0) return;
    const std::int64_t end = hull_end(place);
    if (end > bytes_.at(name))
      throw std::logic_error(call().name + " reaches beyond the end of a buffer");
    auto& [contents, longest] = buffers_[name];
    for (auto one = contents.lower_bound(place.offset - longest);
         one != contents.end() && one->first < end;) {
      const Content& there = one->second;
      if (there.v == own || !overlap_in_runs(l_.graph, place, there.place)) {
        ++one;
        continue;
      }
      found_.erase({there.v, there.piece});
      taken_by_[there.v] = call().name;
      one = contents.erase(one);
    }
  }

  void write(int w, const Place& place) {
    const auto [first, end] = pieces_here(w);
    // Each piece adds to a sum.
    const bool continues =
        step().piece > 0 && l_.value(w).tensor_distribution == Distribution::partial;
    if (continues) require(w, 0);
    for (std::int64_t piece = first; piece < end; ++piece) {
      const Place own = piece_of(place, piece);
      if (!continues && !was_written_.insert({w, piece}).second)
        throw std::logic_error(call().name + " writes a second time: " + l_.value(w).name);
      take(own, w);
      if (!continues) put(w, piece, own);
    }
  }
  void put(int v, std::int64_t piece, const Place& place) {
    const BufferName name = buffer_of(place, true);
    Buffer& buffer = buffers_[name];
    buffer.longest = std::max(buffer.longest, hull_end(place) - place.offset);
    buffer.contents.emplace(place.offset, Content{v, piece, place});
    found_[{v, piece}] = {name, place.offset};
  }

  /// Throws unless it lies in a buffer; returns where.
  const Spot& require(int v, std::int64_t piece) const {
    const auto found = found_.find({v, piece});
    if (found != found_.end()) return found->second;
    const auto taken = taken_by_.find(v);
    if (taken == taken_by_.end()) fail(v);
    throw std::logic_error(taken->second + " overwrites " + l_.value(v).name);
  }
  [[noreturn]] void fail(int v) const {
    throw std::logic_error(call().name +
                           " reads before it is written, or after it is lost: " + l_.value(v).name);
  }
  /// `is_behind`: what this call may replace need not be there any more.
  void check_reads(bool is_behind) {
    const auto check = [&](int of, const Place& place) {
      const BufferName name = buffer_of(at(place), false);
      if (place.columns > 0 && hull_end(piece_of(at(place), place.pieces - 1)) > bytes_.at(name))
        throw std::logic_error(call().name + " reaches beyond the end of a buffer");
      for (int v : sources_of(of)) {
        if (contains(l_.graph.inputs, v) || (is_behind && is_replaced(of))) continue;
        const auto [first, end] = pieces_here(v);
        for (std::int64_t piece = first; piece < end; ++piece) {
          const auto& [buffer, offset] = require(v, piece);
          const bool is_elsewhere = v == of && offset != piece_of(at(place), piece).offset;
          if (buffer != name || is_elsewhere) fail(v);
        }
      }
    };
    const PlacedCall& placed = *step().placed;
    for (std::size_t i = 0; i < call().reads.size(); ++i) check(call().reads[i], placed.reads[i]);
    for (std::size_t i = 0; i < call().weights.size(); ++i)
      if (is_value(call().weights[i])) check(value_of(call().weights[i]), placed.weights[i]);
    if (is_behind) return;
    for (auto [to, from] : call().replaces) {
      const bool adds = call().adds && !call().adds_from_anywhere && from == call().reads.back();
      if (!is_where(to, from) && (call().in_place || adds))
        throw std::logic_error(
            call().name +
            " works in place, but elsewhere than where this lies: " + l_.value(from).name);
    }
  }
  bool is_replaced(int v) const {
    return any_of(call().replaces,
                  [&](const auto& one) { return one.second == v && is_where(one.first, v); });
  }
  /// Whether this call has the two at one place.
  bool is_where(int to, int from) const {
    const Place a = at(place_of(*step().placed, to)), b = at(place_of(*step().placed, from));
    return a.home == b.home && a.offset == b.offset && end_of(l_.graph, a) == end_of(l_.graph, b);
  }
  static const Place& place_of(const PlacedCall& placed, int v) {
    for (std::size_t i = 0; i < placed.call.writes.size(); ++i)
      if (placed.call.writes[i] == v) return placed.writes[i];
    const auto read = std::find(placed.call.reads.begin(), placed.call.reads.end(), v);
    return placed.reads.at(static_cast<std::size_t>(read - placed.call.reads.begin()));
  }

  void require_result(int of) const {
    for (int v : sources_of(of))
      for (std::int64_t piece = 0; piece < l_.value(v).pieces; ++piece) {
        if (was_written_.count({v, piece}) == 0)
          throw std::logic_error("no call writes " + l_.value(v).name);
        require(v, piece);
      }
  }
  void require_gradients() const {
    if (only_saves_) return;
    for (int v : l_.input_gradients) require_result(v);
  }
  /// What comes of forward is there; then so are the gradients of outputs.
  void end_forward() {
    const std::set<int> outputs(l_.graph.outputs.begin(), l_.graph.outputs.end());
    for (int v : only_saves_ ? program_.kept : outputs) require_result(v);
    if (l_.graph.setting.is_loss) {  // evaluation has the one, training the other
      buffers_.clear();
      found_.clear();
      was_written_.clear();
    }
    for (int v : l_.output_gradients) {
      const auto reader = std::find_if(steps_.begin(), steps_.end(), [&](const Step& step) {
        return contains(step.placed->call.reads, v);
      });
      if (reader != steps_.end()) put(v, 0, place_of(*reader->placed, v));
    }
  }

  const Listing& l_;
  const Program& program_;
  const bool only_saves_;
  std::vector<Step> steps_;
  int workspaces_ = 0;
  std::size_t forward_ = 0, at_once_ = 0, now_ = 0;  // steps up to their ends
  std::set<int> written_;
  std::map<int, std::set<int>> chunks_of_;  // of a value, those that are written
  std::map<BufferName, std::int64_t> bytes_;
  std::map<BufferName, Buffer> buffers_;
  std::map<std::pair<int, std::int64_t>, Spot> found_;  // values and pieces that are there
  std::map<int, std::string> taken_by_;                 // calls that have overwritten values
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
        if (Call::is_weight(w))
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
