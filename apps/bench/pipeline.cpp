// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstring>
#include <ostrakon/base/error.hpp>
#include <ostrakon/data/sample_source.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/model/model.hpp>
#include <ostrakon/model/own_operation.hpp>
#include <ostrakon/plan/ir/description.hpp>
#include <ostrakon/plan/stage_plans.hpp>
#include <ostrakon/plan/timing/timing.hpp>
#include <thread>
#include <tuple>
#include <utility>

#include "bench.hpp"

namespace ostrakon::bench {
namespace {

using model::UnitBuffers;

/// Empty samples for these layers, which do not read any.
class NoSamples final : public data::SampleSource {
 public:
  static constexpr std::int64_t bytes = 64;

  std::int64_t sample_bytes() const override { return bytes; }
  void fill(std::uint64_t /*first*/, std::int64_t count, void* batch) override {
    std::memset(batch, 0, static_cast<std::size_t>(count * bytes));
  }
};

/// A chain of `layers` layers, units "block.0", "block.1", ... between an embedding and a loss, of
/// `width` elements each: u = w x, y = u + u^2 / 2, element by element. Backward replaces u by
/// dL/du; the gradient of w, which is deferred, uses that and x, and no further memory.
class Layers final : public model::Model {
 public:
  Layers(std::int64_t layers, std::int64_t width) : width_(width) {
    const std::int64_t bytes = width * static_cast<std::int64_t>(sizeof(float));
    description_.batch_bytes = NoSamples::bytes;
    description_.gradient_bytes = bytes;
    for (std::int64_t u = 0; u < layers + 2; ++u) {
      const bool is_first = u == 0, is_last = u == layers + 1;
      plan::UnitDescription unit;
      unit.name = is_first ? "embedding" : is_last ? "head" : "block." + std::to_string(u - 1);
      unit.output_bytes = is_last ? static_cast<std::int64_t>(sizeof(float)) : bytes;
      unit.backward_reads_parameters = !is_first;
      std::vector<model::Parameter> parameters;
      if (!is_last) parameters.push_back(model::Parameter::normal("weight", {width}, 0.02));
      const model::SegmentSizes sizes =
          model::lay_out_parameters(parameters, unit.name, model::Frozen());
      unit.parameter_elements = sizes.trained;
      if (!is_first && !is_last) {
        unit.saved_bytes = bytes;
        unit.deferral.backward_at_once = unit.backward;
        unit.backward.emplace_back();
        unit.deferral.phases = 1;
        unit.deferral.bytes = 1;  // marks it as deferred
      }
      description_.units.push_back(std::move(unit));
      parameters_.push_back(std::move(parameters));
    }
  }

  DType dtype() const override { return DType::fp32; }
  int units() const override { return static_cast<int>(parameters_.size()); }
  const std::vector<model::Parameter>& parameters(int unit) const override {
    return parameters_[static_cast<std::size_t>(unit)];
  }
  plan::ModelDescription description() const override { return description_; }
  model::LossTerms loss_terms() const override { return {1, 1, "samples"}; }

  void forward(int unit, const Exec& exec, const UnitBuffers<void>& buffers) const override {
    const Arrays own(*this, buffers);
    if (unit + 1 == units()) return add_up(exec, own);
    const View<const float*> w = own.w, x = own.x;
    const View<float*> u = own.u, y = own.y;
    if (unit == 0) return math::copy<float>(exec, w, y);
    model::for_each(
        exec, width_, KOKKOS_LAMBDA(std::int64_t i) {
          u[i] = w[i] * x[i];
          if (y) y[i] = u[i] + 0.5F * u[i] * u[i];
        });
  }

  void backward(int unit, const Exec& exec, const UnitBuffers<void>& buffers, float loss_scale,
                bool /*adds_gradients*/) const override {
    const Arrays own(*this, buffers);
    if (unit + 1 == units()) {
      add_up(exec, own);
      return math::fill<float>(exec, own.dy, loss_scale / static_cast<float>(width_));
    }
    if (unit == 0) return math::copy<float>(exec, View<const float*>(own.dy), own.dw);
    const bool in_one = !buffers.deferred;
    if (in_one || buffers.phase == 0) of_input(exec, own);
    if (in_one || buffers.phase == 1) of_weight(exec, own);
  }

  // public, as nvcc does not allow device lambdas in private functions
  struct Arrays {
    Arrays(const Layers& layers, const UnitBuffers<void>& buffers)
        : w(of<const float>(buffers.parameters, layers)),
          x(of<const float>(buffers.input, layers)),
          y(view_as<float>(buffers.output)),
          u(of<float>(buffers.saved, layers)),
          dy(of<float>(buffers.gradient, layers)),
          dw(buffers.parameter_gradients ? buffers.parameter_gradients.range(0, layers.width_)
                                         : View<float*>()) {}
    template <class A, class Bytes>
    static View<A*> of(const Bytes& bytes, const Layers& layers) {
      return bytes ? view_as<A>(bytes).range(0, layers.width_) : View<A*>();
    }

    View<const float*> w, x;
    View<float*> y, u, dy, dw;
  };

  /// Adds the mean of the last outputs.
  void add_up(const Exec& exec, const Arrays& own) const {
    const View<const float*> x = own.x;
    const View<float*> loss = own.y;
    const std::int64_t width = width_;
    model::for_each(
        exec, 1, KOKKOS_LAMBDA(std::int64_t) {
          loss[0] = 0.0F;
          for (std::int64_t i = 0; i < width; ++i) loss[0] += x[i] / static_cast<float>(width);
        });
  }
  void of_input(const Exec& exec, const Arrays& own) const {
    const View<const float*> w = own.w;
    const View<float*> u = own.u, dy = own.dy;
    model::for_each(
        exec, width_, KOKKOS_LAMBDA(std::int64_t i) {
          u[i] = dy[i] * (1.0F + u[i]);
          dy[i] = u[i] * w[i];
        });
  }
  void of_weight(const Exec& exec, const Arrays& own) const {
    const View<const float*> x = own.x;
    const View<float*> du = own.u, dw = own.dw;
    model::for_each(
        exec, width_, KOKKOS_LAMBDA(std::int64_t i) { dw[i] = du[i] * x[i]; });
  }

 private:
  std::int64_t width_;
  plan::ModelDescription description_;
  std::vector<std::vector<model::Parameter>> parameters_;
};

/// Seconds that a block's forward sleeps. Backward sleeps twice as long, once in each phase if it
/// has two; other units do not sleep.
constexpr double forward_seconds = 0.01;

/// Steps whose units sleep, so that stages wait for each other as on a machine with such compute
/// times, whatever the cores here. `settings`: for the ranks, and for `make_trainer`.
class SleepingSteps {
 public:
  SleepingSteps(comm::Communicator& parent, const config::Settings& settings, double budget,
                const Training::Make& make_trainer = {},
                data::SampleSource* other_samples = nullptr)
      : training_(parent.mpi(), settings, make_trainer), trainer_(training_.trainer) {
    comm::Communicator& world = training_.world;
    data::SampleSource& samples = other_samples != nullptr ? *other_samples : *training_.dataset;
    training_.prepare();
    auto arena = static_cast<double>(trainer_.program(plan::Purpose::train).memory.arena_bytes);
    world.all_reduce_max(&arena, 1);
    arena_bytes_ = static_cast<std::int64_t>(arena);
    const plan::StepPlan& own = training_.plan();
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
      computing = 0.0;
      const double seconds = slowest(world, [&] { trainer_.step(samples, step); });
      total += seconds;
      if (step > 2 && seconds >= measured_) continue;
      measured_ = seconds;
      auto nanoseconds = static_cast<std::int64_t>(1e9 * computing);
      world.all_reduce_sum(&nanoseconds, 1);
      busy_ = 1e-9 * static_cast<double>(nanoseconds) / world.size();
    }
    trainer_.observe({});
    simulate();
  }

  /// A bubble is the mean over stages of the fraction of a step in which a stage does not compute;
  /// the arena is the largest of all stages.
  Table::Row row(const std::string& schedule, int chunks) const {
    return {schedule,
            chunks,
            training_.plan().grid.micro_batches(),
            arena_bytes_,
            measured_,
            planned_,
            1.0 - busy_ / measured_,
            1.0 - planned_busy_ / planned_};
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
    std::vector<plan::StepPlan> stages = plan::build_stage_plans(
        model, plan::find_chunks(model, training_.mesh.stage().size(), policy),
        training_.mesh.stage().size(), policy, plan::Purpose::train);
    std::vector<const plan::StepPlan*> pointers;
    for (plan::StepPlan& stage : stages) {
      for (plan::Action& action : stage.actions) action.flops = seconds_of(stage, action);
      pointers.push_back(&stage);
    }
    plan::Rates rates;
    rates.flops_per_second = 1.0;
    rates.inside_node_bytes_per_second = rates.across_node_bytes_per_second = 1e15;
    rates.copy_bytes_per_second = rates.host_bytes_per_second = 1e15;
    for (const plan::Timing& timing : plan::estimate_times(pointers, 0, rates)) {
      planned_ = timing.seconds;
      planned_busy_ += timing.computing / static_cast<double>(stages.size());
    }
  }

  Training training_;
  train::Trainer& trainer_;
  std::int64_t arena_bytes_ = 0;
  double measured_ = 0.0, busy_ = 0.0, planned_ = 0.0, planned_busy_ = 0.0;
};

}  // namespace

void run_pipeline(comm::Communicator& world, config::Settings settings, const Options& options) {
  world.run_collectively([&] {
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
  Table table("pipeline", world, options,
              {{"schedule", "schedule", Format::text, 22},
               {"chunks", "chunks", Format::count, 6},
               {"micro-batches", "micro_batches", Format::count, 13},
               {"arena", "arena_bytes", Format::bytes, 11},
               {"step", "step_seconds", Format::seconds, 10},
               {"by the plan", "planned_step_seconds", Format::seconds, 11},
               {"bubble", "bubble", Format::percent, 8},
               {"by the plan", "planned_bubble", Format::percent, 11}});
  settings.model.blocks_per_unit = 1;
  const double budget = options.seconds_or(3.0);
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
    table.row(SleepingSteps(world, settings, budget)
                  .row(text(plan::name(schedule), is_larger ? ", unlimited" : ""), chunks));
    // This times a schedule that is limited only by its order.
    if (chunks > 1 || is_larger || settings.tensor * settings.context > 1) continue;
    NoSamples samples;
    const auto make_trainer = [&](mesh::Mesh& mesh) {
      train::TrainerSettings own;
      own.policy.schedule = settings.parallel.schedule;
      own.policy.chunk_units = units;
      own.global_batch_size = settings.leaves();
      return train::Trainer(std::make_unique<Layers>(settings.model.layers, 4096), own, mesh);
    };
    table.row(SleepingSteps(world, settings, budget, make_trainer, &samples)
                  .row(text(plan::name(schedule), ", layers"), chunks));
  }
}

}  // namespace ostrakon::bench
