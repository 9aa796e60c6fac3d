// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/memory_check.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/device/memory.hpp>
#include <ostrakon/math/portability.hpp>
#include <ostrakon/math/products/gemm.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/trainer/devices.hpp>
#include <ostrakon/trainer/step_size.hpp>

namespace ostrakon::train {

std::string what_does_not_fit(const std::vector<MemoryNeed>& needs, int ranks_of_host) {
  for (const MemoryNeed& need : needs) {
    const int ranks = need.of_device > 0 ? need.of_device : ranks_of_host;
    const std::int64_t planned_by_all =
        need.planned_by_all > 0 ? need.planned_by_all : ranks * need.planned;
    const std::int64_t all = planned_by_all + ranks * need.process;
    if (all <= need.available) continue;
    const std::string planned =
        need.planned_by_all > 0
            ? format_bytes(planned_by_all / ranks) + " planned on average" + need.where
            : format_bytes(need.planned) + " planned" + need.where;
    return text(ranks, ranks == 1 ? " rank" : " ranks",
                need.of_device > 0 ? " on this device x " : " on this host x ",
                need.process > 0
                    ? text("(", planned, " + ", format_bytes(need.process), " for the process)")
                    : planned,
                " = ", format_bytes(all), ", but ", format_bytes(need.available), " are available");
  }
  return "";
}

std::int64_t process_bytes() {
  return (std::int64_t{150} << 20) + (math::kernel_threads() - 1) * math::thread_scratch_bytes();
}

namespace {

/// Adds up a need over ranks that plan different memory, as ranks of different stages do.
/// Collective.
void add_up(MemoryNeed& need, comm::Communicator& ranks) {
  std::int64_t all = need.planned;
  ranks.all_reduce_sum(&all, 1);
  if (all != ranks.size() * need.planned) need.planned_by_all = all;
}

/// Returns the memory needs of this rank's host and device. Collective.
std::vector<MemoryNeed> needs_of(const Programs& programs, comm::Communicator& host) {
  const std::int64_t on_device_planned = programs.arena_bytes(plan::Space::device);
  const std::int64_t on_host_planned = programs.arena_bytes(plan::Space::host);
  const std::int64_t left_on_host = runtime::available_memory_bytes(plan::Space::host);
  MemoryNeed on_host = {"", on_host_planned, process_bytes(), left_on_host};
  if (!has_device) {
    on_host.planned += on_device_planned;
    add_up(on_host, host);
    return {on_host};
  }
  on_host.where = " in host memory";
  add_up(on_host, host);
  comm::Communicator sharers = ranks_of_device(host);
  MemoryNeed on_device = {" in device memory", on_device_planned, 0,
                          runtime::available_memory_bytes(plan::Space::device)};
  on_device.of_device = sharers.size();
  add_up(on_device, sharers);
  return {on_device, on_host};
}

void require_memory(const std::vector<MemoryNeed>& needs, const Programs& programs,
                    const plan::Policy& policy, std::int64_t parameters, mesh::Mesh& mesh) {
  const plan::StepPlan& plan = programs.train.plan;
  require_short_plan(
      {parameters, static_cast<std::int64_t>(plan.units.size()), plan.grid.micro_batches()});
  const std::string problem = what_does_not_fit(needs, mesh.host().size());
  const bool gains_nothing =
      !has_device && (policy.offload != plan::Offload::none || policy.offload_activations);
  require(problem.empty(), "the model does not fit: ", problem,
          "; use more hosts, a smaller model, another training.micro_batch_size (a small one "
          "saves activations, a large one partial sums of gradients)",
          policy.sharding != plan::Sharding::none ? "" : ", or parallel.sharding: full",
          "; ostrakon-plan --choose --memory BYTES finds settings that fit",
          gains_nothing ? " (offloading gains nothing in a build without a device)" : "");
}

}  // namespace

void require_memory(const Programs& programs, const plan::Policy& policy, std::int64_t parameters,
                    mesh::Mesh& mesh) {
  const std::vector<MemoryNeed> needs = needs_of(programs, mesh.host());
  mesh.world().run_collectively([&] { require_memory(needs, programs, policy, parameters, mesh); });
}

std::string DeviceMemoryUse::describe() const {
  return text(format_bytes(all()), " besides (before the arena ", format_bytes(before),
              ", communicators ", format_bytes(communication), ", streams and products ",
              format_bytes(computing), ", Kokkos' own ", format_bytes(kokkos), " included)");
}

std::int64_t device_bytes_in_use() {
#if OSTRAKON_HAS_DEVICE
  const device::MemoryInfo info = device::memory_info();
  return info.total - info.free;
#else
  return 0;
#endif
}

}  // namespace ostrakon::train
