// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/base/dtype.hpp>
#include <ostrakon/math/work_items.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/trainer/handlers/step_context.hpp>

namespace ostrakon::train {

/// Views of a rank's parts of flat parameters in the buffers of an action.
class ActionParts {
 public:
  ActionParts(const runtime::ActionBuffers& buffers, const StepContext& context)
      : buffers_(buffers), plan_(context.plan()), rank_(context.rank) {}

  /// The rank's part of a flat parameter, divided over `divided`, in the buffer in `role`, as bytes
  /// if it is quantized; an empty view if the action has none. Space as for ActionBuffers::view.
  template <class T, class Space>
  View<T*, Space> view(plan::Role role, int flat, const plan::Spans& divided) const {
    const int buffer = buffers_.action.buffer(role);
    if (buffer < 0) return buffers_.view<T, Space>(role);
    const plan::Buffer& array = plan_.buffers[buffer];
    const std::int64_t first = plan_.offset_in(array, flat, divided, rank_);
    return buffers_.view<T, Space>(buffer).range(
        first, first + plan_.size_in(array, {flat, flat + 1}, divided));
  }
  // The rank's part of the trained parameters of the action's unit.
  template <class T, class Space>
  View<T*, Space> view(plan::Role role, const plan::Spans& divided) const {
    return view<T, Space>(role, plan_.trained(buffers_.action.unit).first, divided);
  }
  template <class T>
  DeviceView<T*> device_view(plan::Role role, const plan::Spans& divided) const {
    return view<T, OnDevice>(role, divided);
  }
  template <class T>
  HostView<T*> host_view(plan::Role role, const plan::Spans& divided) const {
    return view<T, OnHost>(role, divided);
  }

  /// Calls work(where, space) with the execution for the action's arrays, by the memory of its
  /// buffer in `role`: buffers.exec and OnDevice, or math::CallingThread and OnHost. Without a
  /// device, where all memory is the host's, the calling thread is also used if the action's stream
  /// may be a thread outside Kokkos.
  template <class Work>
  void in_space_of(plan::Role role, const Work& work) const {
    const plan::Action& action = buffers_.action;
    const bool by_kernels = has_device || action.stream == plan::Stream::compute;
    if (by_kernels && plan_.buffers[action.buffer(role)].space == plan::Space::device)
      work(buffers_.exec, OnDevice());
    else
      work(math::CallingThread(), OnHost());
  }

  /// The spans that divide the result of a gather in `role`.
  const plan::Spans& gathered(plan::Role role) const {
    return plan_.gathered(buffers_.action, role);
  }
  /// The spans that divide the parts of which it is gathered: those, and the ranks of the action.
  plan::Spans gathered_parts(plan::Role role) const;

 private:
  const runtime::ActionBuffers& buffers_;
  const plan::StepPlan& plan_;
  int rank_;
};

/// The dtype in which an action sends or copies parameters: fp32 masters, or the model's `compute`
/// dtype.
DType dtype_of(const plan::Action& action, const plan::StepPlan& plan, DType compute);

}  // namespace ostrakon::train
