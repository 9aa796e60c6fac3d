// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/graph_unit.hpp>

#include <algorithm>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/model/arrays.hpp>
#include <ostrakon/model/graph/call_watch.hpp>
#include <ostrakon/plan/ir/phase.hpp>
#include <stdexcept>
#include <utility>

namespace ostrakon::model {
namespace {

using graph::Home;

/// Kernels are given constant views of what they read.
template <class A>
View<std::byte*> as_bytes(View<A*> array) {
  if constexpr (std::is_const<A>::value)
    return array ? to_read(view_as<std::byte>(array)) : View<std::byte*>();
  else
    return view_as<std::byte>(array);
}

template <class T>
graph::Buffers bytes_of_buffers(const UnitBuffers<T>& buffers) {
  graph::Buffers bytes;
  const auto set = [&](Home home, View<std::byte*> buffer) {
    bytes.homes[static_cast<std::size_t>(home)] = buffer;
  };
  set(Home::workspace, buffers.workspace);
  set(Home::input, as_bytes(buffers.input));
  set(Home::output, as_bytes(buffers.output));
  set(Home::gradient, as_bytes(buffers.gradient));
  set(Home::saved, buffers.saved);
  set(Home::deferred, buffers.deferred);
  set(Home::send_buffer, buffers.send_buffer);
  set(Home::recv_buffer, as_bytes(buffers.recv_buffer));
  set(Home::second_recv_buffer, as_bytes(buffers.second_recv_buffer));
  bytes.trained = as_bytes(buffers.parameters);
  bytes.frozen = as_bytes(buffers.frozen);
  bytes.gradients = as_bytes(buffers.parameter_gradients);
  bytes.tied_trained = as_bytes(buffers.tied_parameters);
  bytes.tied_frozen = as_bytes(buffers.tied_frozen);
  bytes.tied_gradients = as_bytes(buffers.tied_gradients);
  bytes.batch = buffers.batch;
  bytes.tokens = buffers.tokens;
  bytes.targets = buffers.targets;
  bytes.document_begins = buffers.document_begins;
  bytes.decoded = buffers.decoded;
  bytes.context_rank = buffers.context_rank;
  bytes.tensor_rank = buffers.tensor_rank;
  bytes.counts = buffers.counts;
  bytes.watch = buffers.watch;
  return bytes;
}

/// Puts what an exchange takes into the buffer that is handed over, unless it lies there.
template <class A>
void hand_over(const Exec& exec, const graph::PlacedCall& call, const graph::Program& program,
               const graph::Buffers& buffers, graph::Turn turn) {
  const View<std::byte*> handed = buffers.in(Home::send_buffer);
  const graph::Place& first = call.reads.front();
  if (!handed || first.home == Home::send_buffer) return;
  for (turn.piece = 0; turn.piece < first.pieces; ++turn.piece) {
    const graph::Arguments arguments(call, program, buffers, turn);
    const View<const A**> from = arguments.read<A>(0, arguments.reads());
    const std::int64_t columns = from.columns();
    math::copy_rows<A, A>(exec, from,
                          view_as<A>(handed)
                              .matrix(from.rows(), first.pieces * columns)
                              .column_range(turn.piece * columns, (turn.piece + 1) * columns));
  }
}

}  // namespace

Programs derive_programs(graph::Graph graph) {
  Programs programs;
  if (graph.setting.defers)
    programs.deferring = std::make_shared<const graph::Program>(graph::derive(graph));
  graph.setting.defers = false;
  programs.at_once = std::make_shared<const graph::Program>(graph::derive(
      std::move(graph), programs.deferring ? programs.deferring->kept : std::set<int>()));
  return programs;
}

template <class T>
GraphUnit<T>::GraphUnit(std::string name, std::vector<Parameter> parameters,
                        const SegmentSizes& sizes, const LeafShape& leaf, Programs programs)
    : parameters_(std::move(parameters)),
      leaf_(leaf),
      at_once_(std::move(programs.at_once)),
      deferring_(std::move(programs.deferring)) {
  if (deferring_ && deferring_->deferred_phases == 0) deferring_ = nullptr;
  const graph::Program& program = deferring_ ? *deferring_ : *at_once_;
  if (program.kept_bytes != at_once_->kept_bytes)
    throw std::logic_error("unit " + name +
                           " saves something else where it defers gradients of parameters");
  plan::UnitDescription& d = description_;
  d.name = std::move(name);
  d.parameter_elements = sizes.frozen + sizes.trained;
  d.frozen_elements = sizes.frozen;
  d.output_bytes = program.output_bytes;
  d.saved_bytes = std::max(program.saved_bytes, at_once_->saved_bytes);
  d.deferral.bytes = program.deferred_bytes;
  d.forward = program.forward_phases;
  if (!program.backward.empty()) d.backward = program.backward_phases;
  d.deferral.phases = program.deferred_phases;
  if (deferring_) d.deferral.backward_at_once = at_once_->backward_phases;
  d.gradient_flops = program.gradient_flops;
  d.can_add_gradients =
      at_once_->can_add_gradients && (!deferring_ || deferring_->can_add_gradients);
  d.backward_reads_parameters = program.backward_reads_weights;
  d.backward_reads_tied = program.backward_reads_tied;
  for (const plan::Phase& phase : d.forward) d.recomputes = d.recomputes || phase.recomputes;
  plan::check_reads(d.forward, d.name, "forward");
  plan::check_reads(d.backward, d.name, "backward");
}

template <class T>
void GraphUnit<T>::run(const Exec& exec, const graph::Program& program,
                       const graph::PlacedCall& call, const graph::Buffers& buffers,
                       graph::Turn turn) const {
  if (!call.call.exchange) {
    if (graph::CallWatch* const watch = graph::CallWatch::of_thread())
      watch->begins(call.call, graph::floor_bytes(call, program));
    for (turn.run = 0; turn.run < call.call.runs; ++turn.run)
      call.call.kernel->run(exec, {call, program, buffers, turn});
  } else if (call.reads.front().element == graph::Element::sum) {
    hand_over<compute_t<T>>(exec, call, program, buffers, turn);
  } else {
    hand_over<T>(exec, call, program, buffers, turn);
  }
}

template <class T>
void GraphUnit<T>::run_piece(const Exec& exec, const graph::Program& program,
                             const graph::PlacedCall& call, const graph::Buffers& buffers,
                             std::int64_t piece) const {
  using Compute = compute_t<T>;
  graph::Turn turn{piece};
  if (call.sum < 0) return run(exec, program, call, buffers, turn);
  const graph::Place& sum = call.writes[static_cast<std::size_t>(call.sum)];
  const std::int64_t bytes = sum.rows * sum.columns * static_cast<std::int64_t>(sizeof(Compute));
  const auto slot = [&](std::int64_t index) {
    const View<std::byte*> home = buffers.in(index == 0 ? sum.home : Home::workspace);
    const std::int64_t begin = index == 0 ? sum.offset : call.tree.offset + (index - 1) * bytes;
    return view_as<Compute>(home.range(begin, begin + bytes)).matrix(sum.rows, sum.columns);
  };
  math::sum_product<T>(exec, piece, program.setting.own_pieces(), call.call.inner_dimension, slot,
                       [&](Compute beta, View<Compute**> to) {
                         turn.sum = view_as<std::byte>(to.flat());
                         turn.adds = beta == Compute(1);
                         run(exec, program, call, buffers, turn);
                       });
}

template <class T>
void GraphUnit<T>::run_phase(const Exec& exec, const graph::Program& program,
                             const std::vector<graph::PlacedCall>& calls,
                             const graph::Buffers& buffers, bool only_saves) const {
  const auto is_left_out = [&](const graph::PlacedCall& call) { return only_saves && !call.saves; };
  for (auto call = calls.begin(); call != calls.end();) {
    if (!call->call.is_by_piece) {
      if (!is_left_out(*call)) run(exec, program, *call, buffers, {});
      ++call;
      continue;
    }
    auto end = call + 1;
    while (end != calls.end() && end->call.is_by_piece && end->loop == call->loop) ++end;
    for (std::int64_t piece = 0; piece < program.setting.own_pieces(); ++piece)
      for (auto one = call; one != end; ++one)
        if (!is_left_out(*one)) run_piece(exec, program, *one, buffers, piece);
    call = end;
  }
}

template <class T>
void GraphUnit<T>::forward(const Exec& exec, const UnitBuffers<T>& buffers) const {
  leaf_.require_runs(buffers.decoded);
  const graph::Program& program = deferring_ ? *deferring_ : *at_once_;
  // A block of several in one unit has an output in a recomputation, too: the next one's input.
  const bool only_saves =
      !buffers.output &&
      (buffers.recomputes || plan::writes_output(program.forward_phases, buffers.phase));
  run_phase(exec, program, program.forward[static_cast<std::size_t>(buffers.phase)],
            bytes_of_buffers(buffers), only_saves);
}

template <class T>
void GraphUnit<T>::backward(const Exec& exec, const UnitBuffers<T>& buffers,
                            compute_t<T> loss_scale, bool adds_gradients) const {
  const graph::Program& program = buffers.deferred && deferring_ ? *deferring_ : *at_once_;
  if (program.backward.empty()) return;
  graph::Buffers bytes = bytes_of_buffers(buffers);
  bytes.loss_scale = static_cast<double>(loss_scale);
  bytes.adds_gradients = adds_gradients;
  run_phase(exec, program, program.backward[static_cast<std::size_t>(buffers.phase)], bytes, false);
}

template <class T>
void GraphUnit<T>::copy_sequence(const Exec& exec, const UnitBuffers<T>& buffers, std::int64_t from,
                                 std::int64_t to) const {
  const graph::Buffers bytes = bytes_of_buffers(buffers);
  const auto copy = [&](auto all) {
    using A = typename decltype(all)::Element;
    math::copy_rows<A, A>(exec, graph::of_sequence(all, leaf_, from),
                          graph::of_sequence(all, leaf_, to));
  };
  for (const auto& calls : at_once_->forward)
    for (const graph::PlacedCall& call : calls)
      for (int i = 0; i < static_cast<int>(call.writes.size()); ++i) {
        const graph::Arguments a(call, *at_once_, bytes, {});
        if (!a.place_written(i).is_cached) continue;
        // NOLINTNEXTLINE(bugprone-branch-clone): both are alike where sums have the type of values.
        if (a.place_written(i).element == graph::Element::sum)
          copy(a.written<compute_t<T>>(i));
        else
          copy(a.written<T>(i));
      }
}

template class GraphUnit<float>;
template class GraphUnit<double>;
template class GraphUnit<bf16>;
template class GraphUnit<fp16>;

}  // namespace ostrakon::model
