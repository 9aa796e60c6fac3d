// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/tune/recompute.hpp>

#include <algorithm>
#include <optional>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/config/assignment.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/plan/ir/tasks.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/trainer/devices.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <ostrakon/trainer/memory_check.hpp>
#include <ostrakon/trainer/resolve.hpp>
#include <ostrakon/tune/run_plans.hpp>
#include <ostream>
#include <utility>

namespace ostrakon::tune {
namespace {

constexpr config::Varied kept_key{"memory", "activation_checkpointing"};
constexpr config::Varied reshard_key{"parallel", "reshard_after_forward"};

/// Settings that compute equally many operations again are taken in this order.
constexpr const char* checkpointings[] = {"keep norms activations",
                                          "keep activations",
                                          "keep norms",
                                          "none",
                                          "selective norms",
                                          "selective attention",
                                          "selective attention norms",
                                          "selective mlp",
                                          "selective attention mlp",
                                          "selective attention norms mlp",
                                          "every 16",
                                          "every 8",
                                          "every 4",
                                          "every 3",
                                          "every 2",
                                          "full"};

/// Operations of one leaf that backward computes again.
double recomputed_flops(const config::Settings& settings) {
  const plan::ModelDescription model =
      train::describe(*train::make_decoder(settings), settings.optimizer);
  const std::vector<bool> checkpointed =
      plan::find_checkpointed(model, settings.parallel.activation_checkpointing);
  double flops = 0.0;
  for (std::size_t u = 0; u < model.units.size(); ++u) {
    const plan::UnitDescription& unit = model.units[u];
    if (!plan::has_backward(model, static_cast<int>(u))) continue;
    flops += plan::flops(unit.backward) - unit.gradient_flops;
    if (!checkpointed[u]) continue;
    for (const int phase : plan::recomputed_phases(unit.forward))
      flops += unit.forward[static_cast<std::size_t>(phase)].recompute_flops;
  }
  return flops;
}

/// What is computed again, from the least on.
std::vector<std::string> from_the_least(const config::Settings& deck) {
  std::vector<std::pair<double, std::string>> ordered;
  for (const char* const value : checkpointings) {
    config::Settings settings = deck;
    kept_key.set(settings, value);
    ordered.emplace_back(recomputed_flops(settings), value);
  }
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto& one, const auto& other) { return one.first < other.first; });
  std::vector<std::string> values;
  for (auto& [flops, value] : ordered) values.push_back(std::move(value));
  return values;
}

/// What the arenas of a run take of a rank's memory, from its plans: estimates by shorter steps are
/// not exact.
Memory arenas_of(const config::Settings& settings, const RankCounts& on, int threads) {
  config::check_consistency(settings, "deck");
  const plan::ModelDescription model =
      train::describe(*train::make_decoder(settings), settings.optimizer);
  const RunPlans plans(model, train::resolve(settings, on.ranks, on.ranks_per_node), on.ranks,
                       settings.runtime.audit > 0, threads);
  const Memory arenas = plans.arenas();
  // Where ranks compute on the host, both are in its memory.
  return {arenas.device + (settings.processor.is_device ? 0 : arenas.host), arenas.host};
}

std::string room_words(const Memory& room, bool is_device) {
  std::string words;
  if (room.device < any_bytes)
    words = text(format_bytes(room.device), is_device ? " of device memory" : " of memory");
  if (is_device && room.host < any_bytes)
    words += text(words.empty() ? "" : " and ", format_bytes(room.host), " of the host's memory");
  return words + " for the arena of a rank";
}

/// Whether what stays of gathered parameters is open, and makes a difference.
bool chooses_reshard(const config::Settings& deck) {
  const plan::PolicyChoices& policy = deck.parallel;
  return deck.given.count(reshard_key.full_name()) == 0 &&
         (policy.sharding == plan::Sharding::full ||
          plan::offloads(policy.offload, plan::Offload::parameters));
}

}  // namespace

RecomputeChoice choose_recompute(const config::Settings& deck, const RankCounts& on,
                                 const Memory& room, int threads) {
  RecomputeChoice kept;
  kept.settings = deck;
  kept.room = room;
  const auto takes = [&](const config::Settings& settings) {
    const Memory arenas = arenas_of(settings, on, threads);
    if (!arenas.fits(room)) return std::optional(arenas);
    kept.settings = settings;
    kept.arenas = arenas;
    return std::optional<Memory>();
  };
  std::optional<Memory> too_large;
  const std::vector<std::string> values = from_the_least(deck);
  for (const std::string& value : values) {
    config::Settings settings = deck;
    kept_key.set(settings, value);
    too_large = takes(settings);
    if (!too_large) break;
  }
  require(!too_large, "memory.activation_checkpointing = auto: nothing fits ",
          room_words(room, deck.processor.is_device), " (", on.ranks,
          on.ranks == 1 ? " rank); " : " ranks); ", "with ", values.back(),
          ", which keeps the least, it takes ", too_large ? format_bytes(too_large->device) : "",
          "; expected more memory or ranks, a smaller training.micro_batch_size, or other "
          "settings: ostrakon-plan --choose finds some");
  for (const char* const reshard : {"end_of_step", "never"}) {
    config::Settings settings = kept.settings;
    reshard_key.set(settings, reshard);
    if (chooses_reshard(deck) && !takes(settings)) break;
  }
  for (const config::Varied* key : {&kept_key, &reshard_key})
    if (key->get(kept.settings) != key->get(deck))
      kept.changes.push_back(key->full_name() + "=" + key->get(kept.settings));
  return kept;
}

Memory room_of_run(const config::Settings& deck, mesh::Mesh& mesh) {
  const auto share = [](std::int64_t available, int ranks) {
    const std::int64_t of_each = available / ranks;
    const std::int64_t reserve = of_each / 16;
    return static_cast<double>(of_each - reserve);
  };
  comm::Communicator sharers = train::ranks_of_device(mesh.host());
  double room[] = {share(runtime::available_memory_bytes(plan::Space::device), sharers.size()),
                   share(runtime::available_memory_bytes(plan::Space::host), mesh.host().size()) -
                       static_cast<double>(train::process_bytes())};
  mesh.world().all_reduce_min(room, 2);
  Memory least{static_cast<std::int64_t>(has_device ? room[0] : room[1]),
               static_cast<std::int64_t>(room[1])};
  if (deck.memory_limit > 0) least.device = std::min(least.device, deck.memory_limit);
  return least;
}

config::Settings choose_recompute_for_run(config::Settings settings, MPI_Comm parent,
                                          std::ostream& out) {
  if (!settings.chooses_recompute) return settings;
  mesh::Mesh mesh(parent, static_cast<int>(settings.ranks_per_node));
  comm::Communicator& world = mesh.world();
  const Memory room = room_of_run(settings, mesh);
  std::string chosen[2];
  world.run_on_root([&] {
    const RankCounts on{world.size(),
                        mesh.ranks_per_node() > 0 ? mesh.ranks_per_node() : world.size()};
    // All other ranks wait, so that their cores are free.
    const RecomputeChoice kept =
        choose_recompute(settings, on, room, static_cast<int>(allowed_cores().size()));
    chosen[0] = kept_key.get(kept.settings);
    chosen[1] = reshard_key.get(kept.settings);
    out << "chosen for the memory of each rank: " << config::set_options(kept.changes)
        << "\n  an arena of            " << format_bytes(kept.arenas.device) << " of "
        << format_bytes(room.device) << "\n\n"
        << std::flush;
  });
  chosen[0] = world.broadcast(chosen[0], 0);
  chosen[1] = world.broadcast(chosen[1], 0);
  world.run_collectively([&] {
    kept_key.set(settings, chosen[0]);
    reshard_key.set(settings, chosen[1]);
  });
  return settings;
}

}  // namespace ostrakon::tune
