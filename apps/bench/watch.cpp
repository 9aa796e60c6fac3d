// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ctime>
#include <optional>
#include <ostrakon/run/rank_times.hpp>
#include <ostrakon/trainer/programs.hpp>
#include <ostrakon/watch/watchdog.hpp>
#include <utility>

#include "bench.hpp"

namespace ostrakon::bench {
namespace {

/// Seconds that the processors have worked for this process: other work on the machine does not
/// count.
double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Steps of a trainer, with a watchdog and times of ranks or without.
class WatchedSteps {
 public:
  WatchedSteps(comm::Communicator& parent, config::Settings settings)
      : settings_(std::move(settings)), training_(parent.mpi(), settings_) {
    training_.prepare();
    take(true);
    take(false);
  }

  /// Takes a step; returns its seconds.
  double take(bool watched) {
    std::optional<watch::Progress> progress;
    std::optional<watch::Watchdog> watchdog;
    if (watched) {
      progress.emplace(train::rank_in_plans(training_.mesh));
      comm::Communicator& world = training_.world;
      watch::Watchdog::Setup setup;
      setup.progress = &*progress;
      setup.rank = world.rank();
      setup.ranks = world.size();
      setup.rank_in_plans = train::rank_in_plans(training_.mesh);
      setup.gather_texts = [&world](const std::string& text) { return world.gather_texts(text); };
      watchdog.emplace(std::move(setup));
    }
    const double begin = processor_seconds();
    training_.trainer.step(*training_.dataset, ++step_);
    if (watched) end_step();
    return processor_seconds() - begin;
  }

  /// Returns the seconds that the calls of a watched step take by themselves.
  double calls_alone() {
    constexpr int repeats = 200;
    const plan::StepPlan& plan = training_.plan();
    watch::Progress progress(train::rank_in_plans(training_.mesh));
    const double begin = processor_seconds();
    for (int i = 0; i < repeats; ++i) {
      progress.begin_run(plan, false);
      for (std::size_t a = 0; a < plan.actions.size(); ++a) {
        const plan::Stream stream = plan.actions[a].stream;
        progress.await(stream, static_cast<int>(a), seconds_now());
        progress.begin(stream, static_cast<int>(a));
        progress.end(stream, static_cast<int>(a), seconds_now());
      }
      progress.end_run();
      end_step();
    }
    return (processor_seconds() - begin) / repeats;
  }

  const plan::StepPlan& plan() const { return training_.plan(); }

 private:
  void end_step() {
    timer_.begin_step();
    timer_.end_step(training_.trainer.program(plan::Purpose::train),
                    training_.trainer.action_times());
  }

  const config::Settings settings_;
  Training training_;
  train::RankTimer timer_;
  std::int64_t step_ = 0;
};

}  // namespace

void run_watch(comm::Communicator& world, config::Settings settings, const Options& options) {
  WatchedSteps steps(world, std::move(settings));
  std::vector<double> plain, watched, ratios;
  double spent = 0.0;
  constexpr std::size_t fewest = 5;
  while (plain.size() < fewest || spent < options.seconds_or(10.0)) {
    // They take turns in being first.
    const bool is_first = plain.size() % 2 == 0;
    const double one = steps.take(is_first), other = steps.take(!is_first);
    watched.push_back(is_first ? one : other);
    plain.push_back(is_first ? other : one);
    ratios.push_back(watched.back() / plain.back() - 1.0);
    spent += one + other;
    world.all_reduce_max(&spent, 1);
  }
  const double median = summarize(plain).median, alone = steps.calls_alone();
  Table table("watch", world, options,
              {{"actions", "actions", Format::count, 8},
               {"steps", "steps", Format::count, 6},
               {"a step", "step_seconds", Format::seconds, 10},
               {"watched", "watched_seconds", Format::seconds, 10},
               {"more, by pairs", "more", Format::percent, 14},
               {"calls alone", "calls_seconds", Format::seconds, 11},
               {"of a step", "calls_share", Format::percent, 10}});
  table.row({steps.plan().actions.size(), plain.size(), median, summarize(watched).median,
             summarize(ratios).median, alone, alone / median});
}

}  // namespace ostrakon::bench
