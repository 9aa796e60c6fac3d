// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/run/step_recorder.hpp>

#include <cstring>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/runtime/overlap.hpp>
#include <type_traits>
#include <utility>

namespace ostrakon::train {

std::int64_t AllocationCounter::take() {
  const std::int64_t now = runtime::memory_count().all_allocations();
  return now - std::exchange(before_, now);
}

StepRecorder::StepRecorder(const config::Settings& settings, Trainer& trainer,
                           comm::Communicator& world, RunFolder& folder, Console& console)
    : settings_(settings),
      trainer_(trainer),
      world_(world),
      folder_(folder),
      console_(console),
      trace_(settings.output.trace_steps) {}

void StepRecorder::find_peak() {
  usage_.set_peak(
      peak_rate(settings_.runtime.peak_gflops, [this] { return trainer_.measure_peak_flops(); }));
}

void StepRecorder::begin(std::int64_t first_step) {
  trace_.begin(first_step, settings_.training.steps, seconds_now());
  allocations_.take();
  if (settings_.output.rank_times_every == 0) return;
  std::vector<std::string> hosts = world_.gather_texts(host_name());
  if (world_.rank() == 0) stragglers_.emplace(std::move(hosts), settings_.output.rank_times_every);
}

void StepRecorder::record(std::int64_t step, const StepResult& result, double seconds,
                          const std::vector<data::SourceUse>& sources) {
  const runtime::Program& program = trainer_.timed_program();
  const std::vector<runtime::ActionTime>& times = trainer_.action_times();
  timer_.end_step(program, times);
  StepMetrics metrics = measure(step, result, seconds);
  const std::string late = look_for_stragglers(metrics);
  for (const data::SourceUse& source : sources) metrics.source_samples.push_back(source.samples);
  folder_.write(metrics);
  console_.show(metrics);
  if (!late.empty()) console_.say(late);
  if (!result.skipped.empty())
    console_.say(text("  step ", step, " skipped: ", result.skipped, "\n"));
  if (!result.audit_finding.empty())
    console_.say(text("  audit of step ", step, ": ", result.audit_finding,
                      "; the step was repeated, and all ranks agree on that\n"));
  if (result.counted_terms == 0)
    console_.say(text("  warning: step ", step,
                      " has no token that counts in the loss: its loss and gradient are 0\n"));
  trainer_.skipped().require_updates(step);
  if (program.plan.layouts.updates_optimistically)
    usage_.add_optimistic(result.update_repeated, !result.skipped.empty());
  usage_.add(metrics.step_seconds, runtime::measure_overlap(program, times));
  trace_.record(step, program, times, world_);
  tell_of_trace();
}

void StepRecorder::end() {
  if (settings_.output.rank_times_every == 0 || timer_.steps() == 0) return;
  StepMetrics none;
  console_.say(close_window(none));
}

/// Where they are due, gathers the times of all ranks. Returns lines on those that are late, on
/// rank 0.
std::string StepRecorder::look_for_stragglers(StepMetrics& metrics) {
  const std::int64_t every = settings_.output.rank_times_every;
  const bool is_last = metrics.step == settings_.training.steps;
  if (every == 0 || (metrics.step % every != 0 && !is_last) || timer_.steps() == 0) return "";
  return close_window(metrics);
}

/// Gathers the times of all ranks since the last call. Returns lines as above.
std::string StepRecorder::close_window(StepMetrics& metrics) {
  metrics.rank_times_steps = timer_.steps();
  RankTimes mine = timer_.take();
  mine.stage = trainer_.program(plan::Purpose::train).plan.stage;
  static_assert(std::is_trivially_copyable_v<RankTimes>, "times are sent as bytes");
  for (const std::string& bytes :
       world_.gather_texts({reinterpret_cast<const char*>(&mine), sizeof mine})) {
    RankTimes of_rank;
    std::memcpy(&of_rank, bytes.data(), sizeof of_rank);
    metrics.rank_times.push_back(of_rank);
  }
  if (!stragglers_) return "";
  std::string lines = stragglers_->add(metrics.rank_times, metrics.rank_times_steps);
  metrics.late = stragglers_->late();
  return lines;
}

void StepRecorder::close_trace() {
  trace_.close();
  tell_of_trace();
}

void StepRecorder::tell_of_trace() {
  const bool waits = !trace_.why().empty();
  if (waits == std::exchange(trace_waits_, waits)) return;
  console_.say(
      waits ? text("  ", trace_.why(), "; the trace waits in memory until it can be written\n")
            : text("  '", folder_.file("trace.json"), "' has all of the trace again\n"));
}

void StepRecorder::record(const ValidationMetrics& metrics) {
  folder_.write(metrics);
  console_.show(metrics);
}

void StepRecorder::record(const EvaluationMetrics& metrics) {
  folder_.write(metrics);
  console_.show(metrics);
}

/// Returns the metrics of a step, with maxima over ranks: a guarantee holds for all ranks or not at
/// all.
StepMetrics StepRecorder::measure(std::int64_t step, const StepResult& result, double seconds) {
  const config::TrainingSettings& training = settings_.training;
  const std::int64_t tokens = training.global_batch_size * training.sequence_length;
  double most[] = {static_cast<double>(runtime::memory_count().peak_bytes),
                   static_cast<double>(allocations_.take()),
                   static_cast<double>(runtime::peak_resident_bytes()), seconds,
                   static_cast<double>(trainer_.planned_peak_bytes())};
  world_.all_reduce_max(most, 5);
  StepMetrics metrics;
  metrics.step = step;
  metrics.result = result;
  if (result.pairs) metrics.rewards.emplace(*result.pairs, training.dpo_beta);
  metrics.tokens = trainer_.progress().samples * training.sequence_length;
  metrics.step_seconds = most[3];
  if (!result.pairs && result.counted_terms != tokens)
    metrics.counted_tokens = result.counted_terms;
  metrics.tokens_per_second = static_cast<double>(tokens) / most[3];
  metrics.mfu = usage_.peak().utilization(trainer_.model_flops() / most[3]);
  metrics.mfu_uncertain = usage_.peak().is_uncertain();
  metrics.planned_peak_bytes = static_cast<std::int64_t>(most[4]);
  metrics.peak_bytes = static_cast<std::int64_t>(most[0]);
  metrics.allocations = static_cast<std::int64_t>(most[1]);
  metrics.resident_bytes = static_cast<std::int64_t>(most[2]);
  const std::int64_t digest_every = settings_.output.digest_every;
  if (digest_every > 0 && step % digest_every == 0) metrics.state_digest = trainer_.state_digest();
  return metrics;
}

}  // namespace ostrakon::train
