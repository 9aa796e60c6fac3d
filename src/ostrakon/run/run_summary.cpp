// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/run_summary.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/runtime/memory_counter.hpp>

namespace ostrakon::train {

namespace {

/// Describes the skipped steps of the whole run, by whichever processes.
std::string describe_skipped(const checkpoint::Progress& progress) {
  const std::int64_t skipped = progress.step - progress.updates;
  if (skipped == 0) return "";
  const std::int64_t last = progress.skipped_in_a_row;
  return text("skipped steps: ", skipped, " of ", progress.step,
              last == 0   ? ""
              : last == 1 ? ", the last one among them"
                          : text(", the last ", last, " among them"),
              "\n");
}

}  // namespace

std::string describe_end(config::Timers& timers, Trainer& trainer, UsageSummary& usage,
                         mesh::Mesh& mesh, std::int64_t tokens) {
  comm::Communicator& world = mesh.world();
  // Only ranks of one stage are compared, as other stages do other work.
  const std::string times = timers.report(mesh.stage().mpi());
  const char* const whose = mesh.pipeline().size() > 1 ? "ranks of stage 0:\n" : "";
  double resident = static_cast<double>(runtime::peak_resident_bytes());
  world.maximum(&resident, 1);
  std::string lines = "\n" + describe_skipped(trainer.progress()) + usage.describe_overlap(world) +
                      usage.describe_optimistic();
  lines += usage.describe_peak(trainer.model_flops(), [&] { return trainer.measure_peak_flops(); });
  lines += text("memory of a rank: planned ", format_bytes(trainer.planned_peak_bytes()),
                ", counted ", format_bytes(runtime::memory_count().peak_bytes),
                has_device ? ", on the device " + trainer.device_memory().describe() : "",
                ", resident at most ", format_bytes(static_cast<std::int64_t>(resident)), "\n");
  const std::string figures =
      usage.figures(static_cast<double>(tokens), world.size(), trainer.model_flops());
  return text(lines, figures.empty() ? "" : "\n", figures, "\n", whose, times);
}

}  // namespace ostrakon::train
