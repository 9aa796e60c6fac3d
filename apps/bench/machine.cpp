// SPDX-License-Identifier: Apache-2.0
// ostrakon-bench machine: measures the numbers of a machine file.
#include <algorithm>
#include <iostream>
#include <map>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/config/machine_file.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/simulate/kernel_fit.hpp>
#include <ostrakon/simulate/machine_costs.hpp>
#include <ostrakon/simulate/prediction.hpp>
#include <ostrakon/trainer/devices.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <ostrakon/trainer/peak_rate.hpp>
#include <ostrakon/trainer/threads.hpp>
#include <thread>

#include "../common/output_file.hpp"
#include "../common/program.hpp"
#include "timed_steps.hpp"

namespace ostrakon::bench {
namespace {

using plan::Kind;
using simulate::Machine;

class MachineBench {
 public:
  MachineBench(comm::Communicator& world, const Options& options)
      : world_(world), options_(options), steps_(world, options.seconds_or(0.7)) {}

  /// Remarks on some numbers, for config::write_machine.
  const std::map<std::string, std::string>& remarks() const { return remarks_; }

  Machine all() {
    name();
    choose_models();
    kernels();
    updates();
    host();
    if (world_.size() > 1) networks();
    return machine_;
  }

 private:
  void name() {
    machine_.name = text(host_name(), ", measured with ", apps::counted(world_.size(), "rank"));
    machine_.ranks_per_node = 0;
    // Rates are measured with this many ranks at once: ranks that shared a core then are no slower
    // with as many ranks.
    machine_.cores_per_node = has_device
                                  ? 0
                                  : std::max(static_cast<int>(std::thread::hardware_concurrency()),
                                             mesh::Mesh(world_.mpi()).ranks_per_node());
    machine_.attention_by_products = math::kernel_form == math::KernelForm::device;
  }
  // --- sizes

  /// Chooses the same models on all ranks.
  void choose_models() {
    models_ = host_models();
    if (!has_device) return;
    DeviceFacts device;
    device.products = least(product_rate(DType::bf16));
    const auto free = static_cast<double>(runtime::available_memory_bytes(plan::Space::device));
    device.free_bytes =
        static_cast<std::int64_t>(least(free / train::ranks_of_device(world_).size()));
    models_ = device_models(device, [&](const TimedModel& model) {
      mesh::Mesh alone(MPI_COMM_SELF);
      const train::Trainer trainer = train::make_trainer(TimedSteps::settings_of(model, {}), alone);
      return StepNeeds{trainer.model_flops(), trainer.planned_peak_bytes()};
    });
    Table table(
        "machine_models", world_, options_,
        {{"model", "model", Format::text, 44}, {"sequences", "sequences", Format::count, 9}});
    for (const TimedModel& model : models_) table.row({model.name, model.sequences});
  }

  double least(double value) {
    world_.all_reduce_min(&value, 1);
    return value;
  }

  // --- upper bounds of rates

  static constexpr std::int64_t limit_bytes = std::int64_t{256} << 20;

  /// Measures the rate of large products, on all ranks at once.
  double product_rate(DType dtype) {
    const runtime::Arena memory(limit_bytes);
    world_.barrier();
    return steps_.mean(train::measure_product_rate(dtype, memory, 0.3));
  }

  /// Measures the bytes per second of a kernel that only reads and writes, on all ranks at once.
  double memory_rate() {
    const runtime::Arena memory(limit_bytes);
    const std::int64_t half = limit_bytes / 2,
                       elements = half / static_cast<std::int64_t>(sizeof(float));
    const View<float*> from(reinterpret_cast<float*>(memory.data()), elements);
    const View<float*> to(reinterpret_cast<float*>(memory.data() + half), elements);
    const Exec exec;
    math::fill(exec, from, 0.0f);
    const std::vector<Seconds> copies =
        measure(world_, 0.3, {[&] {
                  math::copy<float>(exec, View<const float*>(from), to);
                  exec.fence();
                }});
    return static_cast<double>(limit_bytes) / copies[0].fastest;
  }

  void kernels() {
    std::vector<std::vector<Run>> all = steps_.runs_of(models_, {{}, {"precision.gather=bf16"}});
    runs_ = std::move(all[0]);
    halves_ = std::move(all[1]);
    fit(runs_, DType::fp32, machine_.fp32);
    fit(halves_, DType::bf16, machine_.bits16);
    // Dtypes have numbers of their own; these are for whole arrays.
    machine_.kernels.row_bytes_per_second = machine_.fp32.kernels.row_bytes_per_second;
    if (const auto rows = remarks_.find(row_key("fp32")); rows != remarks_.end())
      remarks_[row_key("kernels")] = rows->second;
  }

  static std::string row_key(const std::string& section) {
    return section + ".row_gigabytes_per_second";
  }

  void fit(const std::vector<Run>& runs, DType dtype, simulate::ComputeRates& rates) {
    std::vector<simulate::KernelSample> samples;
    for (std::size_t m = 0; m < runs.size(); ++m)
      for (std::size_t a = 0; a < runs[m].seconds.size(); ++a) {
        const plan::Action& action = runs[m].plan.actions[a];
        if (!(action.flops > 0.0 || action.work.row_kernels > 0.0)) continue;
        const std::string& unit = runs[m].plan.units[static_cast<std::size_t>(action.unit)].name;
        const std::string name = text(models_[m].name, " ", plan::name(action.kind), "(",
                                      unit.substr(0, unit.find('.')), ")");
        auto same =
            std::find_if(samples.begin(), samples.end(),
                         [&](const simulate::KernelSample& sample) { return sample.name == name; });
        if (same == samples.end()) {
          same = samples.emplace(samples.end());
          same->name = name;
        }
        same->is_backward = action.kind == Kind::backward;
        same->seconds += runs[m].seconds[a];
        same->share += runs[m].seconds[a] / runs[m].step_seconds;
        same->flops += action.flops;
        same->work += action.work;
      }
    simulate::KernelFit found = simulate::fit_kernels(
        samples, has_device ? simulate::Launches::of_all : simulate::Launches::of_products);
    if (has_device || !found.tells_products() || !found.tells_rows()) {
      const simulate::RateLimits limits = {product_rate(dtype), memory_rate()};
      found.take_limits(samples, limits);
      const std::string section = dtype == DType::fp32 ? "fp32" : "bits16";
      const std::string name_of_dtype = ostrakon::name(dtype);
      if (!found.tells_products())
        state_bound(section + ".product_teraflops", "at most", "large products reach it",
                    text("products in ", name_of_dtype), limits.products, "operations/s");
      if (!found.tells_rows())
        state_bound(row_key(section), "at most", "a copy reaches it",
                    text("kernels without products in ", name_of_dtype),
                    limits.row_bytes_per_second, "bytes/s");
    }
    found.set(rates);
    show(samples, found, ostrakon::name(dtype));
  }

  /// Notes in the machine file and in the output that a rate does not follow from the times of
  /// steps.
  void state_bound(const std::string& key, const char* bound, const char* why,
                   const std::string& what, double rate, const char* unit) {
    remarks_[key] = text("a bound, ", bound, " this: the times of steps do not tell it, ", why);
    say(world_, options_,
        text("The rate of ", what, " can't be told from the times of steps: it is ", bound, " ",
             rate, " ", unit, ", as ", why, ".\n"));
  }

  void show(const std::vector<simulate::KernelSample>& samples, const simulate::KernelFit& found,
            const char* dtype) {
    Table table("machine", world_, options_,
                {{"dtype", "dtype", Format::text, 6},
                 {"actions", "actions", Format::text, 44},
                 {"share", "share", Format::percent, 7},
                 {"time", "seconds", Format::seconds, 10},
                 {"fitted", "fitted_seconds", Format::seconds, 10},
                 {"ratio", "ratio", Format::ratio, 6}});
    for (const simulate::KernelSample& sample : samples) {
      const double fitted = found.seconds(sample);
      table.row(
          {dtype, sample.name, sample.share, sample.seconds, fitted, fitted / sample.seconds});
    }
  }

  /// Bytes and the seconds that they take.
  struct Moved {
    double bytes = 0.0, seconds = 0.0;

    void add(double more_bytes, double more_seconds) {
      bytes += more_bytes;
      seconds += more_seconds;
    }
    double rate() const { return bytes / seconds; }
  };

  /// Measures the bytes per second that actions of some kinds read and write.
  void updates() {
    machine_.host_bytes_per_second = machine_.upload_bytes_per_second =
        machine_.download_bytes_per_second = 1.0;
    const auto rate_of = [&](Kind kind, double Machine::*member, const std::vector<Run>& runs) {
      // The time that the simulation predicts at 1 byte/s is their number of bytes.
      Machine unit = machine_;
      unit.*member = 1.0;
      Moved moved;
      for (const Run& run : runs) {
        const simulate::MachineCosts costs({&run.plan}, unit, 1,
                                           simulate::Streams::one_after_the_other);
        for (std::size_t a = 0; a < run.seconds.size(); ++a)
          if (run.plan.actions[a].kind == kind)
            moved.add(costs.seconds(0, run.plan.actions[a])[plan::Resource::device],
                      run.seconds[a]);
      }
      machine_.*member = moved.rate();
    };
    rate_of(Kind::optimize, &Machine::update_bytes_per_second, runs_);
    rate_of(Kind::norm, &Machine::norm_bytes_per_second, runs_);
    rate_of(Kind::gather, &Machine::convert_bytes_per_second, halves_);
    double between = 0.0;
    for (const Run& run : runs_) between += run.between / static_cast<double>(runs_.size());
    machine_.step_seconds = std::max(0.0, between);
  }

  /// Measures updates and copies on the host, with a model whose optimizer is offloaded.
  void host() {
    const Run found = steps_.run(TimedSteps::settings_of(models_[1], {"memory.offload=all"}));
    Moved host, up, down;
    for (std::size_t a = 0; a < found.seconds.size(); ++a) {
      const plan::Action& action = found.plan.actions[a];
      const auto copied = static_cast<double>(plan::copied_bytes(action));
      if (action.kind == Kind::copy_to_device)
        up.add(copied, found.seconds[a]);
      else if (action.kind == Kind::copy_to_host)
        down.add(copied, found.seconds[a]);
      else if (const std::int64_t bytes = plan::bytes_on_host(found.plan, action); bytes > 0)
        host.add(static_cast<double>(bytes), found.seconds[a]);
    }
    machine_.host_bytes_per_second = host.rate();
    machine_.upload_bytes_per_second = up.rate();
    machine_.download_bytes_per_second = down.rate();
  }

  /// Measures small all-gathers, and all-to-alls with their sums; then those in steps of fully
  /// sharded models, whose arrays are no longer in caches.
  void network(comm::Communicator& ranks, int ranks_per_node, simulate::Network& network,
               const char* section) {
    const double n = ranks.size();
    const std::vector<Seconds> small = small_collectives(ranks);
    network.base_seconds = small[0].median;
    network.message_seconds = std::max(0.0, small[1].median - small[0].median) / (n - 1);
    BytesAndSeconds gathers, whole_gathers, exchanges;
    std::vector<std::vector<std::string>> kinds = {
        {"parallel.sharding=full"}, {"parallel.sharding=full", "precision.gather=bf16"}};
    if (threads_share_cores(ranks_per_node))
      kinds.push_back({"parallel.sharding=full", "runtime.streams=threads"});
    const std::vector<std::vector<Run>> all =
        steps_.runs_of(models_, kinds, ranks.mpi(), ranks.size());
    const std::vector<Run>&runs = all[0], &halves = all[1];
    for (const Run& found : runs) {
      for (std::size_t a = 0; a < found.seconds.size(); ++a) {
        const plan::Action& action = found.plan.actions[a];
        const auto whole = static_cast<double>(plan::array_bytes(action));
        const double sent = whole * (n - 1) / n;
        if (action.kind == Kind::gather) {
          gathers.add(sent, found.seconds[a] - network.base_seconds);
          whole_gathers.add(sent, found.seconds[a]);
        }
        if (action.kind == Kind::reduce_scatter)
          exchanges.add(sent, found.seconds[a] - network.base_seconds -
                                  (n - 1) * network.message_seconds -
                                  whole * (1.0 + 1.0 / n) / machine_.update_rate());
      }
    }
    network.bytes_per_second = gathers.rate();
    network.exchange_bytes_per_second = exchanges.rate();
    if (network.bytes_per_second <= 0.0) {
      network.bytes_per_second = whole_gathers.rate();
      state_bound(text(section, ".gigabytes_per_second"), "at least",
                  "their whole time, latency included, is counted",
                  text("all-gathers (", section, ")"), network.bytes_per_second, "bytes/s");
    }
    // If the sum reads from a cache, almost no time may remain for the transfer.
    if (network.exchange_bytes_per_second <= 0.0 ||
        network.exchange_bytes_per_second > 4.0 * network.bytes_per_second)
      network.exchange_bytes_per_second = 4.0 * network.bytes_per_second;
    variation(runs, halves, ranks_per_node, network);
    if (all.size() > 2) slowdown(runs, all[2], ranks_per_node);

    using simulate::Streams;
    Table table("machine_steps", world_, options_,
                {{"steps", "steps", Format::text, 44},
                 {"collectives", "collectives", Format::count, 11},
                 {"time", "seconds", Format::seconds, 10},
                 {"fitted", "fitted_seconds", Format::seconds, 10},
                 {"ratio", "ratio", Format::ratio, 6}});
    const auto show = [&](const std::vector<Run>& steps, const char* what, Streams streams) {
      for (std::size_t m = 0; m < steps.size(); ++m) {
        const double fitted =
            simulate::predict({&steps[m].plan}, machine_, ranks_per_node, streams, 1.0)
                .step_seconds;
        table.row({text(models_[m].name, what), collectives(steps[m].plan), steps[m].wall_seconds,
                   fitted, fitted / steps[m].wall_seconds});
      }
    };
    show(runs, ", fp32", Streams::one_after_the_other);
    show(halves, ", bf16", Streams::one_after_the_other);
    if (all.size() > 2) show(all[2], ", fp32, streams on threads", Streams::concurrent);
  }

  /// Measures collectives of 64 floats per rank: an all-gather, and an all-to-all with its sums.
  std::vector<Seconds> small_collectives(comm::Communicator& ranks) {
    train::set_device_transport(ranks);
    constexpr std::int64_t part = 64;
    const std::int64_t few = part * ranks.size();
    const runtime::Arena memory((2 * few + part) * static_cast<std::int64_t>(sizeof(float)));
    const View<float*> all(reinterpret_cast<float*>(memory.data()), 2 * few + part);
    const View<float*> full = all.range(0, few), staging = all.range(few, 2 * few),
                       shard = all.range(2 * few, 2 * few + part);
    const Exec exec;
    math::fill(exec, all, 0.0f);
    const auto done = [&] {
      if (has_device) exec.fence();
    };
    return measure(world_, 0.3,
                   {[&] {
                      ranks.all_gather<float, OnDevice>(exec, View<const float*>(shard), full);
                      done();
                    },
                    [&] {
                      ranks.reduce_scatter<float, OnDevice>(exec, View<const float*>(full), staging,
                                                            shard);
                      done();
                    }});
  }

  /// Whether streams can run on threads here, which share the cores of ranks.
  bool threads_share_cores(int ranks_per_node) const {
    return !has_device && comm::Communicator::threads_may_call() &&
           2 * ranks_per_node > machine_.cores_per_node;
  }

  static std::int64_t collectives(const plan::StepPlan& plan) {
    return std::count_if(plan.actions.begin(), plan.actions.end(),
                         [](const plan::Action& action) { return plan::array_bytes(action) > 0; });
  }

  /// Measures the time that ranks wait for each other in collectives, which grows with the length
  /// of a step: the time of sharded steps beyond the simulation without waits, if steps of one rank
  /// match it.
  void variation(const std::vector<Run>& runs, const std::vector<Run>& halves, int ranks_per_node,
                 simulate::Network& network) {
    Machine even = machine_;
    even.rank_deviation = 0.0;
    Machine waiting = even;  // one second per collective
    waiting.inside_nodes.base_seconds += 1.0;
    waiting.across_nodes.base_seconds += 1.0;
    const auto simulated = [](const Run& run, const Machine& machine, int on_node) {
      return simulate::predict({&run.plan}, machine, on_node,
                               simulate::Streams::one_after_the_other, 1.0)
          .step_seconds;
    };
    std::vector<simulate::StepSample> samples;
    const auto add = [&](const Run& run, const Run& alone) {
      simulate::StepSample& sample = samples.emplace_back();
      sample.seconds = run.wall_seconds;
      const double of_run = simulated(run, even, ranks_per_node);
      sample.simulated = of_run * alone.wall_seconds / simulated(alone, even, 1);
      sample.collectives = simulated(run, waiting, ranks_per_node) - of_run;
    };
    for (std::size_t m = 0; m < runs.size(); ++m) {
      add(runs[m], runs_[m]);
      add(halves[m], halves_[m]);
    }
    const simulate::Waits waits = simulate::fit_waits(samples);
    network.base_seconds += waits.of_collective;
    Machine one;
    one.rank_deviation = 1.0;
    machine_.rank_deviation =
        std::max(machine_.rank_deviation,
                 waits.of_step / simulate::added_by_variation(one, runs.front().plan.grid.ranks()));
  }

  /// Measures how much slower a rank computes with streams on threads: the additional time of these
  /// steps, relative to the simulated times, compared with steps of one action after the other.
  void slowdown(const std::vector<Run>& runs, const std::vector<Run>& threads, int ranks_per_node) {
    using simulate::Streams;
    const auto simulated = [&](const Run& run, double slower, Streams streams) {
      Machine machine = machine_;
      machine.thread_slowdown = slower;
      return simulate::predict({&run.plan}, machine, ranks_per_node, streams, 1.0).step_seconds;
    };
    double longer = 0.0, by_all = 0.0;
    for (std::size_t m = 0; m < runs.size(); ++m) {
      const double even = simulated(threads[m], 0.0, Streams::concurrent);
      longer += threads[m].wall_seconds / even *
                    simulated(runs[m], 0.0, Streams::one_after_the_other) / runs[m].wall_seconds -
                1.0;
      by_all += simulated(threads[m], 1.0, Streams::concurrent) / even - 1.0;
    }
    if (by_all > 0.0)  // otherwise no rank shares a core
      machine_.thread_slowdown = std::max(machine_.thread_slowdown, longer / by_all);
  }

  /// Least squares of absolute errors, as most time is spent on large arrays.
  class BytesAndSeconds {
   public:
    void add(double bytes, double seconds) {
      by_seconds_ += bytes * seconds;
      by_bytes_ += bytes * bytes;
    }
    double rate() const { return by_seconds_ > 0.0 ? by_bytes_ / by_seconds_ : 0.0; }

   private:
    double by_seconds_ = 0.0, by_bytes_ = 0.0;
  };

  void networks() {
    mesh::Mesh mesh(world_.mpi());
    const int node = mesh.ranks_per_node();
    require(node > 0, "machine: hosts have different numbers of ranks; expected as many on each");
    if (node > 1) {
      comm::Communicator inside = comm::Communicator::split(world_.mpi(), world_.rank() / node);
      network(inside, node, machine_.inside_nodes, "inside_nodes");
    }
    if (mesh.nodes() > 1) {
      comm::Communicator across = comm::Communicator::split(world_.mpi(), world_.rank() % node);
      network(across, 1, machine_.across_nodes, "across_nodes");
    }
  }

  comm::Communicator& world_;
  const Options options_;
  TimedSteps steps_;
  Machine machine_;
  std::map<std::string, std::string> remarks_;  ///< remarks on numbers, keyed by section and key
  std::vector<TimedModel> models_;
  std::vector<Run> runs_;    ///< in fp32
  std::vector<Run> halves_;  ///< in bf16
};

}  // namespace

void run_machine(comm::Communicator& world, const Options& options) {
  train::set_matrix_threads({}, world);
  MachineBench bench(world, options);
  const Machine machine = bench.all();
  const std::string text = config::write_machine(
      machine, "Measured by ostrakon-bench machine, all ranks at once", bench.remarks());
  world.run_on_root([&] {
    if (options.output.empty()) {
      std::cout << "\n" << text << std::flush;
      return;
    }
    apps::write_file(options.output, text);
    std::cout << "\nwritten to " << options.output << std::endl;
  });
}

}  // namespace ostrakon::bench
