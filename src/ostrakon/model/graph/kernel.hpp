// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostrakon/math/experts/routing.hpp>
#include <ostrakon/math/half.hpp>
#include <ostrakon/math/view.hpp>
#include <ostrakon/model/graph/program.hpp>
#include <ostrakon/model/leaf_shape.hpp>
#include <ostrakon/model/unit.hpp>
#include <stdexcept>
#include <utility>

namespace ostrakon::model::graph {

/// The buffers of a unit's call, as bytes, by Home; and its weights and their gradients.
struct Buffers {
  std::array<View<std::byte*>, 9> homes;
  View<std::byte*> trained, frozen, gradients;
  View<std::byte*> tied_trained, tied_frozen, tied_gradients;
  bool adds_gradients = false;  ///< gradients are added to what is there: see Unit::backward
  View<const std::int32_t*> tokens, targets, document_begins;
  const DecodedRuns* decoded = nullptr;  ///< UnitBuffers::decoded
  View<const std::byte*> batch;          ///< UnitBuffers::batch
  std::int64_t context_rank = 0;         ///< UnitBuffers::context_rank
  std::int64_t tensor_rank = 0;          ///< UnitBuffers::tensor_rank
  View<std::int64_t*> counts;            ///< UnitBuffers::counts
  double loss_scale = 1.0;
  /// What kernels of the phase have copied to the host: offsets, by the value that has them.
  mutable std::map<int, math::OffsetsOnHost> on_host = {};
  KernelWatch* watch = nullptr;  ///< UnitBuffers::watch

  View<std::byte*> in(Home home) const { return homes[static_cast<std::size_t>(home)]; }
};

/// Says which part of a call is computed.
struct Turn {
  std::int64_t piece = 0;  ///< of those that the rank has
  std::int64_t run = 0;    ///< of rows
  /// Where a call by piece writes its sum, and whether it adds to what is there.
  View<std::byte*> sum = {};
  bool adds = false;
};

/// What a kernel works with: the values, weights and scratch arrays of its call, by their index
/// there, as views. Where sequences are decoded, matrices that are read and written have the rows
/// that are computed alone, unless they are cached; those of a call by piece are one piece's.
class Arguments {
 public:
  Arguments(const PlacedCall& call, const Program& program, const Buffers& buffers, Turn turn)
      : call_(call), program_(program), buffers_(buffers), turn_(turn) {}

  std::int64_t context_rank() const { return buffers_.context_rank; }
  /// The piece that is computed, of those of all tensor ranks: of a call that takes all of this
  /// rank's, the first one.
  std::int64_t piece() const {
    return buffers_.tensor_rank * program_.setting.own_pieces() + turn_.piece;
  }
  bool adds() const { return call_.call.adds || turn_.adds; }
  /// Whether gradients of weights are added to what is there; those that are values are not.
  bool adds_gradients() const {
    const std::vector<int>& all = call_.call.gradients;
    return program_.can_add_gradients && call_.call.can_add_gradients && buffers_.adds_gradients &&
           std::any_of(all.begin(), all.end(), Call::is_weight);
  }
  const Buffers& buffers() const { return buffers_; }

  /// What call `number` of a FusedKernel works with; none, if it is not computed here.
  std::optional<Arguments> part(int number) const {
    for (const PlacedCall& one : call_.parts)
      if (one.call.part == number) return Arguments(one, program_, buffers_, turn_);
    return {};
  }

  /// Computes the calls of a FusedKernel that are here one after the other.
  inline void run_parts(const Exec& exec) const;

  int reads() const { return static_cast<int>(call_.reads.size()); }
  int writes() const { return static_cast<int>(call_.writes.size()); }
  int weights() const { return static_cast<int>(call_.call.weights.size()); }
  int gradients() const { return static_cast<int>(call_.call.gradients.size()); }
  std::int64_t leaves(int i) const { return at(call_.call.leaves, i); }
  const Place& place_read(int i) const { return at(call_.reads, i); }
  const Place& place_written(int i) const { return at(call_.writes, i); }

  // Values [first, first + count), neighbouring columns of one array, as one matrix; none, if the
  // call has fewer.
  template <class A>
  View<const A**> read(int first, int count = 1) const {
    if (first + count > reads()) return {};
    return in_range(read_whole<A>(first, count), place_read(first));
  }
  template <class A>
  View<A**> written(int first, int count = 1) const {
    if (first + count > writes()) return {};
    const Place& place = place_written(first);
    const bool is_sum = turn_.sum && first == call_.sum;
    return in_range(is_sum ? in_run(view_as<A>(turn_.sum).matrix(place.rows, place.columns), place)
                           : matrix<A>(joined<A>(call_.writes, first, count)),
                    place);
  }
  /// What is read, with all of its rows, whichever of them are computed.
  template <class A>
  View<const A**> read_whole(int first, int count = 1) const {
    return matrix<A>(joined<A>(call_.reads, first, count));
  }
  /// Offsets that lie in the value that is read, for host code: copied once in a phase.
  HostView<const std::int64_t*> on_host(const Exec& exec, int i,
                                        View<const std::int64_t*> offsets) const {
    return buffers_.on_host.try_emplace(at(call_.call.reads, i), exec, offsets)
        .first->second.view();
  }

  /// A weight; none, if the call has fewer.
  template <class A>
  View<const A*> weight(int i) const {
    if (i >= weights()) return {};
    const int w = at(call_.call.weights, i);
    if (w < 0) return matrix<A>(at(call_.weights, i)).flat();
    return weight_pieces<A>(i).row_range(turn_.piece, turn_.piece + 1).flat();
  }
  /// The gradient of one; none, if it is not trained.
  template <class A>
  View<A*> gradient(int i) const {
    if (i >= gradients()) return {};
    const int w = at(call_.call.gradients, i);
    if (w == Call::none) return {};
    if (w < 0) {
      const Place& place = at(call_.gradients, i);
      return (is_sum(place) ? view_as<A>(turn_.sum).matrix(1, place.columns) : matrix<A>(place))
          .flat();
    }
    return gradient_pieces<A>(i).row_range(turn_.piece, turn_.piece + 1).flat();
  }
  /// All pieces of a weight that this rank has, and of its gradient: (pieces, elements of one).
  template <class A>
  View<A**> weight_pieces(int i) const {
    const Weight& weight = at(program_.weights, at(call_.call.weights, i));
    const View<std::byte*> own = weight.trained ? buffers_.trained : buffers_.frozen;
    const View<std::byte*> tied = weight.trained ? buffers_.tied_trained : buffers_.tied_frozen;
    return pieces_of<A>(weight, weight.tied ? tied : own);
  }
  template <class A>
  View<A**> gradient_pieces(int i) const {
    const Weight& weight = at(program_.weights, at(call_.call.gradients, i));
    return pieces_of<A>(weight, weight.tied ? buffers_.tied_gradients : buffers_.gradients);
  }
  /// All gradients of the piece, `elements`, of the unit that this one is tied to.
  template <class A>
  View<A*> all_tied_gradients(std::int64_t elements) const {
    return view_as<A>(buffers_.tied_gradients)
        .range(turn_.piece * elements, (turn_.piece + 1) * elements);
  }
  template <class A>
  View<A*> scratch(int i) const {
    const Place& place = at(call_.scratch, i);
    if (place.columns == 0) return {};
    return view_as<A>(
        buffers_.in(Home::workspace).range(place.offset, place.offset + place.columns));
  }
  /// Bytes of a value; none where its buffer does not exist.
  View<std::byte*> bytes(const Place& place) const {
    return buffers_.in(place.home).range(place.offset, place.offset + place.columns);
  }

 private:
  template <class Item>
  static const Item& at(const std::vector<Item>& items, int i) {
    return items[static_cast<std::size_t>(i)];
  }
  bool is_sum(const Place& place) const {
    if (!turn_.sum) return false;
    const Place& sum = at(call_.writes, call_.sum);
    return place.home == sum.home && place.offset == sum.offset;
  }
  template <class A>
  View<A**> matrix(Place place) const {
    View<std::byte*> home = buffers_.in(place.home);
    if (!home && place.spare >= 0) {
      home = buffers_.in(Home::workspace);
      place.offset = place.spare;
    }
    if (!home) return View<A*>().matrix(place.rows, place.columns);
    const auto size = static_cast<std::int64_t>(sizeof(A));
    // Runs of a chunk lie apart.
    const std::int64_t rows = place.run_stride == 0
                                  ? place.rows
                                  : (place.runs - 1) * place.run_stride + place.rows / place.runs;
    const std::int64_t begin = place.offset + turn_.piece * place.piece_stride;
    const std::int64_t elements = (rows - 1) * place.stride + place.columns;
    const View<A*> all = view_as<A>(home.range(begin, begin + elements * size));
    return in_run(View<A**>(all.data(), rows, place.columns, place.stride, all.origin()), place);
  }
  template <class A>
  View<A**> in_run(View<A**> all, const Place& place) const {
    if (call_.call.runs == 1 || place.run_stride == 0) return all;
    const std::int64_t first = turn_.run * place.run_stride;
    return all.row_range(first, first + place.rows / place.runs);
  }
  template <class A>
  View<A**> in_range(View<A**> all, const Place& place) const {
    if (buffers_.decoded == nullptr || !all || place.is_cached) return all;
    std::int64_t rows = static_cast<std::int64_t>(buffers_.decoded->size());
    if (!place.is_per_run) {
      rows = 0;
      for (const DecodedRun& run : *buffers_.decoded) rows += run.count;
      rows *= std::max(place.per_row, std::int64_t{1});
    }
    return all.row_range(0, std::min(place.rows, rows));
  }
  template <class A>
  View<A**> pieces_of(const Weight& weight, View<std::byte*> segment) const {
    if (!segment) return {};
    const auto size = static_cast<std::int64_t>(sizeof(A));
    const std::int64_t count = program_.setting.own_pieces();
    const std::int64_t end = weight.offset + (count - 1) * weight.stride + weight.elements;
    const View<A*> all = view_as<A>(segment.range(weight.offset * size, end * size));
    return {all.data(), count, weight.elements, weight.stride, all.origin()};
  }
  template <class A>
  static Place joined(const std::vector<Place>& places, int first, int count) {
    Place all = at(places, first);
    for (int i = first + 1; i < first + count; ++i) {
      const Place& next = at(places, i);
      const auto end = all.offset + all.columns * static_cast<std::int64_t>(sizeof(A));
      if (next.home != all.home || next.stride != all.stride || next.offset != end)
        throw std::logic_error("columns that a kernel takes as one matrix are not neighbours");
      all.columns += next.columns;
    }
    return all;
  }

  const PlacedCall& call_;
  const Program& program_;
  const Buffers& buffers_;
  Turn turn_;
};

/// What computes a call. Holds sizes and no arrays.
struct Kernel {
  std::function<void(const Exec&, const Arguments&)> run;
};

void Arguments::run_parts(const Exec& exec) const {
  for (const PlacedCall& one : call_.parts)
    one.call.kernel->run(exec, Arguments(one, program_, buffers_, turn_));
}

inline std::shared_ptr<const Kernel> make_kernel(
    std::function<void(const Exec&, const Arguments&)> run) {
  return std::make_shared<Kernel>(Kernel{std::move(run)});
}

/// Rows [begin, end) of a leaf: of one sequence or several, the `tokens` neighbouring tokens of
/// each from position `position` on; and where their documents begin, if positions restart there.
struct RunOfRows {
  std::int64_t begin, end, tokens, position;
  View<const std::int32_t*> document_begins = {};
};

/// body(run, its first row) for the runs of a call that decodes.
template <class Body>
void for_each_decoded(const Arguments& a, const Body& body) {
  std::int64_t row = 0;
  for (const DecodedRun& run : *a.buffers().decoded) {
    body(run, row);
    row += run.count;
  }
}

/// The part of what is kept of all sequences of a leaf that is of one of them.
template <class A>
View<A**> of_sequence(const View<A**>& kept, const LeafShape& leaf, std::int64_t sequence) {
  const std::int64_t rows = kept.rows() / leaf.batch;
  return kept.row_range(sequence * rows, (sequence + 1) * rows);
}

/// body(run) for the runs that `rows` rows of a leaf are made of.
template <class Body>
void for_each_run(const LeafShape& leaf, const Arguments& a, std::int64_t rows, const Body& body) {
  if (leaf.decodes())
    return for_each_decoded(a, [&](const DecodedRun& run, std::int64_t row) {
      body(RunOfRows{row, row + run.count, run.count, run.position});
    });
  const View<const std::int32_t*> begins =
      leaf.restarts_positions ? a.buffers().document_begins : View<const std::int32_t*>();
  if (!leaf.is_cut()) return body(RunOfRows{0, rows, leaf.tokens, 0, begins.range(0, rows)});
  const math::SequenceParts sequence = leaf.sequence();
  for (std::int64_t s = 0; s < leaf.batch; ++s)
    for (std::int64_t r = 0; r < sequence.runs(); ++r) {
      const math::TokenRun run = sequence.run(a.context_rank(), r);
      const std::int64_t first = s * leaf.part_tokens() + run.row;
      body(RunOfRows{first, first + run.count, run.count, run.position,
                     begins.range(first, first + run.count)});
    }
}

}  // namespace ostrakon::model::graph
