// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/unit_trial.hpp>

#include <algorithm>
#include <cstring>
#include <ostrakon/base/error.hpp>
#include <utility>

namespace ostrakon::model {
namespace {

template <class T>
GuardedBuffer make_buffer(const std::vector<T>& values) {
  GuardedBuffer buffer(static_cast<std::int64_t>(values.size() * sizeof(T)));
  buffer.set(values.data());
  return buffer;
}

/// The first of `parameters` after which an array of all of them has changed, up to the next one or
/// the array's end: they are laid out with gaps. Null: none.
template <class T>
const Parameter* find_overrun(const std::vector<Parameter>& parameters,
                              const std::vector<T>& before, const std::vector<T>& after) {
  const Parameter* last = nullptr;
  std::int64_t first = 0;  // behind its piece
  const auto has_changed = [&](std::int64_t end) {
    return last != nullptr && std::memcmp(before.data() + first, after.data() + first,
                                          static_cast<std::size_t>(end - first) * sizeof(T)) != 0;
  };
  const std::int64_t pieces = parameters.empty() ? 0 : parameters.front().pieces;
  for (std::int64_t piece = 0; piece < pieces; ++piece)
    for (const Parameter& parameter : parameters) {
      if (parameter.frozen) continue;
      const std::int64_t begin = parameter.offset + piece * parameter.piece_stride;
      if (has_changed(begin)) return last;
      last = &parameter;
      first = begin + parameter.piece_elements();
    }
  return has_changed(static_cast<std::int64_t>(before.size())) ? last : nullptr;
}

/// For dL/d output (not of losses), then dL/d input.
template <class T>
std::int64_t gradient_bytes(const Chain<T>& chain, int unit) {
  const ChainUnitDescription& own = chain.unit(unit);
  return std::max(own.input, own.is_loss ? 0 : own.output) * static_cast<std::int64_t>(sizeof(T));
}

}  // namespace

std::vector<std::size_t> places_of(const Parameter& parameter) {
  std::vector<std::size_t> places(static_cast<std::size_t>(parameter.elements()));
  for (std::int64_t piece = 0; piece < parameter.pieces; ++piece) {
    std::int64_t place = parameter.offset + piece * parameter.piece_stride;
    for (const ElementRuns& runs : parameter.elements_of_piece(piece))
      runs.for_each([&](std::int64_t first, std::int64_t count) {
        for (std::int64_t i = first; i < first + count; ++i)
          places[static_cast<std::size_t>(i)] = static_cast<std::size_t>(place++);
      });
  }
  return places;
}

template <class T>
UnitTrial<T>::UnitTrial(const Chain<T>& chain, int unit, const void* batch,
                        const ParameterValues<T>& own, const ParameterValues<T>& tied,
                        const std::vector<T>& input)
    : chain_(chain),
      unit_(unit),
      planned_(chain.description().units[static_cast<std::size_t>(unit)]),
      reads_{GuardedBuffer(chain.leaf().bytes()), make_buffer(own.trained), make_buffer(own.frozen),
             make_buffer(tied.trained),           make_buffer(tied.frozen), make_buffer(input)},
      writes_{GuardedBuffer(planned_.output_bytes), GuardedBuffer(planned_.saved_bytes),
              GuardedBuffer(gradient_bytes(chain, unit)), GuardedBuffer(reads_.trained.size()),
              GuardedBuffer(reads_.tied_trained.size())},
      absent_{GuardedBuffer::absent(planned_.output_bytes),
              GuardedBuffer::absent(planned_.output_bytes),
              GuardedBuffer::absent(reads_.frozen.size()),
              GuardedBuffer::absent(reads_.tied_frozen.size())} {
  reads_.batch.set(batch);
  for (const plan::Phases* phases : {&planned_.forward, &planned_.backward})
    for (const plan::Phase& phase : *phases)
      require(!phase.then || phase.then->span.ranks == 1, "unit ", planned_.name,
              " exchanges activations over ", phase.then ? phase.then->span.ranks : 1,
              " ranks; a check of gradients computes on one");
}

template <class T>
void UnitTrial<T>::note_read_only() {
  for (const auto& [name, buffer] :
       {std::pair{"batch", &reads_.batch}, std::pair{"parameters", &reads_.trained},
        std::pair{"frozen parameters", &reads_.frozen},
        std::pair{"tied parameters", &reads_.tied_trained},
        std::pair{"tied frozen parameters", &reads_.tied_frozen},
        std::pair{"input", &reads_.input}})
    read_only_.push_back({name, buffer, buffer->get()});
}

template <class T>
AbsentArrays<T> UnitTrial<T>::absent_arrays() const {
  return {absent_.output.template empty_view<T>(), absent_.losses.template empty_view<T>(),
          absent_.frozen_gradients.template empty_view<T>(),
          absent_.tied_frozen_gradients.template empty_view<T>()};
}

template <class T>
void UnitTrial<T>::run(const plan::Phases& phases, const Run& how) {
  const bool is_backward = how.is_backward, is_watched = how.watched == Watched::yes;
  read_only_.clear();
  damage_.clear();
  if (is_watched) note_read_only();
  const bool has_parameters = !is_backward || planned_.backward_reads_parameters;
  UnitBuffers<T> buffers;
  buffers.recomputes = !is_backward && !how.with_output;
  buffers.batch = reads_.batch.template view<std::byte>();
  if (has_parameters) {
    buffers.parameters = reads_.trained.template view<T>();
    buffers.frozen = reads_.frozen.template view<T>();
  }
  buffers.tied_parameters = reads_.tied_trained.template view<T>();
  buffers.tied_frozen = reads_.tied_frozen.template view<T>();
  buffers.input = reads_.input.template view<T>();
  buffers.saved = writes_.saved.template view<std::byte>();
  if (is_backward) {
    buffers.gradient = writes_.gradient.template view<T>();
    buffers.parameter_gradients = writes_.gradients.template view<T>();
    buffers.tied_gradients = writes_.tied_gradients.template view<T>();
  }
  GuardedBuffer workspace;
  std::vector<GuardedBuffer> handed;  // by each phase
  const auto came = [&](const plan::Phase& phase, std::size_t which) {
    if (which >= phase.reads.size()) return View<const std::byte*>();
    return View<const std::byte*>(
        handed[static_cast<std::size_t>(phase.reads[which])].view<std::byte>());
  };
  const Exec exec;
  const auto look_at = [&](const GuardedBuffer& buffer, const char* name) {
    if (is_watched && !buffer.has_whole_guards()) damage_ = text("wrote outside of its ", name);
  };
  const std::vector<int> computed =
      buffers.recomputes ? plan::recomputed_phases(phases) : plan::all_of(phases);
  handed.resize(phases.size());
  for (const int phase : computed) {
    const auto p = static_cast<std::size_t>(phase);
    if (phase == computed.front() || !phases[p - 1].keeps_workspace)
      workspace = GuardedBuffer(plan::workspace_bytes(phases, phase));
    if (plan::first_reader(phases, phase, computed) >= 0)
      handed[p] = GuardedBuffer(phases[p].then->bytes_in());
    buffers.phase = phase;
    // The loss unit's backward begins with forward.
    const bool writes_output =
        how.with_output && (is_backward || plan::writes_output(phases, phase));
    buffers.output = writes_output ? writes_.output.template view<T>() : View<T*>();
    buffers.workspace = workspace.view<std::byte>();
    buffers.exchanged = came(phases[p], 0);
    buffers.second_exchanged = came(phases[p], 1);
    buffers.handed = handed[p].template view<std::byte>();
    if (is_backward)
      chain_.backward(unit_, exec, buffers, loss_scale, how.adds, absent_arrays());
    else
      chain_.forward(unit_, exec, buffers, absent_arrays());
    exec.fence();
    look_at(workspace, "workspace");
    for (const GuardedBuffer& buffer : handed) look_at(buffer, "handed");
  }
  for (const auto& [name, buffer] :
       {std::pair{"output", &writes_.output}, std::pair{"saved", &writes_.saved},
        std::pair{"gradient", &writes_.gradient},
        std::pair{"parameter gradients", &writes_.gradients},
        std::pair{"tied gradients", &writes_.tied_gradients}})
    look_at(*buffer, name);
  if (is_backward && is_watched) look_at_gaps();
  if (is_watched) look_at_absent(how.with_output);
}

/// What was written to arrays that the call does not have: when a model is trained they are null.
template <class T>
void UnitTrial<T>::look_at_absent(bool with_output) {
  const bool is_loss = chain_.unit(unit_).is_loss;
  if (!absent_.output.has_whole_guards())
    damage_ = text("wrote to its output, which is empty ",
                   is_loss        ? "in the loss unit: expected losses"
                   : !with_output ? "in a call that recomputes"
                                  : "before the last phase and without Phase::writes_output");
  if (!absent_.losses.has_whole_guards())
    damage_ = is_loss ? "wrote to its losses, which are empty before the last phase"
                      : "wrote to its losses, which only the loss unit has: expected output";
  if (const Parameter* own = find_written(absent_.frozen_gradients, unit_))
    damage_ = text("wrote to the gradient of ", own->name, ", which is frozen: the array is empty");
  if (const Parameter* one = find_written(absent_.tied_frozen_gradients, chain_.tied_to(unit_)))
    damage_ =
        text("wrote to the tied gradient of ", one->name, ", which is frozen: the array is empty");
}

/// The frozen parameter of unit `owner` to whose gradient something was written; null: none.
template <class T>
const Parameter* UnitTrial<T>::find_written(const GuardedBuffer& absent, int owner) const {
  const std::int64_t byte = absent.first_written_guard();
  if (byte == GuardedBuffer::none || owner < 0) return nullptr;
  const Parameter* last = nullptr;
  for (const Parameter& parameter : chain_.parameters(owner)) {
    if (!parameter.frozen) continue;
    const std::int64_t first = parameter.offset * static_cast<std::int64_t>(sizeof(T));
    if (last == nullptr || first <= byte) last = &parameter;
  }
  return last;
}

/// Of gradients of parameters: what is written there may be meant for an element of another one.
template <class T>
void UnitTrial<T>::look_at_gaps() {
  if (const Parameter* own = find_overrun(chain_.parameters(unit_), base_, gradients()))
    damage_ = text("wrote outside of its parameter gradients, after that of ", own->name);
  const int tied = chain_.tied_to(unit_);
  if (tied < 0) return;
  const std::vector<T> after = tied_gradients();
  if (const Parameter* one =
          find_overrun(chain_.parameters(tied), std::vector<T>(after.size(), T(0)), after))
    damage_ = text("wrote outside of its tied gradients, after that of ", one->name);
}

template <class T>
std::string UnitTrial<T>::damage() const {
  for (const ReadOnly& one : read_only_) {
    if (!one.buffer->has_whole_guards()) return text("wrote outside of its ", one.name);
    if (one.buffer->get() != one.before) return text("wrote to its ", one.name);
  }
  return damage_;
}

template <class T>
std::vector<T> UnitTrial<T>::forward(Watched watched) {
  writes_.output.unset();
  writes_.saved.unset();
  run(planned_.forward, {false, true, false, watched});
  return writes_.output.template get<T>();
}

template <class T>
void UnitTrial<T>::recompute() {
  writes_.saved.unset();
  run(planned_.forward, {false, false, false, Watched::yes});
}

template <class T>
std::vector<T> UnitTrial<T>::backward(const std::vector<T>& output_gradient,
                                      const std::vector<T>& base, Watched watched) {
  writes_.gradient.unset();
  writes_.tied_gradients.unset();
  writes_.gradient.set(0, output_gradient.data(),
                       static_cast<std::int64_t>(output_gradient.size() * sizeof(T)));
  const bool adds = !base.empty();
  if (adds)
    writes_.gradients.set(base.data());
  else
    writes_.gradients.unset();
  base_ = watched == Watched::yes ? gradients() : std::vector<T>();
  const bool is_loss = chain_.unit(unit_).is_loss;
  run(planned_.backward, {true, is_loss, adds, watched});
  std::vector<T> gradient = writes_.gradient.template get<T>();
  gradient.resize(static_cast<std::size_t>(chain_.unit(unit_).input));
  return gradient;
}

template class UnitTrial<float>;
template class UnitTrial<double>;

}  // namespace ostrakon::model
