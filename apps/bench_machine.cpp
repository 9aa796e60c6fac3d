// SPDX-License-Identifier: Apache-2.0
// ostrakon-bench machine: the numbers of a machine file, measured.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/config/machine_file.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/simulate/machine_costs.hpp>
#include <ostrakon/train/make_trainer.hpp>
#include <ostrakon/train/threads.hpp>
#include <thread>

#include "bench.hpp"

namespace ostrakon::bench {
namespace {

using plan::Kind;
using simulate::Machine;

/// Least squares with coefficients of at least 0: rows of `terms` times them are `values`.
std::vector<double> fit_positive(const std::vector<std::vector<double>>& terms,
                                 const std::vector<double>& values) {
  const std::size_t unknowns = terms.front().size();
  std::vector<double> scale(unknowns, 0.0);  // so that columns are about as large
  for (const auto& row : terms)
    for (std::size_t u = 0; u < unknowns; ++u) scale[u] = std::max(scale[u], row[u]);
  std::vector<double> found(unknowns, 0.0);
  std::vector<double> left = values;
  constexpr int sweeps = 20000;
  for (int sweep = 0; sweep < sweeps; ++sweep)
    for (std::size_t u = 0; u < unknowns; ++u) {
      if (scale[u] == 0.0) continue;
      double dot = 0.0, square = 0.0;
      for (std::size_t r = 0; r < terms.size(); ++r) {
        const double term = terms[r][u] / scale[u];
        dot += term * left[r];
        square += term * term;
      }
      const double next = std::max(0.0, found[u] + dot / square);
      for (std::size_t r = 0; r < terms.size(); ++r)
        left[r] -= (next - found[u]) * terms[r][u] / scale[u];
      found[u] = next;
    }
  for (std::size_t u = 0; u < unknowns; ++u) found[u] = scale[u] > 0.0 ? found[u] / scale[u] : 0.0;
  return found;
}

/// Actions of one kind of a small model's step.
struct Sample {
  std::string name;
  double seconds = 0.0;
  double flops = 0.0;
  plan::KernelWork work;
};

/// A small decoder: what blocks of real ones are made of, in other proportions.
struct SmallModel {
  const char* name;
  const char* settings;  ///< of sections model and training
};
constexpr SmallModel small_models[] = {
    {"GPT, width 256",
     "model.norm=layernorm model.positions=learned model.activation=gelu "
     "model.bias=true model.width=256 model.heads=4 model.layers=2 "
     "model.vocabulary=4096 training.sequence_length=256 "
     "training.micro_batch_size=4"},
    {"GPT, width 768",
     "model.norm=layernorm model.positions=learned model.activation=gelu "
     "model.bias=true model.width=768 model.heads=12 model.layers=2 "
     "model.vocabulary=8192 training.sequence_length=256 "
     "training.micro_batch_size=4"},
    {"Llama, width 192",
     "model.width=192 model.heads=6 model.layers=3 model.vocabulary=257 "
     "training.sequence_length=256 training.micro_batch_size=4"},
    {"Llama, width 512",
     "model.width=512 model.heads=8 model.kv_heads=4 model.layers=2 "
     "model.vocabulary=2048 training.sequence_length=512 "
     "training.micro_batch_size=2"},
    {"Llama, width 384, long",
     "model.width=384 model.heads=3 model.layers=2 "
     "model.vocabulary=1024 training.sequence_length=1024 "
     "training.micro_batch_size=1"},
    {"Llama, width 128",
     "model.width=128 model.heads=4 model.layers=3 model.vocabulary=512 "
     "training.sequence_length=128 training.micro_batch_size=8"}};

constexpr const char* small_deck = R"(
ostrakon:
  data:
    dataset: synthetic
  training:
    steps: 1000000
    global_batch_size: 16
  output:
    directory: none
  runtime:
    streams: inline
)";

class MachineBench {
 public:
  MachineBench(comm::Communicator& world, const Options& options)
      : world_(world), options_(options) {}

  Machine all() {
    name();
    for (const bool halves : {false, true}) kernels(halves);
    updates();
    host();
    if (world_.size() > 1) networks();
    return machine_;
  }

 private:
  void add_up(double* values, int count) {
    comm::check_mpi(MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_SUM, world_.mpi()),
                    "MPI_Allreduce");
  }
  double mean(double value) {
    add_up(&value, 1);
    return value / world_.size();
  }

  void name() {
    machine_.name = text(host_name(), ", measured with ", world_.size(),
                         world_.size() == 1 ? " rank" : " ranks");
    machine_.ranks_per_node = 0;
    machine_.cores_per_node =
        has_device ? 0 : static_cast<int>(std::thread::hardware_concurrency());
  }
  std::string host_name() {
    char host[MPI_MAX_PROCESSOR_NAME] = {};
    int length = 0;
    MPI_Get_processor_name(host, &length);
    return std::string(host, static_cast<std::size_t>(length));
  }

  config::Settings settings_of(const SmallModel& model, const std::vector<std::string>& more) {
    std::vector<config::Override> overrides;
    std::string all = model.settings;
    std::size_t begin = 0;
    while (begin < all.size()) {
      const std::size_t end = std::min(all.find(' ', begin), all.size());
      overrides.push_back(config::parse_override(all.substr(begin, end - begin)));
      begin = end + 1;
    }
    for (const std::string& one : more) overrides.push_back(config::parse_override(one));
    return config::read_settings(small_deck, "small deck", overrides);
  }

  /// The median time of each action over some steps, which every rank makes for itself while the
  /// others do the same; the mean over ranks.
  struct Run {
    plan::StepPlan plan;
    std::vector<double> seconds;
    double between = 0.0;  ///< of a step besides its actions
  };
  Run run(const config::Settings& settings) {
    mesh::Mesh mesh(MPI_COMM_SELF);
    train::Trainer trainer = train::make_trainer(settings, mesh);
    const auto data =
        data::open_dataset(settings.data, data::Split::training, settings.training.sequence_length,
                           settings.model.vocabulary, settings.training.seed, mesh.world());
    trainer.require_memory();
    trainer.allocate();
    trainer.initialize();
    Run found;
    found.plan = trainer.program(plan::Purpose::train).plan;
    std::vector<std::vector<double>> taken(found.plan.actions.size());
    std::vector<double> between;
    const double budget = options_.seconds > 0.0 ? options_.seconds : 2.0;
    double total = 0.0;
    for (std::int64_t step = 1; step <= 4 || total < budget; ++step) {
      world_.barrier();
      const Stopwatch timer;
      trainer.step(*data, step);
      double seconds = timer.seconds();
      world_.maximum(&seconds, 1);
      if (step == 1) continue;
      total += seconds;
      double sum = 0.0;
      for (std::size_t a = 0; a < taken.size(); ++a) {
        taken[a].push_back(trainer.action_times()[a].end - trainer.action_times()[a].begin);
        sum += taken[a].back();
      }
      between.push_back(timer.seconds() - sum);
    }
    for (std::vector<double>& times : taken) found.seconds.push_back(summarize(times).median);
    add_up(found.seconds.data(), static_cast<int>(found.seconds.size()));
    for (double& seconds : found.seconds) seconds /= world_.size();
    found.between = mean(summarize(between).fastest);
    return found;
  }

  void kernels(bool halves) {
    std::vector<Sample> samples;
    for (const SmallModel& model : small_models) {
      std::vector<std::string> more;
      if (halves) more = {"precision.gather=bf16"};
      const Run found = run(settings_of(model, more));
      if (!halves) runs_.push_back(found);
      for (std::size_t a = 0; a < found.seconds.size(); ++a) {
        const plan::Action& action = found.plan.actions[a];
        if (!(action.flops > 0.0 || action.work.row_kernels > 0.0)) continue;
        const std::string& unit = found.plan.units[static_cast<std::size_t>(action.unit)].name;
        const std::string name = text(model.name, " ", plan::name(action.kind), "(",
                                      unit.substr(0, unit.find('.')), ")");
        auto same = std::find_if(samples.begin(), samples.end(),
                                 [&](const Sample& sample) { return sample.name == name; });
        if (same == samples.end()) same = samples.insert(samples.end(), {name, 0.0, 0.0, {}});
        same->seconds += found.seconds[a];
        same->flops += action.flops;
        same->work += action.work;
      }
    }
    // Relative to their time: a small one says as much as a large one.
    std::vector<std::vector<double>> terms;
    for (const Sample& sample : samples)
      terms.push_back(
          {(sample.flops - sample.work.attention_flops) / sample.seconds,
           sample.work.products_by_width / sample.seconds,
           sample.work.attention_flops / sample.seconds, sample.work.row_bytes / sample.seconds,
           sample.work.products / sample.seconds, sample.work.row_kernels / sample.seconds});
    // What kernels take besides is that of fp32.
    std::vector<double> values(samples.size(), 1.0);
    std::vector<std::vector<double>> fitted = terms;
    if (halves)
      for (std::size_t s = 0; s < samples.size(); ++s) {
        const double besides =
            terms[s][4] * machine_.product_seconds + terms[s][5] * machine_.row_kernel_seconds;
        values[s] = std::max(0.05, 1.0 - besides);
        fitted[s] = {terms[s][0] + machine_.product_width * terms[s][1], terms[s][2], terms[s][3]};
      }
    std::vector<double> found = fit_positive(fitted, values);
    if (halves)
      found = {found[0], found[0] * machine_.product_width, found[1],
               found[2], machine_.product_seconds,          machine_.row_kernel_seconds};
    require(found[0] > 0.0, "the rate of products can't be told from the times of this machine");
    simulate::ComputeRates& rates = halves ? machine_.bits16 : machine_.fp32;
    rates.products = 1.0 / found[0];
    rates.attention = found[2] > 0.0 ? 1.0 / found[2] : rates.products;
    rates.rows = found[3] > 0.0 ? 1.0 / found[3] : 1e15;
    if (!halves) {
      machine_.product_width = found[1] * rates.products;
      machine_.product_seconds = found[4];
      machine_.row_kernel_seconds = found[5];
      machine_.row_bytes_per_second = rates.rows;
    }
    show(samples, terms, found, halves ? "bf16" : "fp32");
  }

  void show(const std::vector<Sample>& samples, const std::vector<std::vector<double>>& terms,
            const std::vector<double>& found, const char* dtype) {
    Table table("machine",
                {{"dtype", "dtype", Format::text, 6},
                 {"actions", "actions", Format::text, 44},
                 {"time", "seconds", Format::seconds, 10},
                 {"fitted", "fitted_seconds", Format::seconds, 10},
                 {"ratio", "ratio", Format::ratio, 6}},
                options_.json, world_.rank() == 0);
    for (std::size_t s = 0; s < samples.size(); ++s) {
      double ratio = 0.0;
      for (std::size_t u = 0; u < found.size(); ++u) ratio += terms[s][u] * found[u];
      table.row({dtype, samples[s].name, samples[s].seconds, ratio * samples[s].seconds, ratio});
    }
  }

  /// Bytes a second of what actions of a kind read and write, at the rate that `set` gives.
  void updates() {
    const auto rate_of = [&](Kind kind, double Machine::*member) {
      // What the simulation takes at 1 byte/s and no time a kernel is their bytes.
      Machine unit = machine_;
      unit.*member = 1.0;
      unit.row_kernel_seconds = 0.0;
      double bytes = 0.0, seconds = 0.0;
      for (const Run& run : runs_) {
        const simulate::MachineCosts costs({&run.plan}, unit, 1,
                                           simulate::Streams::one_after_the_other);
        for (std::size_t a = 0; a < run.seconds.size(); ++a) {
          if (run.plan.actions[a].kind != kind) continue;
          const plan::ResourceSeconds alone = costs.seconds(0, run.plan.actions[a]);
          bytes += alone[plan::Resource::device];
          seconds += run.seconds[a];
        }
      }
      machine_.*member = bytes / seconds;
    };
    machine_.host_bytes_per_second = machine_.upload_bytes_per_second =
        machine_.download_bytes_per_second = 1.0;
    rate_of(Kind::optimize, &Machine::update_bytes_per_second);
    rate_of(Kind::norm, &Machine::norm_bytes_per_second);
    double between = 0.0;
    for (const Run& run : runs_) between += run.between / static_cast<double>(runs_.size());
    machine_.step_seconds = std::max(0.0, between);
  }

  /// What the host updates, and copies, of a model whose optimizer is offloaded.
  void host() {
    const Run found = run(settings_of(small_models[1], {"memory.offload=all"}));
    double host_bytes = 0.0, host_seconds = 0.0;
    double up_bytes = 0.0, up_seconds = 0.0, down_bytes = 0.0, down_seconds = 0.0;
    for (std::size_t a = 0; a < found.seconds.size(); ++a) {
      const plan::Action& action = found.plan.actions[a];
      const auto copied = static_cast<double>(plan::copied_bytes(action));
      if (action.kind == Kind::copy_to_device) {
        up_bytes += copied;
        up_seconds += found.seconds[a];
      } else if (action.kind == Kind::copy_to_host) {
        down_bytes += copied;
        down_seconds += found.seconds[a];
      } else if (const std::int64_t bytes = plan::bytes_on_host(found.plan, action); bytes > 0) {
        host_bytes += static_cast<double>(bytes);
        host_seconds += found.seconds[a];
      }
    }
    machine_.host_bytes_per_second = host_bytes / host_seconds;
    machine_.upload_bytes_per_second = up_bytes / up_seconds;
    machine_.download_bytes_per_second = down_bytes / down_seconds;
  }

  /// Of an all-gather, and of an all-to-all with its sum, over some sizes.
  void network(comm::Communicator& ranks, simulate::Network& network) {
    std::vector<std::vector<double>> gathers, exchanges;
    const double n = ranks.size();
    for (std::int64_t bytes = std::max<std::int64_t>(16 << 10, std::int64_t{256} * ranks.size());
         bytes <= std::int64_t{32} << 20; bytes *= 4) {
      const std::int64_t shard_elements = bytes / 4 / ranks.size() / 64 * 64;
      const Kokkos::View<float*, Memory> full("full", shard_elements * ranks.size()),
          staging("staging", full.extent(0)), shard("shard", shard_elements);
      const std::vector<Seconds> seconds = measure(
          world_, 0.3,
          {[&] {
             ranks.all_gather<float, OnDevice>(Exec(), device_view(shard), device_view(full));
           },
           [&] {
             ranks.reduce_scatter<float, OnDevice>(Exec(), device_view(full), device_view(staging),
                                                   device_view(shard));
           }});
      const auto whole = static_cast<double>(4 * full.extent(0));
      const double sent = whole * (n - 1) / n;
      const double summed = whole * (1.0 + 1.0 / n) / machine_.row_bytes_per_second;
      gathers.push_back({1.0, sent, seconds[0].median});
      exchanges.push_back({1.0, sent, std::max(1e-9, seconds[1].median - summed)});
    }
    const auto fit = [](const std::vector<std::vector<double>>& rows) {
      std::vector<std::vector<double>> terms;
      for (const auto& row : rows) terms.push_back({row[0] / row[2], row[1] / row[2]});
      return fit_positive(terms, std::vector<double>(rows.size(), 1.0));
    };
    const std::vector<double> gather = fit(gathers), exchange = fit(exchanges);
    network.base_seconds = gather[0];
    network.bytes_per_second = 1.0 / gather[1];
    // Where the sum takes no longer than its bytes from a cache would, nothing is left for this.
    network.exchange_bytes_per_second = 1.0 / std::max(exchange[1], 0.25 * gather[1]);
    network.message_seconds = std::max(0.0, exchange[0] - gather[0]) / (n - 1);
  }

  void networks() {
    mesh::Mesh mesh(world_.mpi());
    const int node = mesh.ranks_per_node();
    if (node > 1) {
      comm::Communicator inside = comm::Communicator::split(world_.mpi(), world_.rank() / node);
      network(inside, machine_.inside_nodes);
    }
    if (mesh.nodes() > 1) {
      comm::Communicator across = comm::Communicator::split(world_.mpi(), world_.rank() % node);
      network(across, machine_.across_nodes);
    }
  }

  comm::Communicator& world_;
  const Options options_;
  Machine machine_;
  std::vector<Run> runs_;  ///< in fp32
};

}  // namespace

void run_machine(comm::Communicator& world, const Options& options) {
  train::set_matrix_threads({}, world);
  const Machine machine = MachineBench(world, options).all();
  const std::string text = config::write_machine(
      machine, "Measured by ostrakon-bench machine: medians, all ranks at once");
  world.agree([&] {
    if (world.rank() != 0) return;
    if (options.output.empty()) {
      std::cout << "\n" << text << std::flush;
      return;
    }
    std::ofstream file(options.output);
    file << text;
    file.close();
    require(file.good(), options.output, ": can't be written");
    std::cout << "\nwritten to " << options.output << std::endl;
  });
}

}  // namespace ostrakon::bench
