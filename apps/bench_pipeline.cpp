// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/stages.hpp>
#include <ostrakon/plan/timing.hpp>
#include <ostrakon/train/make_trainer.hpp>
#include <thread>
#include <vector>

#include "bench.hpp"

namespace ostrakon::bench {
namespace {

/// What each forward of a unit sleeps, and each backward twice.
constexpr double forward_seconds = 0.01;

/// A step of the deck whose units sleep: stages wait for each other as on a machine on which
/// compute takes that long, whatever the cores here.
class SleepingSteps {
 public:
  SleepingSteps(comm::Communicator& parent, const config::Settings& settings, double budget)
      : mesh_(parent.mpi(), static_cast<int>(settings.ranks_per_node), settings.shard_group,
              static_cast<int>(settings.pipeline)),
        trainer_(train::make_trainer(settings, mesh_)) {
    comm::Communicator& world = mesh_.world();
    const std::unique_ptr<data::Dataset> dataset =
        data::open_dataset(settings.data, data::Split::training, settings.training.sequence_length,
                           settings.model.vocabulary, settings.training.seed, world);
    trainer_.require_memory();
    trainer_.allocate();
    trainer_.initialize();
    trainer_.observe([&](plan::Kind kind, bool begins) {
      if (begins || seconds_of(kind) == 0.0) return;
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds_of(kind)));
    });
    trainer_.step(*dataset, 1);
    std::vector<double> steps;
    double total = 0.0;
    for (std::int64_t step = 2; steps.size() < 3 || total < budget; ++step) {
      world.barrier();
      const Stopwatch timer;
      trainer_.step(*dataset, step);
      double seconds = timer.seconds();
      world.maximum(&seconds, 1);
      total += seconds;
      steps.push_back(seconds);
    }
    measured_ = summarize(steps).fastest;
    simulate(settings);
  }

  double measured() const { return measured_; }
  double planned() const { return planned_; }
  /// Share of a step in which a stage does not compute, mean over stages.
  double bubble() const { return 1.0 - busy_ / measured_; }
  double planned_bubble() const { return 1.0 - busy_ / planned_; }
  std::int64_t micro_batches() const {
    return trainer_.program(plan::Purpose::train).plan.grid.micro_batches();
  }

 private:
  static double seconds_of(plan::Kind kind) {
    return kind == plan::Kind::forward    ? forward_seconds
           : kind == plan::Kind::backward ? 2.0 * forward_seconds
                                          : 0.0;
  }

  /// Plays the plans of all stages with actions that take as long as they sleep.
  void simulate(const config::Settings& settings) {
    const plan::ModelDescription model =
        train::describe(*train::make_decoder(settings), settings.optimizer);
    const plan::Policy& policy = trainer_.settings().policy;
    std::vector<plan::StepPlan> stages =
        plan::build_stage_plans(model, plan::make_chunks(model, policy), mesh_.stage().size(),
                                policy, plan::Purpose::train);
    std::vector<const plan::StepPlan*> pointers;
    for (plan::StepPlan& stage : stages) {
      for (plan::Action& action : stage.actions) action.flops = seconds_of(action.kind);
      pointers.push_back(&stage);
    }
    plan::Rates rates;
    rates.flops = 1.0;
    rates.bytes_inside_nodes = rates.bytes_across_nodes = 1e15;
    rates.bytes_copied = rates.bytes_on_host = 1e15;
    for (const plan::Timing& timing : plan::estimate_times(pointers, 0, rates)) {
      planned_ = timing.seconds;
      busy_ += timing.computing / static_cast<double>(stages.size());
    }
  }

  mesh::Mesh mesh_;
  train::Trainer trainer_;
  double measured_ = 0.0, planned_ = 0.0, busy_ = 0.0;
};

}  // namespace

void run_pipeline(comm::Communicator& world, config::Settings settings, const Options& options) {
  use_synthetic_data_if_needed(world, settings);
  world.agree([&] {
    config::check_ranks(settings, world.size());
    require(settings.pipeline > 1, "parallel.pipeline = ", settings.pipeline,
            ": one stage waits for no other; expected 2 or more");
  });
  Table table("pipeline",
              {{"schedule", "schedule", Format::text, 12},
               {"chunks", "chunks", Format::count, 6},
               {"micro-batches", "micro_batches", Format::count, 13},
               {"step", "step_seconds", Format::seconds, 10},
               {"by the plan", "planned_step_seconds", Format::seconds, 11},
               {"bubble", "bubble", Format::percent, 8},
               {"by the plan", "planned_bubble", Format::percent, 11}},
              options.json, world.rank() == 0);
  settings.parallel.chunk_units.clear();
  for (const int chunks : {1, 2, 4}) {
    const std::int64_t per_unit = std::max<std::int64_t>(settings.model.blocks_per_unit, 1);
    const std::int64_t units = (settings.model.layers + per_unit - 1) / per_unit + 2;
    const std::int64_t micro_batches =
        settings.leaves() * settings.tensor * settings.pipeline / world.size();
    const bool interleaves =
        micro_batches <= settings.pipeline || micro_batches % settings.pipeline == 0;
    if (chunks * settings.pipeline > units || (chunks > 1 && !interleaves)) break;
    settings.parallel.chunks = chunks;
    settings.parallel.schedule = chunks == 1 ? plan::ScheduleKind::one_forward_one_backward
                                             : plan::ScheduleKind::interleaved;
    const SleepingSteps steps(world, settings, options.seconds > 0.0 ? options.seconds : 3.0);
    table.row({plan::name(settings.parallel.schedule), chunks, steps.micro_batches(),
               steps.measured(), steps.planned(), steps.bubble(), steps.planned_bubble()});
  }
}

}  // namespace ostrakon::bench
