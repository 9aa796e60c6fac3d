// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/passes/update_pass.hpp>

#include <algorithm>
#include <ostrakon/plan/ir/matrices.hpp>
#include <ostrakon/plan/passes/redistribute.hpp>

namespace ostrakon::plan {
namespace {

Redistribution moving_gradients(const char* on_device) {
  Redistribution moving;
  moving.gather = Kind::gather_gradients;
  moving.part = Role::gradient_shard;
  moving.whole = Role::parameter_gradients;
  moving.category = Category::gradients;
  moving.on_device = on_device;
  moving.gathered = "gradients";
  moving.on_host = "gradients on host";
  return moving;
}

}  // namespace

UpdatePass::UpdatePass(Builder& builder, const Policy& policy, const Tasks& tasks,
                       ReductionPass& reductions)
    : builder_(builder),
      reductions_(reductions),
      layouts_(builder.plan().layouts),
      ahead_(layouts_.updates_early ? 0 : static_cast<std::size_t>(policy.forward_prefetch.depth)),
      behind_(layouts_.updates_early ? units_behind : ahead_) {
  for (const Task& task : tasks) {
    if (task.work == Work::update) units_.push_back(task.unit);
    if (task.work == Work::clip) before_clip_ = units_.size();
  }
}

Stream UpdatePass::stream() const {
  return layouts_.update.space == Space::host ? Stream::host : Stream::compute;
}

/// If nothing is transferred, an update that begins earlier would only wait earlier for gradients.
std::size_t UpdatePass::ahead() const {
  return is_optimistic() && !layouts_.updates_ahead() ? 0 : ahead_;
}

void UpdatePass::on(const Task& task) {
  if (task.work == Work::clip) is_clipped_ = true;
  if (task.work == Work::verify) verify(task.unit);
  if (task.work != Work::update) return;
  const std::size_t last = is_clipped_ ? units_.size() : before_clip_;
  while (begun_ < std::min(ended_ + ahead() + 1, last)) begin(units_[begun_++]);
  Update update = std::move(updates_.front());
  updates_.pop_front();
  optimize(task.unit, update);
  if (is_optimistic())
    unverified_[task.unit] = std::move(update);
  else
    end(task.unit, std::move(update));
  ++ended_;
}

void UpdatePass::finish() { finish(0); }

void UpdatePass::finish(std::size_t most) {
  while (ended_updates_.size() > most) {
    builder_.release_used(ended_updates_.front().first, ended_updates_.front().second);
    ended_updates_.pop_front();
  }
}

/// Brings gradients and masters of all that a rank updates to the memory where it does so.
void UpdatePass::begin(int u) {
  if (is_optimistic()) reductions_.complete(u);
  const PlannedUnit& state = builder_.state(u);
  const Layouts& layouts = state.layouts;
  Update update;
  update.ended.push_back(state.gradients);
  update.gradients = redistribute(builder_, u, state.gradients, layouts.update,
                                  moving_gradients("gradients"), update.ended);
  if (!state.whole_matrices.empty()) orthogonalize(u, update);
  update.masters = state.masters;
  if (layouts.masters.space != layouts.update.space) {
    // The buffer can hold parameters that other ranks update, too.
    update.masters =
        builder_.make_array("masters", u, Category::parameters, builder_.plan().trained(u),
                            layouts.masters.in(layouts.update.space));
    builder_.copy_trained(u, state.masters, update.masters, layouts.update.divided,
                          layouts.masters.element_bytes);
    update.ended.push_back(update.masters);
  }
  updates_.push_back(std::move(update));
}

/// Replaces the gradients of whole matrices by their orthogonalized directions.
void UpdatePass::orthogonalize(int u, Update& update) {
  const StepPlan& plan = builder_.plan();
  const Layouts& layouts = builder_.state(u).layouts;
  const std::int64_t elements = plan.elements(plan.trained(u), layouts.update.divided);
  Action& direction = builder_.emit(Kind::direction, stream(), u);
  direction.elements = elements;
  builder_.use(direction, Role::gradient_shard, update.gradients, Access::read_write);
  builder_.use(direction, Role::first_moment, builder_.state(u).first_moments, Access::read_write);

  std::vector<int> made;
  const Layout of_matrices = {matrix_spans(plan.grid, layouts), Space::device,
                              layouts.update.element_bytes};
  const int whole = redistribute(builder_, u, update.gradients, of_matrices,
                                 moving_gradients("directions"), made);
  // This rank's part on the device is copied back to be updated.
  const bool on_host = builder_.is_on_host(update.gradients);
  const int ours = on_host ? made.front() : update.gradients;
  update.ended.insert(update.ended.end(), made.begin(), made.end());
  const int workspace = builder_.make_buffer("orthogonalize workspace", u, Category::workspace,
                                             builder_.unit(u).orthogonalize_workspace_bytes);
  Action& action = builder_.emit(Kind::orthogonalize, u);
  action.elements = elements;
  action.flops = most_orthogonalize_flops(plan, u);
  builder_.use(action, Role::parameter_gradients, whole, Access::read_write);
  builder_.use(action, Role::workspace, workspace, Access::write);
  builder_.use(action, Role::product_workspace, plan.product_workspace, Access::write);
  if (whole != ours) builder_.use(action, Role::gradient_shard, ours, Access::read_write);
  if (on_host) builder_.copy(u, ours, update.gradients);
}

/// Brings a rank's updated part to where it is computed with.
void UpdatePass::end(int u, Update update) {
  const PlannedUnit& state = builder_.state(u);
  const Layouts& layouts = state.layouts;
  const bool on_device = layouts.masters.space == Space::device;
  if (on_device) builder_.release_used(u, update.ended);
  if (update.masters != state.masters && update.fresh() != update.masters)
    builder_.copy_trained(u, update.masters, state.masters, layouts.update.divided,
                          layouts.masters.element_bytes);
  spread(u, update);
  if (on_device) return;
  ended_updates_.emplace_back(u, std::move(update.ended));
  finish(behind_);
}

void UpdatePass::optimize(int u, Update& update) {
  const StepPlan& plan = builder_.plan();
  const PlannedUnit& state = builder_.state(u);
  const Layouts& layouts = state.layouts;
  const bool on_host = layouts.update.space == Space::host;
  const bool converts = layouts.compute.element_bytes != layouts.masters.element_bytes;
  if (layouts.has_copies() && layouts.compute.space == layouts.update.space) {
    update.converted = state.compute_copy;
  } else if (layouts.has_copies() && (converts || !on_host)) {
    // The buffer is on the device, with space for the parts that other ranks update.
    const Spans& divided = on_host ? layouts.update.divided : layouts.compute.divided;
    update.converted =
        builder_.make_array("updated", u, Category::parameters, plan.trained(u),
                            {divided, layouts.update.space, layouts.compute.element_bytes});
    update.ended.push_back(update.converted);
  }
  if (is_optimistic())
    update.replaced =
        builder_.make_buffer("replaced", u, Category::workspace, plan.replaced_bytes(u));
  emit(Kind::optimize, u, update);
}

/// Verifies an update that was made before `clip`.
void UpdatePass::verify(int u) {
  Update update = std::move(unverified_.at(u));
  unverified_.erase(u);
  emit(Kind::verify, u, update);
  end(u, std::move(update));
}

/// Writes an action that updates a unit's parameters, or that may have to repeat an update.
void UpdatePass::emit(Kind kind, int u, const Update& update) {
  const StepPlan& plan = builder_.plan();
  const PlannedUnit& state = builder_.state(u);
  Action& action = builder_.emit(kind, stream(), u);
  action.flats = plan.trained(u);
  action.divided = state.layouts.update.divided;
  action.elements = plan.elements(action.flats, action.divided);
  const bool begins = update.converted >= 0 && !builder_.buffer(update.converted).persistent;
  builder_.use(action, Role::gradient_shard, update.gradients, Access::read);
  builder_.use(action, Role::shard, update.masters, Access::read_write);
  builder_.use(action, Role::parameters, update.converted,
               begins ? Access::write : Access::read_write);
  builder_.use(action, Role::first_moment, state.first_moments, Access::read_write);
  builder_.use(action, Role::second_moment, state.second_moments, Access::read_write);
  builder_.use(action, Role::average, state.averages, Access::read_write);
  builder_.use(action, Role::replaced, update.replaced,
               kind == Kind::verify ? Access::read : Access::write);
}

/// Gathers, on the device, the parameters that a rank computes with but does not update.
void UpdatePass::spread(int u, Update& update) {
  const int fresh = update.fresh();
  const Layouts& layouts = builder_.state(u).layouts;
  const int computed = builder_.state(u).compute();
  const std::int64_t element_bytes = layouts.compute.element_bytes;
  const Spans& updated = layouts.update.divided;
  const bool shares = updated != layouts.compute.divided;
  int spread = fresh;
  if (builder_.is_on_host(fresh) && (layouts.compute.space == Space::device || shares)) {
    spread = computed;
    if (builder_.is_on_host(computed)) {
      spread = builder_.make_array("updated", u, Category::parameters, builder_.plan().trained(u),
                                   layouts.compute.in(Space::device));
      update.ended.push_back(spread);
    }
    builder_.copy_trained(u, fresh, spread, updated, element_bytes);
  }
  gather_in_place(builder_, u, spread, updated, layouts.compute);
  if (builder_.is_on_host(computed) && !builder_.is_on_host(spread))
    builder_.copy_trained(u, spread, computed, builder_.buffer(spread).divided, element_bytes);
}

}  // namespace ostrakon::plan
