// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ostrakon/math/piece_tree.hpp>
#include <ostrakon/model/graph/arrays.hpp>
#include <ostrakon/model/graph/division.hpp>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph/passes.hpp>
#include <ostrakon/plan/memory/placement.hpp>
#include <stdexcept>
#include <utility>

namespace ostrakon::model::graph {
namespace {

/// The phase of each call, of all phases one after the other.
struct CallPhases {
  CallPhases(const Numbered& calls, const std::set<int>& begins) {
    for (int i = 0; i < calls.count(); ++i) {
      if (i == 0 || calls.section(i) != calls.section(i - 1) || begins.count(i) > 0) {
        section.push_back(calls.section(i));
        first_calls.push_back(i);
      }
      of.push_back(static_cast<int>(section.size()) - 1);
    }
  }
  std::vector<int> of;       // calls
  std::vector<int> section;  // of each phase
  std::vector<int> first_calls;
  int count() const { return static_cast<int>(section.size()); }
  int count(int wanted) const {
    return static_cast<int>(std::count(section.begin(), section.end(), wanted));
  }
};

bool crosses(const ValueArray& array, const CallPhases& phases) {
  return array.home == Home::workspace && array.last >= 0 &&
         at(phases.of, array.first) != at(phases.of, array.last);
}

/// Moves arrays that later phases read to where a saved array is dead once the call that writes
/// them has read it for the last time: what that call writes there is copied behind it, and read
/// there from then on.
class MovesToDead {
 public:
  MovesToDead(Listing& listing, std::set<int>& begins) : l_(listing), begins_(begins) {}

  void run() {
    const Numbered calls(l_);
    const CallPhases phases(calls, begins_);
    arrays_ = find_arrays(l_, calls);
    std::map<int, std::vector<int>> starting;  // arrays, by the call that writes them
    for (std::size_t a = 0; a < arrays_.all.size(); ++a) {
      const ValueArray& array = arrays_.all[a];
      if (!crosses(array, phases) || calls.section(array.first) != 1) continue;
      const int dead = arrays_.find_dead(array);
      if (dead >= 0 && at(arrays_.all, dead).last == array.first)
        starting[array.first].push_back(static_cast<int>(a));
    }
    std::set<int> shifted;
    int number = 0, more = 0;
    for (Calls* list : {&l_.forward, &l_.backward, &l_.deferred})
      for (Call& call : std::exchange(*list, {})) {
        if (begins_.count(number) > 0) shifted.insert(number + more);
        read_moved(call);
        const std::vector<int> writes = call.writes;
        list->push_back(std::move(call));
        for (int array : starting[number++]) {
          list->push_back(move(writes, array));
          ++more;
        }
      }
    begins_ = shifted;
  }

 private:
  void read_moved(Call& call) {
    const auto moved = [&](int v) { return found_or(moved_, v, v); };
    call.read_from(moved);
    for (auto& [to, from] : call.replaces) from = moved(from);
    for (int v : call.writes)
      l_.value(v).group = found_or(groups_, l_.value(v).group, l_.value(v).group);
  }

  Call move(const std::vector<int>& writes, int array) {
    Call move = l_.graph.copy("move", {}, {});
    for (int v : writes) {
      if (at(arrays_.of, v) != array) continue;
      const int to = moved_[v] = l_.graph.add_like(v, groups_);
      move.reads.push_back(v);
      move.writes.push_back(to);
      move.name += " " + l_.value(v).name;
    }
    move.is_by_piece = is_by_piece(l_.graph, move);
    return move;
  }

  Listing& l_;
  std::set<int>& begins_;
  ValueArrays arrays_;
  std::map<int, int> moved_, groups_;  // to where values, and those of one array, are moved
};

class Placement {
 public:
  Placement(Listing listing, const std::set<int>& begins)
      : l_(std::move(listing)),
        calls_(l_),
        call_phases_(calls_, begins),
        arrays_(find_arrays(l_, calls_)),
        phases_(call_phases_.first_calls.size()),
        placed_(static_cast<std::size_t>(calls_.count())) {}

  Program run() {
    program_.setting = l_.graph.setting;
    program_.weights = l_.graph.weights;
    program_.deferred_phases = call_phases_.count(2);
    find_loops();
    find_what_saves();
    describe_phases();
    place_borders();
    place_saved();
    place_crossing();
    // A unit that is given no such buffer computes gradients at once.
    if (program_.deferred_phases > 0)
      program_.deferred_bytes = std::max(program_.deferred_bytes, aligned(1));
    place_workspaces();
    for (int i = 0; i < calls_.count(); ++i) place_call(i);
    fill_program();
    check_places(l_, program_);
    if (!l_.graph.setting.decodes) check_gradients(program_);
    return std::move(program_);
  }

 private:
  int phase_of(int call) const { return at(call_phases_.of, call); }
  /// Whether a rank has several pieces, and calls use the array for one piece after the other: then
  /// it has room for one.
  bool is_of_one_piece(const ValueArray& array) const {
    return array.pieces > 1 && array.home == Home::workspace && array.last >= 0 &&
           calls_[array.first].is_by_piece &&
           first_of_loop(array.first) == first_of_loop(array.last);
  }
  /// The first and the last of the calls by piece that run with this one.
  int first_of_loop(int call) const { return at(loop_of_, call); }
  int last_of_loop(int call) const {
    const int first = first_of_loop(call);
    while (call + 1 < calls_.count() && first_of_loop(call + 1) == first) ++call;
    return call;
  }
  void find_loops() {
    for (int i = 0; i < calls_.count(); ++i) {
      const bool continues = program_.setting.own_pieces() > 1 && i > 0 && calls_[i].is_by_piece &&
                             calls_[i - 1].is_by_piece && phase_of(i) == phase_of(i - 1);
      loop_of_.push_back(continues ? loop_of_.back() : i);
    }
  }
  std::int64_t aligned(std::int64_t bytes) const {
    const std::int64_t unit = array_alignment * l_.graph.setting.number_bytes;
    return (bytes + unit - 1) / unit * unit;
  }
  std::int64_t append(std::int64_t& end, std::int64_t bytes) const {
    const std::int64_t offset = aligned(end);
    end = offset + bytes;
    return offset;
  }

  /// Finds the calls of forward without which something that is kept would not be there.
  void find_what_saves() {
    const std::vector<bool> saves = graph::find_what_saves(l_);
    for (std::size_t i = 0; i < saves.size(); ++i) placed_[i].saves = saves[i];
  }

  void describe_phases() {
    const int forward = call_phases_.count(0);
    for (int p = 0; p < forward; ++p) at(phases_, p).recomputes = false;
    program_.backward_reads_weights = program_.backward_reads_tied = false;
    for (int i = 0; i < calls_.count(); ++i) {
      const Call& call = calls_[i];
      plan::Phase& own = at(phases_, phase_of(i));
      own.flops += call.flops;
      own.work += call.work;
      if (calls_.section(i) == 0) describe_forward(i, own);
      if (calls_.section(i) == 1)
        for (int w : call.weights)
          if (Call::is_weight(w))
            (l_.graph.weight(w).tied ? program_.backward_reads_tied
                                     : program_.backward_reads_weights) = true;
      for (int v : call.reads)
        if (const int phase = found_or(exchanged_, v, -1);
            phase >= 0 && !contains(own.reads, phase))
          own.reads.push_back(phase);
      if (!call.exchange) continue;
      own.then = call.exchange;
      // By its number in the list of forward, or of backward.
      for (int v : call.writes)
        exchanged_[v] = phase_of(i) - (calls_.section(i) == 0 ? 0 : forward);
    }
  }

  void describe_forward(int i, plan::Phase& own) {
    const Call& call = calls_[i];
    own.writes_output |= any_of(call.writes, [&](int v) {
      return contains(l_.graph.outputs, v) || contains(l_.graph.outputs, l_.value(v).whole);
    });
    if (!at(placed_, i).saves) return;
    own.recomputes = true;
    own.recompute_flops += call.flops;
    own.recompute_work += call.work;
  }

  void fill_program() {
    for (int p = 0; p < call_phases_.count(); ++p) {
      const bool is_forward = at(call_phases_.section, p) == 0;
      (is_forward ? program_.forward_phases : program_.backward_phases).push_back(at(phases_, p));
      (is_forward ? program_.forward : program_.backward).emplace_back();
    }
    const int forward = call_phases_.count(0);
    for (int i = 0; i < calls_.count(); ++i) {
      const int p = phase_of(i);
      (p < forward ? at(program_.forward, p) : at(program_.backward, p - forward))
          .push_back(std::move(at(placed_, i)));
    }
  }

  /// Units hand values over one after the other, and their gradients back.
  void place_borders() {
    for (int v : l_.graph.outputs)
      set_offset(v, append(program_.output_bytes, l_.graph.bytes_of(v)));
    for (const std::vector<int>* values :
         {&l_.graph.inputs, &l_.output_gradients, &l_.input_gradients}) {
      std::int64_t end = 0;
      for (int v : *values) set_offset(v, append(end, l_.graph.bytes_of(v)));
    }
  }
  void set_offset(int v, std::int64_t offset) {
    if (const int of = at(arrays_.of, v); of >= 0) at(arrays_.all, of).offset = offset;
  }

  void place_saved() {
    for (ValueArray& array : arrays_.all)
      if (array.home == Home::saved) array.offset = append(program_.saved_bytes, array.bytes);
    program_.kept = l_.kept;
    program_.kept_bytes = program_.saved_bytes;
  }

  /// Finds a home for arrays that later phases read.
  void place_crossing() {
    std::vector<ValueArray*> in_order;
    for (ValueArray& array : arrays_.all) {
      if (array.home == Home::send_buffer && phase_of(array.first) != phase_of(array.last))
        array.home = Home::workspace;
      if (crosses(array, call_phases_)) in_order.push_back(&array);
    }
    std::sort(in_order.begin(), in_order.end(),
              [](const ValueArray* a, const ValueArray* b) { return a->first < b->first; });
    for (ValueArray* array : in_order) {
      const bool is_left = calls_.section(array->first) != calls_.section(array->last);
      if (calls_.section(array->first) == 0 && is_left)
        throw std::logic_error("what " + calls_[array->first].name + " writes, and " +
                               calls_[array->last].name + " reads in backward, is not saved");
      const int dead = calls_.section(array->first) == 0 ? -1 : arrays_.find_dead(*array);
      if (dead >= 0 && at(arrays_.all, dead).last < array->first) {
        ValueArray& saved = at(arrays_.all, dead);
        array->home = Home::saved;
        array->offset = saved.offset;
        array->is_guest = true;
        saved.last = array->last;
        saved.ends_by_piece = array->ends_by_piece;
      } else if (is_left) {
        array->home = Home::deferred;
        array->offset = append(program_.deferred_bytes, array->bytes);
      } else if (array->is_vector || l_.graph.setting.is_loss) {
        // Phases would keep their workspace for little.
        array->home = Home::saved;
        array->offset = append(program_.saved_bytes, array->bytes);
        array->is_guest = true;
      } else {
        for (int p = phase_of(array->first); p < phase_of(array->last); ++p)
          at(phases_, p).keeps_workspace = true;
      }
    }
  }

  /// What lies in a workspace that phases share, the first of them `phase`.
  struct Workspace {
    int phase, first_call;
    int calls = 0;
    plan::Rectangles rectangles = {};
    std::vector<std::pair<std::int64_t*, std::int64_t>> arrays = {};  // offsets, and bytes
  };

  void place_workspaces() {
    std::vector<Workspace> workspaces;
    std::vector<std::size_t> workspace_of;  // phases
    for (int p = 0; p < call_phases_.count(); ++p) {
      if (p == 0 || !at(phases_, p - 1).keeps_workspace)
        workspaces.push_back({p, at(call_phases_.first_calls, p)});
      workspace_of.push_back(workspaces.size() - 1);
    }
    const auto put = [&](int first, int last, std::int64_t& offset, std::int64_t bytes) {
      if (bytes == 0) return;
      Workspace& own = workspaces[at(workspace_of, phase_of(first))];
      own.rectangles.push_back({first - own.first_call, last - own.first_call, aligned(bytes)});
      own.calls = std::max(own.calls, own.rectangles.back().last + 1);
      own.arrays.emplace_back(&offset, bytes);
    };
    put_arrays(put);
    for (int i = 0; i < calls_.count(); ++i) {
      PlacedCall& placed = at(placed_, i);
      for (std::int64_t bytes : calls_[i].scratch)
        placed.scratch.push_back({Home::workspace, 0, 1, bytes, bytes, Element::byte});
      for (Place& scratch : placed.scratch) put(i, i, scratch.offset, scratch.columns);
      placed.sum = sum_of(i);
      placed.loop = first_of_loop(i);
      placed.tree = {Home::workspace, 0, 1, tree_bytes(i), tree_bytes(i), Element::byte};
      put(first_of_loop(i), last_of_loop(i), placed.tree.offset, placed.tree.columns);
    }
    for (Workspace& own : workspaces) {
      plan::place(own.rectangles, own.calls, 0);
      std::int64_t& bytes = at(phases_, own.phase).workspace_bytes;
      for (std::size_t r = 0; r < own.rectangles.size(); ++r) {
        *own.arrays[r].first = own.rectangles[r].offset;
        bytes = std::max(bytes, own.rectangles[r].offset + own.arrays[r].second);
      }
    }
  }

  template <class Put>
  void put_arrays(const Put& put) {
    for (ValueArray& array : arrays_.all) {
      if (array.home != Home::workspace || array.last < 0) continue;
      if (is_of_one_piece(array))
        put(array.first, array.last, array.offset, array.bytes / array.pieces);
      else
        put(first_of_loop(array.first), last_of_loop(array.last), array.offset, array.bytes);
    }
    for (int i = 0; i < calls_.begins[1]; ++i)
      if (!at(placed_, i).saves && calls_[i].exchange)
        for (int v : calls_[i].reads) {
          ValueArray& array = at(arrays_.all, at(arrays_.of, v));
          if (array.home == Home::send_buffer && at(placed_, array.first).saves)
            put(first_of_loop(array.first), last_of_loop(array.last), array.spare, array.bytes);
        }
  }

  /// The sum over pieces that a call writes; -1: none.
  int sum_of(int call) const {
    if (!calls_[call].is_by_piece) return -1;
    for (std::size_t i = 0; i < calls_[call].writes.size(); ++i)
      if (l_.value(calls_[call].writes[i]).tensor_distribution == Distribution::partial)
        return static_cast<int>(i);
    return -1;
  }
  /// Bytes for sums of some pieces that wait for others.
  std::int64_t tree_bytes(int call) const {
    const int sum = sum_of(call);
    if (sum < 0) return 0;
    return (math::tree_slots(program_.setting.own_pieces()) - 1) *
           l_.graph.bytes_of(at(calls_[call].writes, sum));
  }

  Place place_of(int call, int v, bool is_written) {
    const Value& value = l_.value(v);
    const ValueArray& array = arrays_.array_of(v);
    const std::int64_t element = l_.graph.setting.element_bytes(value.element);
    Place place{array.home,    array.offset,  value.rows,     value.columns,
                value.columns, value.element, value.is_cached};
    if (value.group >= 0) {
      place.stride = l_.graph.columns_of_group(value.group);
      place.offset += value.first_column * element;
    }
    place.pieces = value.pieces;
    place.is_per_run = value.is_per_run;
    place.per_row = value.per_row;
    place.spare = array.spare;
    if (value.has_interleaved_pieces) {
      place.piece_stride = place.stride * element;
      place.stride *= value.pieces;
    } else if (value.pieces > 1 && !is_of_one_piece(array)) {
      place.piece_stride = value.rows * place.stride * element;
    }
    const Setting& s = l_.graph.setting;
    if (calls_[call].runs > 1 && value.rows > 1) {
      place.runs = calls_[call].runs;
      place.run_stride = value.rows / place.runs;
    }
    if (value.is_in_whole) {
      const std::int64_t ranks =
          value.tensor_distribution == Distribution::rows ? 1 : s.tensor_ranks;
      const std::int64_t own = value.rows / ranks;  // rows of each rank
      place.offset += value.chunk * own * place.stride * element;
      place.runs = ranks;
      place.run_stride = ranks > 1 ? own * s.chunks : 0;
      if (!value.has_interleaved_pieces) place.piece_stride *= s.chunks;
    }
    if (array.home == Home::recv_buffer && !is_written) {
      const std::vector<int>& reads = at(phases_, phase_of(call)).reads;
      if (reads.size() > 1 && reads[1] == exchanged_.at(v)) place.home = Home::second_recv_buffer;
    }
    return place;
  }
  /// Values that `call`, or the part of it that `placed` is, works with.
  void place_values(int call, PlacedCall& placed) {
    for (int v : placed.call.reads) placed.reads.push_back(place_of(call, v, false));
    for (int v : placed.call.writes) placed.writes.push_back(place_of(call, v, true));
    for (int w : placed.call.weights)
      placed.weights.push_back(is_value(w) ? place_of(call, value_of(w), false) : Place());
    for (int g : placed.call.gradients)
      placed.gradients.push_back(is_value(g) ? place_of(call, value_of(g), true) : Place());
  }
  void place_call(int i) {
    PlacedCall& placed = at(placed_, i);
    placed.call = calls_[i];
    place_values(i, placed);
    auto scratch = placed.scratch.begin();
    for (const Call& part : placed.call.parts) {
      placed.parts.emplace_back();
      placed.parts.back().call = part;
      place_values(i, placed.parts.back());
      for (std::size_t s = 0; s < part.scratch.size(); ++s)
        placed.parts.back().scratch.push_back(*scratch++);
    }
    // Sums of some pieces wait as long as calls run for one piece after the other.
    for (int other = first_of_loop(i); other <= last_of_loop(i); ++other)
      if (at(placed_, other).tree.columns > 0) placed.scratch.push_back(at(placed_, other).tree);
  }

  const Listing l_;
  const Numbered calls_;
  const CallPhases call_phases_;
  ValueArrays arrays_;
  std::vector<plan::Phase> phases_;  // those of forward, then those of backward
  std::vector<PlacedCall> placed_;   // by call
  std::map<int, int> exchanged_;     // values, by the phase that hands them over
  std::vector<int> loop_of_;         // of each call, the first one of its loop
  Program program_;
};

}  // namespace

Program place(Listing listing, const std::set<int>& phases) {
  std::set<int> begins = phases;
  MovesToDead(listing, begins).run();
  return Placement(std::move(listing), begins).run();
}

}  // namespace ostrakon::model::graph
