// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/passes/sums_pass.hpp>

#include <algorithm>
#include <stdexcept>

namespace ostrakon::plan {

namespace {

bool updates_before_clip(const Tasks& tasks) {
  const auto next = std::find_if(tasks.begin(), tasks.end(), [](const Task& task) {
    return task.work == Work::update || task.work == Work::clip;
  });
  return next != tasks.end() && next->work == Work::update;
}

}  // namespace

SumsPass::SumsPass(Builder& builder, const Tasks& tasks)
    : builder_(builder),
      updates_early_(builder.plan().layouts.updates_early),
      updates_on_host_(trains(builder.plan().purpose) &&
                       builder.plan().layouts.update.space == Space::host),
      reduces_apart_(builder.plan().layouts.updates_optimistically),
      travel_(reduces_apart_ && updates_before_clip(tasks)),
      are_waited_for_(std::any_of(tasks.begin(), tasks.end(),
                                  [](const Task& task) { return task.work == Work::share; })) {
  for (int u = 0; u < builder.units(); ++u) {
    if (!builder.is_trained(u)) continue;
    if (builder.state(u).tied_stages.source < 0)
      ++norms_to_come_;
    else
      sends_tied_gradients_ = true;
  }
}

void SumsPass::make_host_sums() {
  // There are two numbers more: how many ranks have failed, and how many terms of the loss count.
  constexpr auto more = static_cast<std::int64_t>(2 * sizeof(std::int64_t));
  host_sums_ = builder_.make_named("sums on host", Category::other,
                                   builder_.model().sums_bytes + more, Space::host);
}

void SumsPass::on(const Task& task) {
  if (task.work == Work::begin) begin();
  if (task.work != Work::clip) return;
  if (copied_ < 0) copy();
  if (reduces_apart_) reduce();
  clip();
}

void SumsPass::begin() {
  Action& action = builder_.emit(Kind::begin, -1);
  builder_.use(action, Role::sums, builder_.plan().sums, Access::write);
  // The sums below are on the host. If they are sent while compute continues, they begin before it
  // does.
  if (!updates_on_host_ && !travel_) return;
  make_host_sums();
  Action& on_host = builder_.emit(Kind::begin, Stream::host, -1);
  builder_.use(on_host, Role::host_sums, host_sums_, Access::write);
}

/// Copies the device's sums to host memory, where sums of the host and of other ranks are added.
void SumsPass::copy() {
  copied_ =
      builder_.make_named("copied sums", Category::other, builder_.model().sums_bytes, Space::host);
  builder_.copy_on(Stream::compute, -1, builder_.plan().sums, copied_);
}

/// The sum over ranks comes after the updates in the plan, as without threads it would keep them
/// waiting; but it depends only on those before the copy.
void SumsPass::reduce() { add_over_ranks(Kind::reduce_sums); }

Action& SumsPass::add_over_ranks(Kind kind) {
  const bool begins = host_sums_ < 0;
  if (begins) make_host_sums();
  Action& action = builder_.emit(kind, -1);
  builder_.use(action, Role::sums, copied_, Access::read_write);
  builder_.use(action, Role::host_sums, host_sums_, begins ? Access::write : Access::read_write);
  return action;
}

void SumsPass::clip() {
  if (reduces_apart_)
    builder_.use(builder_.emit(Kind::clip, -1), Role::host_sums, host_sums_, Access::read_write);
  else
    look_for_origin(add_over_ranks(Kind::clip));
  // From here on compute, and updates on the device, may use the result of `clip`.
  Action& release = builder_.emit(Kind::release, -1);
  builder_.use(release, Role::released, copied_, Access::read_write);
  if (are_waited_for_)
    builder_.use(release, Role::host_sums, host_sums_, Access::read);
  else
    builder_.use(release, Role::released, host_sums_, Access::read_write);
}

/// Makes clip read each unit's gradient: if something is not finite, it is searched there.
void SumsPass::look_for_origin(Action& clip) {
  if (updates_early_) return;
  for (int u = 0; u < builder_.units(); ++u)
    builder_.use(clip, Role::gradient_shard, builder_.state(u).gradients, Access::read);
}

void SumsPass::add_norm(int u) {
  const StepPlan& plan = builder_.plan();
  Action& norm = builder_.emit(Kind::norm, updates_on_host_ ? Stream::host : Stream::compute, u);
  norm.elements = plan.elements(plan.trained(u), plan.units[u].layouts.gradient.divided);
  builder_.use(norm, Role::gradient_shard, builder_.state(u).gradients, Access::read);
  if (updates_on_host_)
    builder_.use(norm, Role::host_sums, host_sums_, Access::read_write);
  else
    builder_.use(norm, Role::sums, plan.sums, Access::read_write);
  if (copied_ >= 0) throw std::logic_error("a norm is added to sums that were copied already");
  // This copy waits for no update: units that are updated before `clip` come later in the plan. But
  // before a rank waits for all others, it must have sent the gradients that others need to get
  // there.
  if (--norms_to_come_ == 0 && travel_ && !sends_tied_gradients_) copy();
}

void SumsPass::follow_clip(Action& action) {
  builder_.use(action, Role::host_sums, host_sums_, Access::read);
}

void SumsPass::finish() {
  if (are_waited_for_) builder_.release_used(-1, {host_sums_});
}

}  // namespace ostrakon::plan
