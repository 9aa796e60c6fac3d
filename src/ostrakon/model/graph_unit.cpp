// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/graph_unit.hpp>

#include <ostrakon/math/sequence_parts.hpp>
#include <ostrakon/plan/phase.hpp>
#include <stdexcept>
#include <utility>

namespace ostrakon::model {
namespace {

using graph::Home;

/// Kernels are given constant views of what they read.
View<std::byte*> writable(View<const std::byte*> bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size(), bytes.origin()};
}
template <class A>
View<std::byte*> as_bytes(View<A*> array) {
  if constexpr (std::is_const<A>::value)
    return array ? writable(view_as<std::byte>(array)) : View<std::byte*>();
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
  set(Home::handed, buffers.handed);
  set(Home::exchanged, as_bytes(buffers.exchanged));
  set(Home::second_exchanged, as_bytes(buffers.second_exchanged));
  bytes.trained = as_bytes(buffers.parameters);
  bytes.frozen = as_bytes(buffers.frozen);
  bytes.gradients = as_bytes(buffers.parameter_gradients);
  bytes.tied_trained = as_bytes(buffers.tied_parameters);
  bytes.tied_frozen = as_bytes(buffers.tied_frozen);
  bytes.tied_gradients = as_bytes(buffers.tied_gradients);
  bytes.tokens = buffers.tokens;
  bytes.targets = buffers.targets;
  bytes.part = buffers.part;
  bytes.counts = buffers.counts;
  return bytes;
}

/// Puts what an exchange takes into the buffer that is handed over, unless it lies there.
template <class A>
void hand_over(const Exec& exec, const graph::Arguments& arguments, View<std::byte*> handed) {
  if (!handed || arguments.place_read(0).home == Home::handed) return;
  const View<const A**> from = arguments.read_joined<A>(0, arguments.reads());
  math::copy_rows<A, A>(exec, from, view_as<A>(handed).matrix(from.rows(), from.columns()));
}

}  // namespace

template <class T>
GraphUnit<T>::GraphUnit(std::string name, std::vector<Parameter> parameters,
                        const SegmentSizes& sizes, const LeafShape& leaf, ProgramPointer at_once,
                        ProgramPointer deferring)
    : parameters_(std::move(parameters)),
      leaf_(leaf),
      at_once_(std::move(at_once)),
      deferring_(std::move(deferring)) {
  if (deferring_ && deferring_->deferred_phases == 0) deferring_ = nullptr;
  const graph::Program& program = deferring_ ? *deferring_ : *at_once_;
  if (program.saved_bytes != at_once_->saved_bytes)
    throw std::logic_error("unit " + name +
                           " saves something else where it defers gradients of parameters");
  plan::UnitDescription& d = description_;
  d.name = std::move(name);
  d.parameter_elements = sizes.frozen + sizes.trained;
  d.frozen_elements = sizes.frozen;
  d.output_bytes = program.output_bytes;
  d.saved_bytes = program.saved_bytes;
  d.deferred_bytes = program.deferred_bytes;
  d.forward = program.forward_phases;
  if (!program.backward.empty()) d.backward = program.backward_phases;
  d.deferred_phases = program.deferred_phases;
  if (deferring_) d.backward_at_once = at_once_->backward_phases;
  d.gradient_flops = program.gradient_flops;
  d.backward_reads_parameters = program.backward_reads_weights;
  d.recomputes = program.saved_bytes > 0;
  plan::check_reads(d.forward, d.name, "forward");
  plan::check_reads(d.backward, d.name, "backward");
}

template <class T>
void GraphUnit<T>::run(const Exec& exec, const graph::Program& program,
                       const graph::PlacedCall& call, const graph::Buffers& buffers,
                       RowRange rows) const {
  const graph::Arguments arguments(call, program, buffers, rows, leaf_.decodes());
  if (!call.call.exchange) return call.call.kernel->run(exec, arguments);
  const View<std::byte*> handed = buffers.in(Home::handed);
  if (call.reads.front().element == graph::Element::sum)
    hand_over<compute_t<T>>(exec, arguments, handed);
  else
    hand_over<T>(exec, arguments, handed);
}

template <class T>
void GraphUnit<T>::forward(const Exec& exec, const UnitBuffers<T>& buffers, RowRange rows) const {
  leaf_.require_row_range(rows.begin, rows.end);
  const graph::Program& program = deferring_ ? *deferring_ : *at_once_;
  // A block of several in one unit has an output in a recomputation, too: the next one's input.
  const bool only_saves =
      !buffers.output &&
      (buffers.recomputes || plan::writes_output(program.forward_phases, buffers.phase));
  const graph::Buffers bytes = bytes_of_buffers(buffers);
  for (const graph::PlacedCall& call : program.forward[static_cast<std::size_t>(buffers.phase)])
    if (call.saves || !only_saves) run(exec, program, call, bytes, rows);
}

template <class T>
void GraphUnit<T>::backward(const Exec& exec, const UnitBuffers<T>& buffers,
                            compute_t<T> loss_scale, bool gradients_opened) const {
  const graph::Program& program = buffers.deferred && deferring_ ? *deferring_ : *at_once_;
  if (program.backward.empty()) return;
  graph::Buffers bytes = bytes_of_buffers(buffers);
  bytes.loss_scale = static_cast<double>(loss_scale);
  bytes.gradients_opened = gradients_opened;
  for (const graph::PlacedCall& call : program.backward[static_cast<std::size_t>(buffers.phase)])
    run(exec, program, call, bytes, {0, leaf_.rows()});
}

template class GraphUnit<float>;
template class GraphUnit<double>;
template class GraphUnit<bf16>;
template class GraphUnit<fp16>;

}  // namespace ostrakon::model
