// SPDX-License-Identifier: Apache-2.0
// ostrakon-bench preflight: checks ranks, links and hosts before a run.
#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/config/machine_file.hpp>
#include <ostrakon/preflight/network.hpp>
#include <ostrakon/preflight/preflight.hpp>
#include <ostrakon/trainer/threads.hpp>

#include "../common/output_file.hpp"
#include "../common/program.hpp"
#include "bench.hpp"

namespace ostrakon::bench {
namespace {

simulate::Machine read_machine(comm::Communicator& world, const std::string& path) {
  std::string text;
  world.run_on_root([&] { text = apps::read_file(path); });
  text = world.broadcast(text, 0);
  simulate::Machine machine;
  world.run_collectively([&] { machine = config::read_machine(text, path); });
  return machine;
}

}  // namespace

int run_preflight(comm::Communicator& world, const std::string& deck,
                  const std::vector<config::Override>& overrides, const Options& options) {
  preflight::Options asked;
  asked.seconds = options.seconds_or(asked.seconds);
  if (!options.machine.empty()) asked.machine = read_machine(world, options.machine);
  preflight::ask_nccl();
  std::unique_ptr<Training> training;
  std::unique_ptr<mesh::Mesh> mesh;
  if (deck.empty()) {
    const config::Settings defaults;
    train::set_matrix_threads(defaults, world);
    mesh = std::make_unique<mesh::Mesh>(world.mpi());
  } else {
    config::Settings settings = apps::read_deck(world, deck, overrides);
    world.run_collectively([&] { config::check_ranks(settings, world.size()); });
    train::set_matrix_threads(settings, world);
    asked.folder = settings.output.directory;
    asked.files = {deck};
    for (const data::WeightedFile& file : data::read_files(settings.data.path))
      asked.files.push_back(file.path);
    // Its plan is all that is needed.
    settings.data.dataset = data::DatasetKind::synthetic;
    training = std::make_unique<Training>(world.mpi(), settings);
    asked.plan = &training->plan();
  }
  mesh::Mesh& ranks = training ? training->mesh : *mesh;
  const preflight::Report report = preflight::inspect(world, preflight::all_checks(ranks, asked));
  world.run_on_root([&] {
    if (!options.hostfile.empty())
      apps::write_file(options.hostfile, preflight::good_hosts(report));
    if (options.json)
      std::cout << preflight::to_json(report).dump() << std::endl;
    else
      std::cout << preflight::describe(report) << std::flush;
  });
  constexpr int status_faulty = 3;
  return report.faults() > 0 ? status_faulty : 0;
}

}  // namespace ostrakon::bench
