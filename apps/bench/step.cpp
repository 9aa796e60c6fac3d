// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/config/machine_file.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/simulate/prediction.hpp>
#include <ostrakon/trainer/peak_rate.hpp>
#include <utility>

#include "../common/program.hpp"
#include "bench.hpp"
#include "kernel_times.hpp"

namespace ostrakon::bench {
namespace {

constexpr std::size_t kinds = plan::kinds;

class StepBench {
 public:
  StepBench(comm::Communicator& parent, config::Settings settings, const Options& options)
      : settings_(std::move(settings)),
        options_(options),
        training_(parent.mpi(), settings_),
        world_(training_.world),
        trainer_(training_.trainer) {}

  void all() {
    if (!options_.machine.empty()) read_machine();
    trainer_.require_memory();
    trainer_.allocate();
    train::PeakRate peak = train::peak_rate(settings_.runtime.peak_gflops,
                                            [this] { return trainer_.measure_peak_flops(1.0); });
    trainer_.initialize();
    trainer_.slow_down(added_seconds_per_byte());
    run_steps();
    if (peak.origin() == train::PeakRate::Origin::measured)
      peak.measure_again(trainer_.measure_peak_flops());
    show_step(peak);
    show_kinds(peak.rate());
    if (!options_.machine.empty()) show_prediction();
    if (options_.kernels) show_kernels();
  }

 private:
  void read_machine() {
    world_.run_collectively([&] {
      require(settings_.pipeline == 1,
              "--machine: predicts steps without stages, found parallel.pipeline = ",
              settings_.pipeline, "; ostrakon-plan --time does");
      machine_ = config::read_machine(apps::read_file(options_.machine), options_.machine);
      config::require_rates(settings_, machine_);
      config::require_own_steps(machine_, "--machine predicts the steps that are measured here");
    });
    machine_.added_seconds_per_byte = added_seconds_per_byte();
  }

  double added_seconds_per_byte() const { return 1e-9 * options_.added_nanoseconds_per_byte; }

  void run_steps() {
    constexpr std::int64_t warm_up = 1, least = 3;
    double total = 0.0;
    for (std::int64_t step = 1; step <= warm_up + least || total < options_.seconds_or(10.0);
         ++step) {
      const double seconds = slowest(world_, [&] { trainer_.step(*training_.dataset, step); });
      if (step <= warm_up) continue;
      for (std::size_t a = 0; a < training_.plan().actions.size(); ++a) {
        const auto kind = static_cast<std::size_t>(training_.plan().actions[a].kind);
        const runtime::ActionTime& times = trainer_.action_times()[a];
        kind_seconds_[kind] += times.end - times.begin;
        kind_calls_[kind] += 1;
      }
      step_seconds_.push_back(seconds);
      total += seconds;
    }
  }

  /// Shows the kernels of this rank in steps of their own, as measuring takes time.
  void show_kernels() {
    std::unique_ptr<KernelTimes> times;
    world_.run_collectively([&] { times = measure_kernels(); });
    constexpr std::int64_t warm_up = 1, least = 3;
    const auto before = static_cast<std::int64_t>(step_seconds_.size()) + warm_up;
    std::map<std::string, KernelTime> kernels;
    double seconds = 0.0;
    std::int64_t steps = 0;
    for (; steps < warm_up + least || seconds < 0.25 * options_.seconds_or(10.0); ++steps) {
      const double taken =
          slowest(world_, [&] { trainer_.step(*training_.dataset, before + steps + 1); });
      Kokkos::fence();
      const std::map<std::string, KernelTime> more = times->take();
      if (steps < warm_up) continue;
      seconds += taken;
      for (const auto& [name, time] : more) {
        kernels[name].calls += time.calls;
        kernels[name].seconds += time.seconds;
      }
    }
    times.reset();
    steps -= warm_up;
    show_kernels(kernels, seconds, steps);
  }

  void show_kernels(const std::map<std::string, KernelTime>& kernels, double seconds,
                    std::int64_t steps) {
    std::vector<std::pair<std::string, KernelTime>> longest(kernels.begin(), kernels.end());
    std::sort(longest.begin(), longest.end(),
              [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
    KernelTime all;
    for (const auto& [name, time] : longest) {
      all.calls += time.calls;
      all.seconds += time.seconds;
    }
    say(world_, options_, "\n");
    Table table("step_kernel", world_, options_,
                {{"kernel", "kernel", Format::text, 32},
                 {"share", "share", Format::percent, 7},
                 {"a step", "calls", Format::count, 8},
                 {"mean", "mean_seconds", Format::seconds, 10},
                 {"sum", "seconds", Format::seconds, 10}});
    const auto row = [&](const std::string& name, const KernelTime& time) {
      table.row({name, time.seconds / all.seconds, (time.calls + steps / 2) / steps,
                 time.seconds / static_cast<double>(time.calls),
                 time.seconds / static_cast<double>(steps)});
    };
    for (const auto& [name, time] : longest) row(name, time);
    say(world_, options_, "\n");
    Table sums("step_kernels", world_, options_,
               {{"steps", "steps", Format::count, 5},
                {"step", "step_seconds", Format::seconds, 10},
                {"kernels", "kernel_seconds", Format::seconds, 10},
                {"of the step", "share", Format::percent, 11},
                {"a step", "calls", Format::count, 8}});
    sums.row({steps, seconds / static_cast<double>(steps), all.seconds / static_cast<double>(steps),
              all.seconds / seconds, (all.calls + steps / 2) / steps});
  }

  void show_step(train::PeakRate& peak) {
    const Seconds times = summarize(step_seconds_);
    const double seconds = times.median;
    const auto tokens = static_cast<double>(settings_.training.global_batch_size *
                                            settings_.training.sequence_length);
    double counted[] = {static_cast<double>(runtime::memory_count().peak_bytes),
                        static_cast<double>(runtime::peak_resident_bytes())};
    world_.all_reduce_max(counted, 2);
    peak.utilization(trainer_.model_flops() / times.fastest);
    const double mfu = peak.utilization(trainer_.model_flops() / seconds);
    Table table("step", world_, options_,
                {{"ranks", "ranks", Format::count, 5},
                 {"steps", "steps", Format::count, 5},
                 {"step", "step_seconds", Format::seconds, 10},
                 {"fastest", "fastest_step_seconds", Format::seconds, 10},
                 {"tokens/s", "tokens_per_second", Format::number, 10},
                 {"peak GFLOP/s", "peak_gigaflops", Format::number, 12},
                 {"MFU", "mfu", Format::percent, 7},
                 {"planned", "planned_peak_bytes", Format::bytes, 11},
                 {"counted", "peak_bytes", Format::bytes, 11},
                 {"resident", "resident_bytes", Format::bytes, 11},
                 {"peak is", "peak_origin", Format::text, 9},
                 {"data", "data", Format::text, 0}});
    table.row({world_.size(), step_seconds_.size(), seconds, times.fastest, tokens / seconds,
               peak.rate() * 1e-9, mfu, trainer_.planned_peak_bytes(),
               static_cast<std::int64_t>(counted[0]), static_cast<std::int64_t>(counted[1]),
               peak.is_uncertain()                               ? "too low"
               : peak.origin() == train::PeakRate::Origin::given ? "given"
                                                                 : "measured",
               data::name(settings_.data.dataset)});
  }

  /// Shows seconds per kind, means over ranks and steps, so that they add up if streams run inline.
  /// Waits for other ranks are part of collectives.
  void show_kinds(double peak) {
    comm::check_mpi(
        MPI_Allreduce(MPI_IN_PLACE, kind_seconds_.data(), kinds, MPI_DOUBLE, MPI_SUM, world_.mpi()),
        "MPI_Allreduce");
    std::array<double, kinds> flops{};
    for (const plan::Action& action : training_.plan().actions)
      flops[static_cast<std::size_t>(action.kind)] += action.flops;
    const auto steps = static_cast<double>(step_seconds_.size());
    double all = 0.0;
    for (double seconds : step_seconds_) all += seconds / steps;

    say(world_, options_, "\n");
    Table table("step_action", world_, options_,
                {{"action", "action", Format::text, 16},
                 {"calls", "calls", Format::count, 6},
                 {"time", "seconds", Format::seconds, 10},
                 {"share", "share", Format::percent, 7},
                 {"GFLOP/s", "gigaflops", Format::number, 8},
                 {"of peak", "ratio_to_peak", Format::ratio, 8}});
    double rest = all;
    for (std::size_t k = 0; k < kinds; ++k) {
      if (kind_calls_[k] == 0) continue;
      const double seconds = kind_seconds_[k] / world_.size() / steps;
      rest -= seconds;
      Table::Row row = {plan::name(static_cast<plan::Kind>(k)),
                        kind_calls_[k] / static_cast<std::int64_t>(step_seconds_.size()),
                        seconds,
                        seconds / all,
                        nullptr,
                        nullptr};
      if (flops[k] > 0.0) {
        row[4] = flops[k] / seconds * 1e-9;
        row[5] = flops[k] / seconds / peak;
      }
      table.row(row);
    }
    if (trainer_.streams() == runtime::Streams::in_plan_order)
      table.row({"between", nullptr, rest, rest / all, nullptr, nullptr});
  }

  /// Shows the simulation's prediction for this step and its actions.
  void show_prediction() {
    const plan::StepPlan& plan = training_.plan();
    const simulate::Streams streams = trainer_.streams() == runtime::Streams::in_plan_order
                                          ? simulate::Streams::one_after_the_other
                                          : simulate::Streams::concurrent;
    const simulate::Prediction found = simulate::predict(
        {&plan}, machine_, training_.mesh.ranks_per_node(), streams, trainer_.model_flops());
    std::array<double, kinds> seconds{};
    for (std::size_t a = 0; a < plan.actions.size(); ++a)
      seconds[static_cast<std::size_t>(plan.actions[a].kind)] +=
          found.timings.front().ends[a] - found.timings.front().begins[a];
    say(world_, options_, "\n");
    Table table("step_prediction", world_, options_,
                {{"action", "action", Format::text, 16},
                 {"predicted", "predicted_seconds", Format::seconds, 10},
                 {"measured", "measured_seconds", Format::seconds, 10},
                 {"ratio", "ratio", Format::ratio, 6}});
    const auto steps = static_cast<double>(step_seconds_.size());
    for (std::size_t k = 0; k < kinds; ++k) {
      const double measured = kind_seconds_[k] / world_.size() / steps;
      if (kind_calls_[k] > 0 && (seconds[k] > 0.0 || measured > 1e-4))
        table.row(
            {plan::name(static_cast<plan::Kind>(k)), seconds[k], measured, seconds[k] / measured});
    }
    const double median = summarize(step_seconds_).median;
    table.row({"step", found.step_seconds, median, found.step_seconds / median});
  }

  const config::Settings settings_;
  const Options options_;
  Training training_;
  comm::Communicator& world_;
  train::Trainer& trainer_;
  simulate::Machine machine_;                 ///< from --machine
  std::array<double, kinds> kind_seconds_{};  ///< of this rank's actions
  std::array<std::int64_t, kinds> kind_calls_{};
  std::vector<double> step_seconds_;
};

}  // namespace

void run_step(comm::Communicator& world, config::Settings settings, const Options& options) {
  StepBench(world, std::move(settings), options).all();
}

}  // namespace ostrakon::bench
