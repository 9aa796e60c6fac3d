// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/tune/choose_for_run.hpp>

#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/input.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/machine_file.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/tune/choose.hpp>
#include <sstream>

namespace ostrakon::tune {
namespace {

std::string summary_for_run(const Result& choice, const std::string& machine) {
  const Chosen& best = choice.best.front();
  const simulate::Prediction& step = best.prediction;
  std::string expected =
      print("a step takes %.4g s (%.4g to %.4g)", step.step_seconds, step.fastest, step.slowest);
  if (choice.deck)
    expected += print(", %.4g s as the deck stands", choice.deck->prediction.step_seconds);
  return text("chosen for ", machine, ": ", config::set_options(best.changes),
              "\n  expected               ", expected, ", an arena of ",
              format_bytes(best.arenas.device), "\n\n");
}

}  // namespace

config::Settings choose_for_run(config::Settings settings, MPI_Comm parent) {
  if (settings.choose.empty()) return settings;
  mesh::Mesh mesh(parent, static_cast<int>(settings.ranks_per_node));
  comm::Communicator& world = mesh.world();
  std::string changes;
  world.run_collectively([&] {
    if (world.rank() != 0) return;
    Request request;
    request.on.machine =
        config::read_machine(read_text(settings.choose, std::size_t{1} << 20), settings.choose);
    request.on.ranks = world.size();
    request.on.ranks_per_node = mesh.ranks_per_node() > 0 ? mesh.ranks_per_node() : world.size();
    request.kept = settings.given;
    request.threads = static_cast<int>(allowed_cores().size());  // other ranks wait
    const Result choice = choose(settings, request);
    for (const std::string& change : choice.best.front().changes) changes += change + "\n";
    std::cout << summary_for_run(choice, request.on.machine.name) << std::flush;
  });
  changes = world.broadcast(changes, 0);
  world.run_collectively([&] {
    std::istringstream lines(changes);
    for (std::string change; std::getline(lines, change);) {
      const std::size_t equals = change.find('=');
      for (const config::Varied* key : varied_keys())
        if (key->full_name() == change.substr(0, equals))
          key->set(settings, change.substr(equals + 1));
    }
    settings.choose.clear();
  });
  return settings;
}

}  // namespace ostrakon::tune
