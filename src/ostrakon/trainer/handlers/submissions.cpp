// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/handlers/submissions.hpp>

#include <algorithm>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/math/exact_sum.hpp>
#include <ostrakon/math/launch_count.hpp>
#include <ostrakon/model/graph/call_watch.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <ostrakon/trainer/handlers/compute_handlers.hpp>
#include <ostrakon/trainer/handlers/empty_exchanges.hpp>
#include <ostrakon/trainer/handlers/step_context.hpp>
#include <ostrakon/trainer/handlers/update_handlers.hpp>
#include <ostrakon/trainer/warm_up.hpp>

namespace ostrakon::train {
namespace {

using plan::Action;
using plan::Kind;
using plan::Role;
using runtime::ActionBuffers;

/// Whether an action waits for another one between streams of the device.
bool is_wait(const Action& action, const Action& awaited) {
  return action.stream != awaited.stream && action.stream != plan::Stream::host &&
         awaited.stream != plan::Stream::host;
}

void count_units(const runtime::Program& program, Submissions& all) {
  for (const Action& action : program.plan.actions) {
    all.copies += plan::is_copy(action.kind);
    all.messages += plan::is_message(action.kind);
    all.collectives += plan::communicates(action.kind);
    for (const int wait : action.waits)
      all.waits += is_wait(action, program.plan.actions[static_cast<std::size_t>(wait)]);
  }
}

/// Replaces handlers that need other ranks or data in memory; counts the kernels that they would
/// launch.
class OtherHandlers {
 public:
  OtherHandlers(const runtime::Program& program, const ShardLayout& layout)
      : plan_(program.plan), layout_(layout) {}

  void install(runtime::Executor& executor) {
    const auto nothing = [](const ActionBuffers&) {};
    for (const Kind kind :
         {Kind::load, Kind::clip, Kind::reduce_sums, Kind::copy_to_device, Kind::copy_to_host,
          Kind::send, Kind::receive, Kind::gather_updates, Kind::gather_gradients,
          Kind::export_parameters, Kind::digest, Kind::audit})
      executor.on(kind, nothing);
    executor.on(Kind::begin, [](const ActionBuffers&) { math::LaunchCount::takes_one("clear"); });
    executor.on(Kind::accumulate,
                [](const ActionBuffers&) { math::LaunchCount::takes_one("add_to"); });
    executor.on(Kind::gather, [](const ActionBuffers& buffers) {
      if (buffers.action.converts)
        math::LaunchCount::takes_one(buffers.action.element_bytes == 1 ? "quantize_part"
                                                                       : "convert");
    });
    executor.on(Kind::dequantize, [this](const ActionBuffers& buffers) {
      const int source = buffers.action.buffer(Role::source);
      for (int f = 0; f < plan_.buffers[static_cast<std::size_t>(source)].flats.size(); ++f)
        math::LaunchCount::takes_one("dequantize");
    });
    executor.on(Kind::keep, [this](const ActionBuffers& buffers) { keep(buffers.action); });
    executor.on(Kind::reduce_scatter, [this](const ActionBuffers& buffers) {
      if (buffers.action.buffer(Role::packed) >= 0) math::LaunchCount::takes_one("convert");
      // This kernel is the ordered sum, or the conversion to float after a library has summed in 16
      // bits.
      const bool is_ordered = plan_.layouts.summation == plan::Summation::ordered;
      if (is_ordered || buffers.action.buffer(Role::packed) >= 0)
        math::LaunchCount::takes_one(is_ordered ? "tree_sum" : "convert");
    });
    executor.on(Kind::exchange, [](const ActionBuffers& buffers) {
      if (buffers.action.exchange == plan::ExchangeKind::reduce_scatter)
        math::LaunchCount::takes_one("tree_sum");
    });
    executor.on(Kind::norm, [this](const ActionBuffers& buffers) { norm(buffers); });
  }

 private:
  void keep(const Action& action) const {
    const plan::Buffer& kept = plan_.buffers[static_cast<std::size_t>(action.buffer(Role::shard))];
    for (int flat = kept.flats.first; flat < kept.flats.end; ++flat)
      math::LaunchCount::takes_one("keep");
  }
  void norm(const ActionBuffers& buffers) const {
    const auto squares = buffers.device_view<std::int64_t>(Role::sums)
                             .range(math::exact_sum_limbs, std::int64_t{2} * math::exact_sum_limbs);
    const auto gradients = buffers.device_view<float>(Role::gradient_shard);
    for (const ElementRange& range : layout_.normed_ranges(buffers.action.unit))
      math::add_squares<float, OnDevice>(buffers.exec, gradients.range(0, range.end - range.begin),
                                         squares);
  }

  const plan::StepPlan& plan_;
  const ShardLayout& layout_;
};

/// Records the calls of an action, and which kernels each of them launches.
class RecordedCalls final : public model::graph::CallWatch {
 public:
  explicit RecordedCalls(const math::LaunchCount& count) : count_(count) {}

  void begins(const model::graph::Call& call, double floor_bytes) override {
    end_call();
    calls_.push_back({call.name, {}, call.flops, call.work, floor_bytes});
  }
  /// Returns the kernels and calls since the last time.
  SubmittedKernels take() {
    end_call();
    SubmittedKernels all{{count_.names().begin() + first_, count_.names().end()},
                         std::move(calls_)};
    first_ = begin_ = static_cast<std::ptrdiff_t>(count_.names().size());
    calls_.clear();
    return all;
  }

 private:
  void end_call() {
    if (!calls_.empty())
      calls_.back().kernels.assign(count_.names().begin() + begin_, count_.names().end());
    begin_ = static_cast<std::ptrdiff_t>(count_.names().size());
  }

  const math::LaunchCount& count_;
  std::ptrdiff_t first_ = 0, begin_ = 0;  // of the action, of the call
  std::vector<SubmittedCall> calls_;
};

}  // namespace

std::optional<Submissions> count_submissions(const runtime::Program& program,
                                             const ShardLayout& layout,
                                             const StepSettings& settings) {
  const std::vector<plan::UnitDescription>& units = layout.model().description().units;
  if (std::any_of(units.begin(), units.end(),
                  [](const plan::UnitDescription& unit) { return !unit.counts.empty(); }))
    return std::nullopt;
  Submissions all;
  count_units(program, all);
  const DistinctActions distinct(program, layout, settings);
  const runtime::Program& counted = distinct.program;
  StepContext context;
  context.rank = layout.rank();
  context.program = &counted;
  const EmptyExchanges empty_exchanges(counted);
  ComputeHandlers compute(context, layout, settings, empty_exchanges, nullptr);
  UpdateHandlers update(context, layout, settings);
  OtherHandlers others(counted, layout);
  // Addresses are made up, as nobody dereferences them.
  auto* const nowhere = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 20);  // NOLINT
  runtime::Executor executor({nowhere, nowhere});
  compute.install(executor);
  update.install(executor);
  others.install(executor);  // also replaces handlers of compute that show results
  executor.require_handlers();
  const math::LaunchCount count;
  RecordedCalls calls(count);
  executor.observe([&](const Action& action, bool begins) {
    if (begins) return;
    SubmittedKernels kernels = calls.take();
    if (!kernels.names.empty())
      all.distinct.emplace(static_cast<int>(&action - counted.plan.actions.data()),
                           std::move(kernels));
  });
  executor.run(counted);
  for (const int like : distinct.like) {
    const auto found = all.distinct.find(like);
    const bool has_kernels = found != all.distinct.end();
    all.like.push_back(has_kernels ? like : -1);
    all.kernels_of.push_back(has_kernels ? static_cast<int>(found->second.names.size()) : 0);
    all.kernels += all.kernels_of.back();
  }
  return all;
}

}  // namespace ostrakon::train
