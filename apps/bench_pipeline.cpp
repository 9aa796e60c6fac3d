// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <functional>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/plan/stage_plans.hpp>
#include <ostrakon/plan/timing/timing.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "bench.hpp"
#include "bench_layers.hpp"

namespace ostrakon::bench {
namespace {

/// Seconds that a block's forward sleeps. Backward sleeps twice as long, once in each phase if it
/// has two; other units do not sleep.
constexpr double forward_seconds = 0.01;

/// Steps whose units sleep, so that stages wait for each other as on a machine with such compute
/// times, whatever the cores here. `settings`: for the ranks, and for `make_trainer`.
class SleepingSteps {
 public:
  SleepingSteps(comm::Communicator& parent, const config::Settings& settings,
                const std::function<train::Trainer(mesh::Mesh&)>& make_trainer,
                data::SampleSource& samples, double budget)
      : mesh_(parent.mpi(), static_cast<int>(settings.ranks_per_node), settings.shard_group,
              static_cast<int>(settings.pipeline)),
        trainer_(make_trainer(mesh_)) {
    comm::Communicator& world = mesh_.world();
    trainer_.require_memory();
    trainer_.allocate();
    auto arena = static_cast<double>(trainer_.program(plan::Purpose::train).memory.arena_bytes);
    world.maximum(&arena, 1);
    arena_bytes_ = static_cast<std::int64_t>(arena);
    trainer_.initialize();
    const plan::StepPlan& own = trainer_.program(plan::Purpose::train).plan;
    Stopwatch action_timer;
    double computing = 0.0;
    trainer_.observe([&](const plan::Action& action, bool begins) {
      if (seconds_of(own, action) == 0.0) return;
      if (begins) {
        action_timer = Stopwatch();
        return;
      }
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds_of(own, action)));
      computing += action_timer.seconds();
    });
    trainer_.step(samples, 1);
    double total = 0.0;
    for (std::int64_t step = 2; step < 5 || total < budget; ++step) {
      world.barrier();
      computing = 0.0;
      const Stopwatch timer;
      trainer_.step(samples, step);
      double seconds = timer.seconds();
      world.maximum(&seconds, 1);
      total += seconds;
      if (step > 2 && seconds >= measured_) continue;
      measured_ = seconds;
      auto nanoseconds = static_cast<std::int64_t>(1e9 * computing);
      world.sum(&nanoseconds, 1);
      busy_ = 1e-9 * static_cast<double>(nanoseconds) / world.size();
    }
    trainer_.observe({});
    simulate();
  }

  double measured() const { return measured_; }
  double planned() const { return planned_; }
  /// Mean over stages of the fraction of a step in which a stage does not compute.
  double bubble() const { return 1.0 - busy_ / measured_; }
  double planned_bubble() const { return 1.0 - planned_busy_ / planned_; }
  /// Size of the largest arena of all stages.
  std::int64_t arena_bytes() const { return arena_bytes_; }
  std::int64_t micro_batches() const {
    return trainer_.program(plan::Purpose::train).plan.grid.micro_batches();
  }

 private:
  static double seconds_of(const plan::StepPlan& plan, const plan::Action& action) {
    if (action.unit < 0) return 0.0;
    const plan::PlannedUnit& unit = plan.units[static_cast<std::size_t>(action.unit)];
    if (unit.name.rfind("block.", 0) != 0) return 0.0;
    return action.kind == plan::Kind::forward ? forward_seconds
           : action.kind == plan::Kind::backward
               ? 2.0 * forward_seconds / static_cast<double>(unit.backward.size())
               : 0.0;
  }

  /// Simulates the plans of all stages with actions that take as long as they sleep.
  void simulate() {
    const plan::ModelDescription model =
        train::describe(trainer_.model(), trainer_.settings().optimizer);
    const plan::Policy& policy = trainer_.policy();
    std::vector<plan::StepPlan> stages =
        plan::build_stage_plans(model, plan::find_chunks(model, mesh_.stage().size(), policy),
                                mesh_.stage().size(), policy, plan::Purpose::train);
    std::vector<const plan::StepPlan*> pointers;
    for (plan::StepPlan& stage : stages) {
      for (plan::Action& action : stage.actions) action.flops = seconds_of(stage, action);
      pointers.push_back(&stage);
    }
    plan::Rates rates;
    rates.flops = 1.0;
    rates.bytes_inside_nodes = rates.bytes_across_nodes = 1e15;
    rates.bytes_copied = rates.bytes_on_host = 1e15;
    for (const plan::Timing& timing : plan::estimate_times(pointers, 0, rates)) {
      planned_ = timing.seconds;
      planned_busy_ += timing.computing / static_cast<double>(stages.size());
    }
  }

  mesh::Mesh mesh_;
  train::Trainer trainer_;
  std::int64_t arena_bytes_ = 0;
  double measured_ = 0.0, busy_ = 0.0, planned_ = 0.0, planned_busy_ = 0.0;
};

void add_row(Table& table, const std::string& what, int chunks, const SleepingSteps& steps) {
  table.row({what, chunks, steps.micro_batches(), steps.arena_bytes(), steps.measured(),
             steps.planned(), steps.bubble(), steps.planned_bubble()});
}

}  // namespace

void run_pipeline(comm::Communicator& world, config::Settings settings, const Options& options) {
  use_synthetic_data_if_needed(world, settings);
  world.run_collectively([&] {
    config::check_ranks(settings, world.size());
    require(settings.pipeline > 1, "parallel.pipeline = ", settings.pipeline,
            ": one stage waits for no other; expected 2 or more");
    require(settings.model.layers % settings.pipeline == 0,
            "model.layers = ", settings.model.layers,
            " with parallel.pipeline = ", settings.pipeline,
            ": expected a multiple, so that stages take equally long");
    require(!config::has_expert_units(settings), "model.experts = ", settings.model.experts.count,
            " with parallel.expert = ", settings.expert,
            " and model.tensor_grain = ", settings.tensor_grain,
            ": stages are counted in blocks, and experts are units of their ",
            "own here; expected both to be 1, or model.experts = 0");
  });
  Table table("pipeline",
              {{"schedule", "schedule", Format::text, 22},
               {"chunks", "chunks", Format::count, 6},
               {"micro-batches", "micro_batches", Format::count, 13},
               {"arena", "arena_bytes", Format::bytes, 11},
               {"step", "step_seconds", Format::seconds, 10},
               {"by the plan", "planned_step_seconds", Format::seconds, 11},
               {"bubble", "bubble", Format::percent, 8},
               {"by the plan", "planned_bubble", Format::percent, 11}},
              options.json, world.rank() == 0);
  settings.model.blocks_per_unit = 1;
  const double budget = options.seconds > 0.0 ? options.seconds : 3.0;
  const std::unique_ptr<data::Dataset> dataset =
      data::open_dataset(settings.data, data::Split::training, settings.training.sequence_length,
                         settings.model.vocabulary, settings.training.seed, world);
  const std::int64_t stages = settings.pipeline;
  const std::int64_t micro_batches =
      settings.leaves() * settings.tensor * settings.pipeline / world.size();
  const bool interleaves = micro_batches <= stages || micro_batches % stages == 0;
  using plan::ScheduleKind;
  using plan::ZeroBubbleMemory;
  const auto limited = ZeroBubbleMemory::as_1f1b;
  for (const auto& [schedule, memory, chunks] :
       {std::tuple{ScheduleKind::one_forward_one_backward, limited, 1},
        {ScheduleKind::zero_bubble, limited, 1},
        {ScheduleKind::zero_bubble, ZeroBubbleMemory::unlimited, 1},
        {ScheduleKind::interleaved, limited, 2},
        {ScheduleKind::interleaved, limited, 4}}) {
    if (chunks > 1 && (!interleaves || settings.model.layers % (stages * chunks) != 0)) break;
    settings.parallel.chunks = chunks;
    settings.parallel.schedule = schedule;
    settings.parallel.zero_bubble_memory = memory;
    // All chunks get equally many blocks.
    std::vector<int>& units = settings.parallel.chunk_units;
    units.assign(static_cast<std::size_t>(stages * chunks),
                 static_cast<int>(settings.model.layers / (stages * chunks)));
    ++units.front();
    ++units.back();
    const bool is_larger = memory == ZeroBubbleMemory::unlimited;
    add_row(
        table, text(plan::name(schedule), is_larger ? ", unlimited" : ""), chunks,
        SleepingSteps(
            world, settings, [&](mesh::Mesh& mesh) { return train::make_trainer(settings, mesh); },
            *dataset, budget));
    // This times a schedule that is limited only by its order.
    if (chunks > 1 || is_larger || settings.tensor * settings.context > 1) continue;
    NoSamples samples;
    const auto make_trainer = [&](mesh::Mesh& mesh) {
      train::TrainerSettings own;
      own.policy.schedule = settings.parallel.schedule;
      own.policy.chunk_units = units;
      own.global_batch_size = settings.leaves();
      return train::Trainer(make_layers(settings.model.layers, 4096), own, mesh);
    };
    add_row(table, text(plan::name(schedule), ", layers"), chunks,
            SleepingSteps(world, settings, make_trainer, samples, budget));
  }
}

}  // namespace ostrakon::bench
