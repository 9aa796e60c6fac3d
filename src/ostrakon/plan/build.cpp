// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/plan/build.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/numbers.hpp>
#include <ostrakon/plan/ir/levels.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/plan/ir/sum_order.hpp>
#include <ostrakon/plan/ir/tasks.hpp>
#include <ostrakon/plan/passes/activation_pass.hpp>
#include <ostrakon/plan/passes/audit_pass.hpp>
#include <ostrakon/plan/passes/builder.hpp>
#include <ostrakon/plan/passes/compute_pass.hpp>
#include <ostrakon/plan/passes/gather_pass.hpp>
#include <ostrakon/plan/passes/phases.hpp>
#include <ostrakon/plan/passes/redistribute.hpp>
#include <ostrakon/plan/passes/reduction_pass.hpp>
#include <ostrakon/plan/passes/state_buffers.hpp>
#include <ostrakon/plan/passes/sums_pass.hpp>
#include <ostrakon/plan/passes/tape.hpp>
#include <ostrakon/plan/passes/update_pass.hpp>
#include <ostrakon/plan/pipeline/deferral.hpp>
#include <ostrakon/plan/pipeline/pipeline_pass.hpp>

namespace ostrakon::plan {

void require_auditable(const ModelDescription& model, const Policy& policy) {
  require(policy.stages == 1, "runtime.audit: parallel.pipeline = ", policy.stages,
          ": expected 1, as ranks compute whole leaves again");
  for (const UnitDescription& unit : model.units)
    require(unit.quantized.empty(),
            "runtime.audit: precision.gather = fp8: expected fp32, bf16 or fp16, as digests are of "
            "parameters as their owners have them");
  require(!offloads(policy.offload, Offload::parameters),
          "runtime.audit: memory.offload = ", name(policy.offload),
          ": expected none or optimizer, as digests are of parameters in device memory");
  require(!policy.early_updates || !offloads(policy.offload, Offload::optimizer),
          "runtime.audit: memory.early_updates = true with memory.offload = ", name(policy.offload),
          ": expected false, as parameters must not change before they are audited");
}

void check_step(const ModelDescription& model, const Policy& policy, Purpose purpose, int ranks) {
  require(policy.shard_group >= 0 && (policy.shard_group == 0 || ranks % policy.shard_group == 0),
          "shard groups of ", policy.shard_group, " don't divide the ", ranks, " ranks");
  require_division(policy, ranks);
  require(model.tensor_ranks == policy.tensor_ranks, "the model is divided over ",
          model.tensor_ranks, " tensor ranks; expected ", policy.tensor_ranks);
  for (const UnitDescription& unit : model.units)
    require(unit.expert_ranks == 1 || unit.expert_ranks == policy.expert_ranks, "unit ", unit.name,
            " is in ", unit.expert_ranks, " parts; expected ", policy.expert_ranks);
  require(policy.sum_grain >= 0 && is_power_of_two(policy.sum_grain),
          "training.sum_grain = ", policy.sum_grain, ": expected 0 or a power of two");
  require(policy.updates == Updates::after_clip || policy.offload == Offload::none,
          "parallel.updates = ", name(policy.updates),
          " with memory.offload = ", name(policy.offload),
          ": expected memory.offload = none, or parallel.updates = careful");
  if (purpose == Purpose::audit) require_auditable(model, policy);
  std::vector<bool> is_shared(model.units.size(), false);
  for (std::size_t u = 0; u < model.units.size(); ++u) {
    const int other = model.units[u].tied_to;
    if (other < 0) continue;
    require(static_cast<std::size_t>(other) < u, "unit ", model.units[u].name,
            " is tied to a unit that does not come before it");
    require(!is_shared[other], "unit ", model.units[u].name, " is tied to ",
            model.units[other].name, ", as another unit is; expected one");
    is_shared[other] = true;
  }
  require(!trains(purpose) ||
              std::any_of(model.units.begin(), model.units.end(),
                          [](const UnitDescription& unit) { return unit.trained_elements() > 0; }),
          "all parameters are frozen: nothing is left to train");
}

/// Checks that the order of leaves is ascending if ranks sum more leaves than the grain, as they
/// add a micro-batch's trees to those before it.
void check_leaf_order(const Grid& grid, const Layouts& layouts, const Policy& policy) {
  if (policy.leaf_order == LeafOrder::ascending || grid.micro_batches() == 1) return;
  for (const SpanSum& sum : span_sums(
           sum_spans(grid, layouts.accumulation), layouts.sum_grain,
           leaves_apart(grid, layouts.accumulation, layouts.sharing_ranks), layouts.summation))
    require(!sum.continues, "parallel.leaf_order = ", name(policy.leaf_order),
            ": expected ascending where training.sum_grain = ", layouts.sum_grain,
            " is less than the number of ranks over which each micro-batch is reduced");
}

/// The pipeline of one stage with one chunk.
Pipeline whole_model(const Grid& grid, const Policy& policy, Purpose purpose) {
  return make_pipeline(ScheduleKind::one_forward_one_backward, 1, 1, 0,
                       leaf_sequence(static_cast<int>(grid.micro_batches()), policy.leaf_order),
                       !trains(purpose));
}

StepPlan build_step_plan(const ModelDescription& model, int ranks, const Policy& policy,
                         Purpose purpose) {
  check_step(model, policy, purpose, ranks);
  const Grid grid = make_grid(model, ranks, policy);
  return build_plan(model, grid, 0, whole_model(grid, policy, purpose), policy, purpose);
}

StepPlan build_plan(const ModelDescription& described, const Grid& grid, int stage,
                    const Pipeline& pipeline, const Policy& policy, Purpose purpose,
                    std::int64_t most_waiting) {
  require_order(policy, grid);
  check_phases(described, grid);
  const ModelDescription model = with_deferral(described, policy, pipeline.turns[stage]);
  const Layouts layouts = find_layouts(policy, model, grid, purpose);
  check_leaf_order(grid, layouts, policy);
  const Tasks tasks = limit_deferred_bytes(
      model, make_tasks(model, purpose, pipeline.turns[stage], layouts), most_waiting);

  Builder builder(model, grid, layouts, purpose, stage);
  builder.reserve(tasks);
  make_state_buffers(builder, policy);
  SumsPass sums(builder, tasks);
  GatherPass gathers(builder, policy, tasks);
  ActivationPass activations(builder, policy, gathers);
  ReductionPass reductions(builder, policy, sums);
  ComputePass compute(builder, tasks, gathers, reductions);
  UpdatePass updates(builder, policy, tasks, reductions);
  Tapes tapes(builder);
  PipelinePass messages(builder, pipeline, tasks, tapes, sums);
  AuditPass audit(builder, gathers);

  // For each task its buffers are brought, it is computed, buffers that it needed end, and its
  // results are passed on. After the last gradient, `clip` finishes the reductions first, then the
  // sums.
  for (const Task& task : tasks) {
    Tape& tape = tapes.of(task);
    messages.before(task);
    gathers.before(task);
    activations.before(task, tape);
    compute.on(task, tape);
    audit.on(task, tape);
    gathers.after(task);
    activations.after(task, tape);
    messages.after(task);
    reductions.on(task, tape);
    sums.on(task);
    audit.after(task);
    updates.on(task);
    messages.share(task);
    if (task.work == Work::export_parameters) export_parameters(builder, task.unit);
  }
  updates.finish();
  sums.finish();
  tapes.finish();
  StepPlan plan = builder.finish();
  plan.schedule = policy.schedule;
  return plan;
}

}  // namespace ostrakon::plan
