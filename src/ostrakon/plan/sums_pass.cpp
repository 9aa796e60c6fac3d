// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/sums_pass.hpp>

#include <algorithm>

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
      updates_on_host_(builder.plan().purpose == Purpose::train &&
                       builder.plan().layouts.update.space == Space::host),
      reduces_apart_(builder.plan().layouts.updates_optimistically),
      travel_(reduces_apart_ && updates_before_clip(tasks)) {}

int SumsPass::make_host_sums() {
  // One number more: how many ranks have failed.
  return builder_.make_named(
      "sums on host", Category::other,
      builder_.model().sums_bytes + static_cast<std::int64_t>(sizeof(std::int64_t)), Space::host);
}

void SumsPass::on(const Task& task) {
  if (task.work == Work::begin) begin();
  if (task.work != Work::clip) return;
  if (reduces_apart_) reduce();
  clip();
}

void SumsPass::begin() {
  // Of what the host sums. What is sent while compute continues begins before that does.
  if (updates_on_host_ || travel_) host_sums_ = make_host_sums();
  Action& action = builder_.emit(Kind::begin, Stream::compute, -1);
  builder_.use(action, Role::sums, builder_.plan().sums, Access::write);
  builder_.use(action, Role::host_sums, host_sums_, Access::write);
}

/// In the plan after the updates, as without threads it would keep them waiting; but it depends on
/// none of them.
void SumsPass::reduce() {
  const bool begins = host_sums_ < 0;
  if (begins) host_sums_ = make_host_sums();
  Action& action = builder_.emit(Kind::reduce_sums, Stream::reduce, -1);
  builder_.use(action, Role::sums, builder_.plan().sums, Access::read);
  builder_.use(action, Role::host_sums, host_sums_, begins ? Access::write : Access::read_write);
}

void SumsPass::clip() {
  const bool begins = host_sums_ < 0;
  if (begins) host_sums_ = make_host_sums();
  Action& action = builder_.emit(Kind::clip, Stream::compute, -1);
  builder_.use(action, Role::sums, builder_.plan().sums, Access::read_write);
  builder_.use(action, Role::host_sums, host_sums_, begins ? Access::write : Access::read_write);
  // Where something is not finite, it is looked for in each unit's gradient.
  if (updates_early_) return;
  for (int u = 0; u < builder_.units(); ++u)
    builder_.use(action, Role::gradient_shard, builder_.state(u).gradients, Access::read);
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
}

void SumsPass::follow_clip(Action& action) {
  if (updates_on_host_ && !updates_early_)
    builder_.use(action, Role::host_sums, host_sums_, Access::read);
}

void SumsPass::finish() {
  if (updates_on_host_) builder_.release_used(-1, {host_sums_});
}

}  // namespace ostrakon::plan
