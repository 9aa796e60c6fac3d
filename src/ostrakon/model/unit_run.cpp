// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/model/unit_run.hpp>

#include <algorithm>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/ir/phase.hpp>

namespace ostrakon::model {
namespace {

/// Where each element of a parameter, row by row, lies in its segment.
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

}  // namespace

template <class T>
UnitRun<T>::UnitRun(const Chain<T>& chain, int unit, const void* batch, const std::vector<T>& input,
                    const Values& values)
    : chain_(chain),
      unit_(unit),
      planned_(chain.description().units[static_cast<std::size_t>(unit)]) {
  require(chain.leaf().tensor_ranks == 1, "the chain is for ", chain.leaf().tensor_ranks,
          " tensor ranks; a check of gradients computes on one");
  const View<std::byte*> samples = allocate(chain.leaf().bytes());
  const auto* const bytes = static_cast<const std::byte*>(batch);
  Kokkos::deep_copy(samples.kokkos(), HostView<const std::byte*>(bytes, samples.size()).kokkos());
  buffers_.batch = samples;
  output_ = view_as<T>(allocate(planned_.output_bytes));
  buffers_.saved = allocate(planned_.saved_bytes);
  const bool is_loss = unit + 1 == chain.units();
  const auto input_bytes = static_cast<std::int64_t>(input.size() * sizeof(T));
  buffers_.gradient =
      view_as<T>(allocate(std::max(input_bytes, is_loss ? 0 : planned_.output_bytes)));
  if (!input.empty()) {
    const View<T*> array = view_as<T>(allocate(input_bytes));
    to_device(input, array);
    buffers_.input = array;
    std::vector<std::size_t> places(input.size());
    std::iota(places.begin(), places.end(), std::size_t{0});
    variables_.push_back({"input", std::move(places), array, buffers_.gradient});
  }
  add_parameters(unit, false, values);
  if (planned_.tied_to >= 0) add_parameters(planned_.tied_to, true, values);
}

/// None of no bytes.
template <class T>
View<std::byte*> UnitRun<T>::allocate(std::int64_t bytes) {
  if (bytes == 0) return {};
  memory_.emplace_back(Kokkos::view_alloc(Kokkos::WithoutInitializing, "unit"),
                       static_cast<std::size_t>(bytes));
  Kokkos::deep_copy(memory_.back(), 0xff);
  return view_as<std::byte>(device_view(memory_.back()));
}

template <class T>
void UnitRun<T>::add_parameters(int unit, bool is_tied, const Values& values) {
  const plan::UnitDescription& planned = chain_.description().units[static_cast<std::size_t>(unit)];
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  const View<T*> trained = view_as<T>(allocate(planned.trained_elements() * size));
  const View<T*> frozen = view_as<T>(allocate(planned.frozen_elements * size));
  const View<T*> gradients = view_as<T>(allocate(planned.trained_elements() * size));
  (is_tied ? buffers_.tied_parameters : buffers_.parameters) = trained;
  (is_tied ? buffers_.tied_frozen : buffers_.frozen) = frozen;
  (is_tied ? buffers_.tied_gradients : buffers_.parameter_gradients) = gradients;
  for (const Parameter& parameter : chain_.parameters(unit)) {
    UnitVariable<T> variable{is_tied ? parameter.full_name() : parameter.name,
                             places_of(parameter),
                             parameter.frozen ? frozen : trained,
                             {}};
    if (!parameter.frozen) variable.gradients = gradients;
    std::vector<T> segment = to_host(View<const T*>(variable.values));
    std::int64_t element = 0;
    for (const std::size_t place : variable.places)
      segment[place] = static_cast<T>(values(parameter, element++));
    to_device(segment, variable.values);
    variables_.push_back(std::move(variable));
  }
}

template <class T>
template <class Compute>
void UnitRun<T>::run(const plan::Phases& phases, UnitBuffers<T> buffers, const Compute& compute) {
  const std::size_t kept = memory_.size();  // what is allocated here ends with the run
  std::int64_t workspace = 0;
  for (const plan::Phase& phase : phases) workspace = std::max(workspace, phase.workspace_bytes);
  buffers.workspace = allocate(workspace);
  std::vector<View<std::byte*>> handed;
  const Exec exec;
  for (const plan::Phase& phase : phases) {
    buffers.phase = static_cast<int>(handed.size());
    handed.push_back(allocate(phase.then ? phase.then->bytes_in() : 0));
    const auto came = [&](std::size_t which) {
      return which < phase.reads.size() ? handed[static_cast<std::size_t>(phase.reads[which])]
                                        : View<std::byte*>();
    };
    buffers.send_buffer = handed.back();
    buffers.recv_buffer = came(0);
    buffers.second_recv_buffer = came(1);
    compute(exec, buffers);
    exec.fence();
  }
  memory_.resize(kept);
}

template <class T>
std::vector<T> UnitRun<T>::forward(KernelWatch* watch) {
  UnitBuffers<T> buffers = buffers_;
  buffers.output = output_;
  buffers.watch = watch;
  run(planned_.forward, buffers,
      [&](const Exec& exec, const UnitBuffers<T>& b) { chain_.forward(unit_, exec, b); });
  return to_host(View<const T*>(output_));
}

template <class T>
void UnitRun<T>::backward(const std::vector<T>& output_gradient, T loss_scale, KernelWatch* watch) {
  UnitBuffers<T> buffers = buffers_;
  buffers.watch = watch;
  if (unit_ + 1 == chain_.units())
    buffers.output = output_;
  else
    to_device(output_gradient, buffers.gradient);
  run(planned_.backward, buffers, [&](const Exec& exec, const UnitBuffers<T>& b) {
    chain_.backward(unit_, exec, b, loss_scale, false);
  });
}

template class UnitRun<float>;
template class UnitRun<double>;

}  // namespace ostrakon::model
