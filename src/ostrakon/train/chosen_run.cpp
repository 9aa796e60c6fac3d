// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/chosen_run.hpp>

#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/input.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/machine_file.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/train/choose_layout.hpp>
#include <sstream>

namespace ostrakon::train {
namespace {

std::string describe_chosen(const ChosenLayouts& chosen, const std::string& machine) {
  const ChosenLayout& best = chosen.best.front();
  const std::string seconds = print("%.4g s (%.4g to %.4g)", best.prediction.step_seconds,
                                    best.prediction.fastest, best.prediction.slowest);
  return text("chosen for ", machine, ": ", config::set_options(best.changes),
              "\n  expected               a step takes ", seconds, ", an arena of ",
              format_bytes(best.arena_bytes), "\n\n");
}

}  // namespace

config::Settings with_chosen_layout(config::Settings settings, MPI_Comm parent) {
  if (settings.choose.empty()) return settings;
  mesh::Mesh mesh(parent, static_cast<int>(settings.ranks_per_node));
  comm::Communicator& world = mesh.world();
  std::string changes;
  world.agree([&] {
    if (world.rank() != 0) return;
    ChooseRequest request;
    request.on.machine =
        config::read_machine(read_text(settings.choose, std::size_t{1} << 20), settings.choose);
    request.on.ranks = world.size();
    request.on.ranks_per_node = mesh.ranks_per_node() > 0 ? mesh.ranks_per_node() : world.size();
    request.kept = settings.given;
    request.threads = static_cast<int>(allowed_cores().size());  // other ranks wait
    config::Settings deck = settings;
    deck.ranks_per_node = 0;
    const ChosenLayouts chosen = choose_layouts(deck, request);
    for (const std::string& change : chosen.best.front().changes) changes += change + "\n";
    std::cout << describe_chosen(chosen, request.on.machine.name) << std::flush;
  });
  changes = world.broadcast(changes, 0);
  world.agree([&] {
    std::istringstream lines(changes);
    for (std::string change; std::getline(lines, change);) {
      const std::size_t equals = change.find('=');
      for (const config::Varied* key : layout_keys())
        if (key->full_name() == change.substr(0, equals))
          key->set(settings, change.substr(equals + 1));
    }
    settings.choose.clear();
    config::complete(settings);
  });
  return settings;
}

}  // namespace ostrakon::train
