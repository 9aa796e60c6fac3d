// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/memory_check.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/train/step_size.hpp>

namespace ostrakon::train {

std::string what_does_not_fit(const std::vector<MemoryNeed>& needs, int ranks) {
  for (const MemoryNeed& need : needs) {
    const std::int64_t all = ranks * (need.planned + need.process);
    if (all <= need.available) continue;
    const std::string planned = format_bytes(need.planned) + " planned" + need.where;
    return text(ranks, ranks == 1 ? " rank" : " ranks", " on this host x ",
                need.process > 0
                    ? text("(", planned, " + ", format_bytes(need.process), " for the process)")
                    : planned,
                " = ", format_bytes(all), ", but ", format_bytes(need.available), " are available");
  }
  return "";
}

namespace {

std::vector<MemoryNeed> needs_of(const Programs& programs) {
  // Every process needs memory besides the arena: libraries, message buffers, the program itself.
  constexpr std::int64_t process_bytes = std::int64_t{150} << 20;
  const std::int64_t on_device_planned = programs.arena_bytes(plan::Space::device);
  const std::int64_t on_host_planned = programs.arena_bytes(plan::Space::host);
  const std::int64_t left_on_host = runtime::available_memory_bytes(plan::Space::host);
  if (!on_device) return {{"", on_device_planned + on_host_planned, process_bytes, left_on_host}};
  return {{" in device memory", on_device_planned, 0,
           runtime::available_memory_bytes(plan::Space::device)},
          {" in host memory", on_host_planned, process_bytes, left_on_host}};
}

}  // namespace

void require_memory(const Programs& programs, const plan::Policy& policy, std::int64_t parameters,
                    mesh::Mesh& mesh) {
  require(memory_is_host_accessible || mesh.world().size() == 1,
          "this build computes on devices, whose memory it can't communicate yet; start one rank");
  const plan::StepPlan& plan = programs.train.plan;
  require_short_plan(
      {parameters, static_cast<std::int64_t>(plan.units.size()), plan.grid.micro_batches()});
  const std::string problem = what_does_not_fit(needs_of(programs), mesh.host().size());
  const bool gains_nothing =
      !on_device && (policy.offload != plan::Offload::none || policy.offload_activations);
  require(problem.empty(), "the model does not fit: ", problem,
          "; use more hosts, a smaller model, another training.micro_batch_size (a small one "
          "saves activations, a large one partial sums of gradients)",
          policy.sharding != plan::Sharding::none ? "" : ", or parallel.sharding: full",
          "; ostrakon-plan --fit lists settings that fit",
          gains_nothing ? " (offloading gains nothing in a build without a device)" : "");
}

}  // namespace ostrakon::train
