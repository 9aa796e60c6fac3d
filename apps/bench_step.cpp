// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/config/machine_file.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/simulate/prediction.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <ostrakon/trainer/peak_rate.hpp>
#include <ostrakon/trainer/threads.hpp>

#include "bench.hpp"
#include "program.hpp"

namespace ostrakon::bench {
namespace {

using plan::Purpose;

constexpr std::size_t kinds = plan::kinds;

/// Calls and seconds of each kind of plan action on this rank since reset().
class KindClock {
 public:
  void add(const plan::StepPlan& plan, const std::vector<runtime::ActionTime>& times) {
    for (std::size_t a = 0; a < times.size(); ++a) {
      const auto kind = static_cast<std::size_t>(plan.actions[a].kind);
      seconds[kind] += times[a].end - times[a].begin;
      calls[kind] += 1;
    }
  }
  void reset() {
    seconds.fill(0.0);
    calls.fill(0);
  }

  std::array<double, kinds> seconds{};
  std::array<std::int64_t, kinds> calls{};
};

class StepBench {
 public:
  StepBench(comm::Communicator& parent, const config::Settings& settings, const Options& options)
      : settings_(settings),
        options_(options),
        mesh_(parent.mpi(), static_cast<int>(settings.ranks_per_node), settings.shard_group,
              static_cast<int>(settings.pipeline)),
        world_(mesh_.world()),
        trainer_(train::make_trainer(settings, mesh_)) {}

  void all() {
    if (!options_.machine.empty()) read_machine();
    const std::unique_ptr<data::Dataset> dataset = data::open_dataset(
        settings_.data, data::Split::training, settings_.training.sequence_length,
        settings_.model.vocabulary, settings_.training.seed, world_);
    trainer_.require_memory();
    trainer_.allocate();
    train::PeakRate peak = first_peak();
    trainer_.initialize();
    for (plan::Stream stream : {plan::Stream::gather, plan::Stream::reduce, plan::Stream::exchange})
      trainer_.slow_down(stream, options_.added_seconds_per_byte);
    run_steps(*dataset);
    if (peak.origin() == train::PeakRate::Origin::measured)
      peak.measure_again(trainer_.measure_peak_flops());
    show_step(peak);
    show_kinds(peak.rate());
    if (!options_.machine.empty()) show_prediction();
  }

 private:
  void read_machine() {
    world_.run_collectively([&] {
      require(settings_.pipeline == 1,
              "--machine: predicts steps without stages, found parallel.pipeline = ",
              settings_.pipeline, "; ostrakon-plan --time does");
      machine_ = config::read_machine(apps::read_file(options_.machine), options_.machine);
    });
    machine_.added_seconds_per_byte = options_.added_seconds_per_byte;
  }

  train::PeakRate first_peak() {
    using train::PeakRate;
    const double given = settings_.runtime.peak_gflops * 1e9;
    if (given > 0.0) return {given, PeakRate::Origin::given};
    return {trainer_.measure_peak_flops(1.0), PeakRate::Origin::measured};
  }

  void run_steps(data::Dataset& dataset) {
    constexpr std::int64_t warm_up = 1, least = 3;
    const double budget = options_.seconds > 0.0 ? options_.seconds : 10.0;
    double total = 0.0;
    for (std::int64_t step = 1; step <= warm_up + least || total < budget; ++step) {
      if (step == warm_up + 1) clock_.reset();
      world_.barrier();
      const Stopwatch timer;
      trainer_.step(dataset, step);
      double seconds = timer.seconds();
      clock_.add(trainer_.program(Purpose::train).plan, trainer_.action_times());
      world_.maximum(&seconds, 1);  // the same on all ranks, so that they stop after the same step
      if (step <= warm_up) continue;
      step_seconds_.push_back(seconds);
      total += seconds;
    }
  }

  void show_step(train::PeakRate& peak) {
    const Seconds times = summarize(step_seconds_);
    const double seconds = times.median;
    const auto tokens = static_cast<double>(settings_.training.global_batch_size *
                                            settings_.training.sequence_length);
    double counted[] = {static_cast<double>(runtime::memory_count().peak_bytes),
                        static_cast<double>(runtime::peak_resident_bytes())};
    world_.maximum(counted, 2);
    peak.utilization(trainer_.model_flops() / times.fastest);
    const double mfu = peak.utilization(trainer_.model_flops() / seconds);
    Table table("step",
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
                 {"data", "data", Format::text, 0}},
                options_.json, world_.rank() == 0);
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
    comm::check_mpi(MPI_Allreduce(MPI_IN_PLACE, clock_.seconds.data(), kinds, MPI_DOUBLE, MPI_SUM,
                                  world_.mpi()),
                    "MPI_Allreduce");
    std::array<double, kinds> flops{};
    for (const plan::Action& action : trainer_.program(Purpose::train).plan.actions)
      flops[static_cast<std::size_t>(action.kind)] += action.flops;
    const auto steps = static_cast<double>(step_seconds_.size());
    double all = 0.0;
    for (double seconds : step_seconds_) all += seconds / steps;

    if (world_.rank() == 0 && !options_.json) std::cout << "\n";
    Table table("step_action",
                {{"action", "action", Format::text, 16},
                 {"calls", "calls", Format::count, 6},
                 {"time", "seconds", Format::seconds, 10},
                 {"share", "share", Format::percent, 7},
                 {"GFLOP/s", "gigaflops", Format::number, 8},
                 {"of peak", "ratio_to_peak", Format::ratio, 8}},
                options_.json, world_.rank() == 0);
    double rest = all;
    for (std::size_t k = 0; k < kinds; ++k) {
      if (clock_.calls[k] == 0) continue;
      const double seconds = clock_.seconds[k] / world_.size() / steps;
      rest -= seconds;
      Table::Row row = {plan::name(static_cast<plan::Kind>(k)),
                        clock_.calls[k] / static_cast<std::int64_t>(step_seconds_.size()),
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
    const plan::StepPlan& plan = trainer_.program(Purpose::train).plan;
    const simulate::Streams streams = trainer_.streams() == runtime::Streams::in_plan_order
                                          ? simulate::Streams::one_after_the_other
                                          : simulate::Streams::concurrent;
    const simulate::Prediction found = simulate::predict({&plan}, machine_, mesh_.ranks_per_node(),
                                                         streams, trainer_.model_flops());
    std::array<double, kinds> seconds{};
    for (std::size_t a = 0; a < plan.actions.size(); ++a)
      seconds[static_cast<std::size_t>(plan.actions[a].kind)] +=
          found.timings.front().ends[a] - found.timings.front().begins[a];
    if (world_.rank() == 0 && !options_.json) std::cout << "\n";
    Table table("step_prediction",
                {{"action", "action", Format::text, 16},
                 {"predicted", "predicted_seconds", Format::seconds, 10},
                 {"measured", "measured_seconds", Format::seconds, 10},
                 {"ratio", "ratio", Format::ratio, 6}},
                options_.json, world_.rank() == 0);
    const auto steps = static_cast<double>(step_seconds_.size());
    for (std::size_t k = 0; k < kinds; ++k) {
      const double measured = clock_.seconds[k] / world_.size() / steps;
      if (clock_.calls[k] > 0 && (seconds[k] > 0.0 || measured > 1e-4))
        table.row(
            {plan::name(static_cast<plan::Kind>(k)), seconds[k], measured, seconds[k] / measured});
    }
    const double median = summarize(step_seconds_).median;
    table.row({"step", found.step_seconds, median, found.step_seconds / median});
  }

  const config::Settings settings_;
  const Options options_;
  mesh::Mesh mesh_;
  comm::Communicator& world_;
  train::Trainer trainer_;
  simulate::Machine machine_;  ///< from --machine
  KindClock clock_;
  std::vector<double> step_seconds_;
};

}  // namespace

void use_synthetic_data_if_needed(comm::Communicator& world, config::Settings& settings) {
  bool there = std::filesystem::exists(settings.data.path);
  world.broadcast(&there, sizeof there, 0);
  if (!there) settings.data.dataset = data::DatasetKind::synthetic;
  settings.training.steps = std::max<std::int64_t>(settings.training.steps, 1000000);
}

void run_step(comm::Communicator& world, config::Settings settings, const Options& options) {
  use_synthetic_data_if_needed(world, settings);
  world.run_collectively([&] { config::check_ranks(settings, world.size()); });
  train::set_matrix_threads(settings, world);
  StepBench(world, settings, options).all();
}

}  // namespace ostrakon::bench
