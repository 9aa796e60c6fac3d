// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <ostrakon/plan/pipeline/end_times.hpp>
#include <ostrakon/runtime/overlap.hpp>

#include "bench.hpp"

namespace ostrakon::bench {
namespace {

/// A variant of the deck's settings.
struct Way {
  const char* streams;
  config::StreamsChoice choice;
  int prefetch;
  std::int64_t chunks;  // value of parallel.tensor_chunks
};

/// Returns variants: of prefetch if parameters are gathered, of chunks if tensor ranks exchange
/// rows.
std::vector<Way> ways_of(const config::Settings& settings) {
  const std::int64_t chunks = settings.tensor_chunks;
  std::vector<Way> ways = {{"inline", config::StreamsChoice::in_plan_order, 1, chunks},
                           {"threads", config::StreamsChoice::threads, 0, chunks},
                           {"threads", config::StreamsChoice::threads, 1, chunks},
                           {"threads", config::StreamsChoice::threads, 2, chunks}};
  if (settings.tensor == 1) return ways;
  const std::int64_t rows = settings.training.micro_batch_size * settings.training.sequence_length /
                            settings.context / settings.tensor;
  for (const std::int64_t more : {1, 2, 4, 8})
    if (more != chunks && rows % more == 0)
      ways.push_back({"threads", config::StreamsChoice::threads, 1, more});
  return ways;
}

/// Steps of one trainer, alternating between the real network and one slower by a known time per
/// byte.
class SlowedSteps {
 public:
  SlowedSteps(comm::Communicator& parent, const config::Settings& settings, double budget)
      : training_(parent.mpi(), settings),
        trainer_(training_.trainer),
        program_(trainer_.program(plan::Purpose::train)),
        actions_(program_.plan.actions.size()) {
    comm::Communicator& world = training_.world;
    data::Dataset& dataset = *training_.dataset;
    training_.prepare();
    const auto bytes = static_cast<double>(program_.plan.bytes_sent());
    trainer_.step(dataset, 1);
    // The delay is half of a step's compute time: what can be overlapped depends on when, not on
    // how much.
    double compute = runtime::measure_overlap(program_, trainer_.action_times()).compute;
    world.all_reduce_max(&compute, 1);
    delay_ = 0.5 * compute;
    seconds_per_byte_ = delay_ / bytes;
    durations_.assign(actions_, 1e9);
    double total = 0.0;
    for (std::int64_t step = 2; step < 8 || total < budget; ++step) {
      const bool slow = step % 2 == 1;
      trainer_.slow_down(slow ? seconds_per_byte_ : 0.0);
      const double seconds = slowest(world, [&] { trainer_.step(dataset, step); });
      total += seconds;
      (slow ? slowed_ : plain_).push_back(seconds);
      if (slow) continue;
      for (std::size_t a = 0; a < actions_; ++a)
        durations_[a] = std::min(durations_[a],
                                 trainer_.action_times()[a].end - trainer_.action_times()[a].begin);
    }
    // A collective takes the time of the rank that came last; the others have waited in it.
    std::vector<double> least = durations_;
    world.all_reduce_min(least.data(), static_cast<int>(least.size()));
    for (std::size_t a = 0; a < actions_; ++a)
      if (plan::communicates(program_.plan.actions[a].kind)) durations_[a] = least[a];
  }

  /// Hidden is the fraction of the delay that does not make steps longer.
  Table::Row row(const Way& way) const {
    // The fastest of many steps is taken: other work of the machine would count as delay.
    const double plain = summarize(plain_).fastest, slowed = summarize(slowed_).fastest;
    return {way.streams,
            way.prefetch,
            way.chunks,
            plain,
            delay_,
            slowed,
            1.0 - (slowed - plain) / delay_,
            hidden_in_plan()};
  }

 private:
  /// Fraction of the delay that the plan hides, with the actions' times measured without the delay.
  double hidden_in_plan() const {
    const auto step_seconds = [&](double seconds_per_byte) {
      std::vector<double> seconds = durations_;
      for (std::size_t a = 0; a < actions_; ++a)
        seconds[a] += seconds_per_byte *
                      static_cast<double>(program_.plan.bytes_sent(program_.plan.actions[a]));
      if (trainer_.streams() == runtime::Streams::in_plan_order)
        return std::accumulate(seconds.begin(), seconds.end(), 0.0);
      const std::vector<double> ends = plan::end_times(program_.plan, seconds);
      return *std::max_element(ends.begin(), ends.end());
    };
    return 1.0 - (step_seconds(seconds_per_byte_) - step_seconds(0.0)) / delay_;
  }

  Training training_;
  train::Trainer& trainer_;
  const runtime::Program& program_;
  const std::size_t actions_;
  double delay_ = 0.0, seconds_per_byte_ = 0.0;
  std::vector<double> plain_, slowed_;
  std::vector<double> durations_;  // shortest time per action in plain steps
};

}  // namespace

void run_overlap(comm::Communicator& world, config::Settings settings, const Options& options) {
  Table table("overlap", world, options,
              {{"streams", "streams", Format::text, 8},
               {"prefetch", "prefetch", Format::count, 8},
               {"chunks", "tensor_chunks", Format::count, 6},
               {"step", "step_seconds", Format::seconds, 10},
               {"delay", "delay_seconds", Format::seconds, 10},
               {"slow step", "slow_step_seconds", Format::seconds, 10},
               {"hidden", "hidden", Format::percent, 8},
               {"by the plan", "hidden_in_plan", Format::percent, 11}});
  for (const Way& way : ways_of(settings)) {
    if (has_device && way.choice == config::StreamsChoice::threads) continue;
    settings.runtime.streams = way.choice;
    settings.parallel.forward_prefetch = settings.parallel.backward_prefetch = {way.prefetch, {}};
    settings.parallel.in_flight_reductions = way.prefetch;
    settings.tensor_chunks = way.chunks;
    table.row(SlowedSteps(world, settings, options.seconds_or(10.0)).row(way));
  }
}

}  // namespace ostrakon::bench
