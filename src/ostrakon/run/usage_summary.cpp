// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/usage_summary.hpp>

#include <cmath>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/runtime/memory_counter.hpp>

namespace ostrakon::train {
namespace {

constexpr double long_run = 10.0;  // seconds

std::string line(const char* what, double seconds, double hidden, std::int64_t steps,
                 comm::Communicator& world) {
  // Times are summed in whole microseconds, as integers do not round.
  std::int64_t sums[] = {std::llround(1e6 * seconds), std::llround(1e6 * hidden)};
  world.all_reduce_sum(sums, 2);
  if (sums[0] == 0) return "";
  return text(
      what, ": ", 1e-6 * static_cast<double>(sums[0]) / static_cast<double>(steps * world.size()),
      " s a step on each rank, ", 100 * sums[1] / sums[0], " % of it overlapped with compute\n");
}

}  // namespace

void UsageSummary::add(double seconds, const runtime::OverlapTimes& overlap) {
  if (steps_ == 0) first_seconds_ = seconds;
  ++steps_;
  seconds_ += seconds;
  overlap_.communication += overlap.communication;
  overlap_.hidden += overlap.hidden;
  overlap_.copying += overlap.copying;
  overlap_.copying_hidden += overlap.copying_hidden;
  overlap_.host += overlap.host;
  overlap_.host_hidden += overlap.host_hidden;
}

void UsageSummary::add_optimistic(bool repeated, bool skipped) {
  ++optimistic_;
  repeated_ += repeated ? 1 : 0;
  skipped_ += skipped ? 1 : 0;
}

std::string UsageSummary::describe_optimistic() const {
  if (optimistic_ == 0) return "";
  return text("optimistic updates: clipped after the update, undone and repeated, in ", repeated_,
              " of ", optimistic_, " steps; undone and skipped in ", skipped_, "\n");
}

std::string UsageSummary::describe_overlap(comm::Communicator& world) const {
  std::string lines = line("communication", overlap_.communication, overlap_.hidden, steps_, world);
  lines += line("copies between host and device", overlap_.copying, overlap_.copying_hidden, steps_,
                world);
  lines += line("sums and updates on the host", overlap_.host, overlap_.host_hidden, steps_, world);
  return lines;
}

std::string UsageSummary::describe_peak(double flops, const std::function<double()>& measure) {
  if (steps_ == 0) return "";
  if (peak_->origin() == PeakRate::Origin::measured &&
      (peak_->is_uncertain() || seconds_ > long_run))
    peak_->measure_again(measure());
  const double share = peak_->utilization(static_cast<double>(steps_) * flops / seconds_);
  return text(peak_->describe(), "; MFU of all steps ", std::llround(100.0 * share), " %\n");
}

std::string UsageSummary::figures(double tokens, int ranks, double flops) {
  if (steps_ == 0) return "";
  const double mean =
      steps_ == 1 ? seconds_ : (seconds_ - first_seconds_) / static_cast<double>(steps_ - 1);
  const double rate = tokens / mean;
  return figure("step_seconds", mean, "s") + figure("tokens_per_second", rate, "tokens/s") +
         figure("tokens_per_second_per_rank", rate / ranks, "tokens/s") +
         figure("mfu", 100.0 * peak_->utilization(flops / mean), "%");
}

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
  world.all_reduce_max(&resident, 1);
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
