// SPDX-License-Identifier: Apache-2.0
#include "timed_steps.hpp"

#include <algorithm>
#include <numeric>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/plan/timing/traffic.hpp>
#include <sstream>

namespace ostrakon::bench {
namespace {

constexpr const char* model_deck = R"(
ostrakon:
  data: {dataset: synthetic}
  training: {steps: 1000000}
  output: {directory: none}
  runtime: {streams: inline}
)";

/// Number of rounds over all measurements, as the speed of a machine changes within a minute.
constexpr int rounds = 2;

/// Removes the quarter with the shortest and the quarter with the longest times.
template <class T>
std::vector<T> middle_half(std::vector<T> all, double T::*time) {
  std::sort(all.begin(), all.end(), [&](const T& a, const T& b) { return a.*time < b.*time; });
  const auto cut = static_cast<std::ptrdiff_t>(all.size() / 4);
  return {all.begin() + cut, all.end() - cut};
}

/// A run with a time of 0 for each action of the plan.
Run without_times(const plan::StepPlan& plan) {
  Run run;
  run.plan = plan;
  run.seconds.assign(plan.actions.size(), 0.0);
  return run;
}

/// Returns the mean of the runs in the middle half by step time; of two runs, the mean of both.
Run usual_of(std::vector<Run> runs) {
  runs = middle_half(std::move(runs), &Run::wall_seconds);
  Run usual = without_times(runs.front().plan);
  for (const Run& run : runs) usual.add(run, 1.0 / static_cast<double>(runs.size()));
  return usual;
}

/// Replaces the times of collectives by those of the rank that comes last.
void leave_out_waits(comm::Communicator& group, const plan::StepPlan& plan,
                     std::vector<double>& seconds) {
  if (group.size() == 1) return;
  std::vector<double> least = seconds;
  group.all_reduce_min(least.data(), static_cast<int>(least.size()));
  for (std::size_t a = 0; a < least.size(); ++a)
    if (plan::array_bytes(plan.actions[a]) > 0) seconds[a] = least[a];
}

}  // namespace

void Run::add(const Run& other, double times) {
  for (std::size_t a = 0; a < seconds.size(); ++a) seconds[a] += times * other.seconds[a];
  step_seconds += times * other.step_seconds;
  wall_seconds += times * other.wall_seconds;
  between += times * other.between;
}

config::Settings TimedSteps::settings_of(const TimedModel& model,
                                         const std::vector<std::string>& more) {
  std::vector<config::Override> overrides;
  std::istringstream all(model.settings);
  for (std::string one; all >> one;) overrides.push_back(config::parse_override(one));
  for (const std::string& one : more) overrides.push_back(config::parse_override(one));
  return config::read_settings(model_deck, "deck of ostrakon-bench machine", overrides);
}

Run TimedSteps::run(const config::Settings& settings, MPI_Comm group) {
  Training training(group, settings);
  training.prepare();
  std::vector<Run> steps;
  double total = 0.0;
  for (std::int64_t number = 1; number <= 4 || total < budget_; ++number) {
    Run step;
    const double longest = slowest(world_, [&] {
      const Stopwatch timer;
      training.trainer.step(*training.dataset, number);
      step.wall_seconds = timer.seconds();
    });
    for (const auto& times : training.trainer.action_times()) {
      step.seconds.push_back(times.end - times.begin);
      step.step_seconds += step.seconds.back();  // includes waits for others
    }
    step.between = step.wall_seconds - step.step_seconds;
    training.world.all_reduce_max(&step.wall_seconds, 1);
    leave_out_waits(training.world, training.plan(), step.seconds);
    if (number == 1) continue;
    total += longest;
    steps.push_back(std::move(step));
  }
  steps = middle_half(std::move(steps), &Run::step_seconds);
  Run found = without_times(training.plan());
  for (const Run& step : steps) found.add(step, 1.0 / static_cast<double>(steps.size()));
  to_means(found.seconds.data(), found.seconds.size());
  found.step_seconds = std::accumulate(found.seconds.begin(), found.seconds.end(), 0.0);
  found.between = mean(found.between);
  found.wall_seconds = mean(found.wall_seconds);  // ranks leave out different steps
  return found;
}

std::vector<std::vector<Run>> TimedSteps::runs_of(
    const std::vector<TimedModel>& models, const std::vector<std::vector<std::string>>& overrides,
    MPI_Comm group, int ranks) {
  std::vector<std::vector<std::vector<Run>>> all(overrides.size(),
                                                 std::vector<std::vector<Run>>(models.size()));
  const auto measure = [&](std::size_t kind, std::size_t model) {
    config::Settings settings = settings_of(models[model], overrides[kind]);
    settings.training.global_batch_size *= ranks;
    all[kind][model].push_back(run(settings, group));
  };
  for (int round = 0; round < rounds; ++round)
    for (std::size_t m = 0; m < models.size(); ++m)
      for (std::size_t k = 0; k < overrides.size(); ++k) measure(k, m);
  std::vector<std::vector<Run>> usual(overrides.size());
  for (std::size_t m = 0; m < models.size(); ++m)
    for (std::size_t k = 0; k < overrides.size(); ++k) {
      if (differ(all[k][m]))
        for (int round = 0; round < rounds; ++round) measure(k, m);
      usual[k].push_back(usual_of(all[k][m]));
    }
  return usual;
}

double TimedSteps::mean(double value) {
  to_means(&value, 1);
  return value;
}

void TimedSteps::to_means(double* values, std::size_t count) {
  comm::check_mpi(MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(count), MPI_DOUBLE, MPI_SUM,
                                world_.mpi()),
                  "MPI_Allreduce");
  for (std::size_t i = 0; i < count; ++i) values[i] /= world_.size();
}

/// Whether the rounds differ; the same on all ranks.
bool TimedSteps::differ(const std::vector<Run>& runs) {
  const auto [least, most] = std::minmax_element(
      runs.begin(), runs.end(),
      [](const Run& a, const Run& b) { return a.wall_seconds < b.wall_seconds; });
  double apart = most->wall_seconds / least->wall_seconds - 1.0;
  world_.all_reduce_max(&apart, 1);
  constexpr double most_apart = 0.08;
  return apart > most_apart;
}

}  // namespace ostrakon::bench
