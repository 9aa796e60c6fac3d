// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/runtime/program.hpp>

#include <atomic>
#include <ostrakon/plan/proof/stage_proof.hpp>
#include <stdexcept>
#include <utility>

namespace ostrakon::runtime {

std::uint64_t ProgramId::next() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

std::string label(const plan::StepPlan& plan, const plan::Action& action) {
  return "ostrakon: " + plan.describe(action);
}

Program make_program(plan::StepPlan plan) {
  Program program;
  program.memory = plan::plan_memory(plan, plan::Space::device);
  program.host_memory = plan::plan_memory(plan, plan::Space::host);
  plan::prove_memory(plan, program.memory);
  plan::prove_memory(plan, program.host_memory);
  // Stages of a pipeline are proven where all of their plans are known.
  if (plan.grid.stages() == 1) plan::prove_stages({&plan});
  program.plan = std::move(plan);
  return program;
}

std::byte* address_of(const Program& program, const Arenas& arenas, int buffer) {
  return program.plan.buffers[buffer].space == plan::Space::host
             ? arenas.host + program.host_memory.offsets[buffer]
             : arenas.device + program.memory.offsets[buffer];
}

void require_space(const plan::StepPlan& plan, int buffer, bool on_host) {
  const bool is_on_host = plan.buffers[buffer].space == plan::Space::host;
  if (on_host == is_on_host || (on_host && memory_is_host_accessible)) return;
  throw std::logic_error(plan.buffers[buffer].name + " is in " + (is_on_host ? "host" : "device") +
                         " memory");
}

}  // namespace ostrakon::runtime
