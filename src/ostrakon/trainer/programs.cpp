// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/programs.hpp>

#include <algorithm>
#include <ostrakon/math/random.hpp>
#include <ostrakon/plan/proof/stage_proof.hpp>
#include <ostrakon/plan/stage_plans.hpp>
#include <ostrakon/trainer/step_guard.hpp>
#include <stdexcept>
#include <utility>

namespace ostrakon::train {
namespace {

void require_same_state(const runtime::Program& one, const runtime::Program& other) {
  for (std::size_t b = 0; b < one.plan.buffers.size() && one.plan.buffers[b].persistent; ++b)
    if (other.memory.offsets[b] != one.memory.offsets[b] ||
        other.host_memory.offsets[b] != one.host_memory.offsets[b])
      throw std::logic_error("plans of a run place persistent buffers differently");
}

}  // namespace

const runtime::Program& Programs::of(plan::Purpose purpose) const {
  if (purpose == plan::Purpose::audit) {
    if (!audit) throw std::logic_error("a run without audits was asked for an audited step");
    return *audit;
  }
  return purpose == plan::Purpose::train      ? train
         : purpose == plan::Purpose::evaluate ? evaluate
                                              : export_parameters;
}

std::vector<const runtime::Program*> Programs::all() const {
  std::vector<const runtime::Program*> programs = {&train, &evaluate, &export_parameters};
  if (audit) programs.push_back(&*audit);
  return programs;
}

std::int64_t Programs::arena_bytes(plan::Space space) const {
  std::int64_t most = 0;
  for (const runtime::Program* program : all())
    most = std::max(
        most, (space == plan::Space::device ? program->memory : program->host_memory).arena_bytes);
  return most;
}

Programs make_programs(const plan::ModelDescription& model, int ranks, const plan::Policy& policy,
                       int stage, bool audits) {
  const std::vector<plan::UnitRange> chunks =
      plan::find_chunks(model, ranks / policy.stages, policy);
  Programs programs;
  const auto make = [&](plan::Purpose purpose) {
    std::vector<plan::StepPlan> plans =
        plan::build_stage_plans(model, chunks, ranks / policy.stages, policy, purpose);
    if (plans.size() > 1) plan::prove_stages(plans);
    std::uint64_t& hash = programs.hashes[purpose];
    for (const plan::StepPlan& plan : plans) hash = math::mix_bits(hash) ^ plan.hash();
    runtime::Program own = runtime::make_program(plans[static_cast<std::size_t>(stage)]);
    if (purpose == plan::Purpose::train) {
      programs.stages = std::move(plans);
      for (plan::StepPlan& plan : programs.stages) {
        plan.actions = std::vector<plan::Action>();
        while (!plan.buffers.empty() && !plan.buffers.back().persistent) plan.buffers.pop_back();
        plan.buffers.shrink_to_fit();
      }
    }
    return own;
  };
  programs.train = make(plan::Purpose::train);
  programs.evaluate = make(plan::Purpose::evaluate);
  programs.export_parameters = make(plan::Purpose::export_parameters);
  if (audits) programs.audit = make(plan::Purpose::audit);
  for (const runtime::Program* program : programs.all())
    require_same_state(programs.train, *program);
  return programs;
}

int rank_in_plans(mesh::Mesh& mesh) {
  return mesh.pipeline().rank() * mesh.stage().size() +
         mesh.replicate_group().rank() * mesh.shard_group().size() + mesh.shard_group().rank();
}

}  // namespace ostrakon::train
