// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/tune/recompute.hpp>

#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/config/assignment.hpp>
#include <ostrakon/config/nearest.hpp>
#include <ostrakon/plan/ir/tasks.hpp>
#include <ostrakon/runtime/memory_counter.hpp>
#include <ostrakon/simulate/machine_costs.hpp>
#include <ostrakon/trainer/devices.hpp>
#include <ostrakon/trainer/make_trainer.hpp>
#include <ostrakon/trainer/memory_check.hpp>
#include <ostrakon/tune/space.hpp>
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

/// What is computed again, from the least on, and how long gathered parameters stay, from the
/// longest on.
Space space_of(const config::Settings& deck) {
  std::vector<std::pair<double, std::string>> ordered;
  for (const char* const value : checkpointings) {
    config::Settings settings = deck;
    kept_key.set(settings, value);
    ordered.emplace_back(recomputed_flops(settings), value);
  }
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const auto& one, const auto& other) { return one.first < other.first; });
  Dimension kept;
  for (const auto& [flops, value] : ordered) kept.choices.push_back({{&kept_key, value}});
  Dimension gathered{{{}}};
  if (deck.given.count(reshard_key.full_name()) == 0)
    gathered.choices = {{{&reshard_key, "end_of_step"}}, {{&reshard_key, "never"}}, {}};
  return {{kept, gathered}, {}};
}

/// Whether so much is certainly too large: an estimate may be a little off.
bool is_far_above(const Memory& memory, const Memory& room) {
  const auto is_above = [](std::int64_t bytes, std::int64_t most) {
    return bytes - bytes / 32 > most;
  };
  return is_above(memory.device, room.device) || is_above(memory.host, room.host);
}

/// Takes settings in order until some fit.
class FirstThatFits {
 public:
  FirstThatFits(LayoutCandidates& candidates, const Memory& room)
      : candidates_(candidates), room_(room) {}

  bool fits(const Point& point) {
    const std::optional<Cost> estimate = candidates_.estimate(point);
    if (!estimate || is_far_above(estimate->memory, room_)) return false;
    return candidates_.seconds(point) && candidates_.memory(point).fits(room_);
  }

 private:
  LayoutCandidates& candidates_;
  const Memory room_;
};

std::string room_words(const Memory& room, bool is_device) {
  std::string words;
  if (room.device < any_bytes)
    words = text(format_bytes(room.device), is_device ? " of device memory" : " of memory");
  if (room.host < any_bytes)
    words += text(words.empty() ? "" : " and ", format_bytes(room.host), " of the host's memory");
  return words + " for the arena of a rank";
}

/// Throws Error that names the smallest arena: all that blocks compute is computed again.
[[noreturn]] void refuse(LayoutCandidates& candidates, const Point& smallest,
                         const config::Settings& deck, const RanksOn& on, const Memory& room) {
  if (!candidates.seconds(smallest)) std::rethrow_exception(candidates.error());
  candidates.memory(smallest);
  throw Error(text("memory.activation_checkpointing = auto: nothing fits ",
                   room_words(room, deck.processor.is_device), " (", on.ranks,
                   on.ranks == 1 ? " rank); " : " ranks); ",
                   "with full, which keeps the least, it ", "takes ",
                   format_bytes(candidates.arenas(smallest).device),
                   "; expected more memory or ranks, a smaller training.micro_batch_size, or other "
                   "settings: ostrakon-plan --choose finds some"));
}

}  // namespace

Kept choose_recompute(const config::Settings& deck, const RanksOn& on, const Memory& room,
                      int threads) {
  config::Settings base = deck;
  kept_key.set(base, "none");
  const Space space = space_of(base);
  LayoutCandidates candidates(base, space, on, {false, room, threads});
  FirstThatFits first(candidates, room);
  const int resharded = static_cast<int>(space.dimensions[1].choices.size());
  Point point = {0, resharded - 1};
  const int most = static_cast<int>(space.dimensions[0].choices.size()) - 1;
  while (!first.fits(point))
    if (point[0]++ == most) {
      // The last in the order computes the most again, and keeps the least.
      point[0] = most;
      refuse(candidates, point, deck, on, room);
    }
  const plan::PolicyChoices policy = candidates.settings(point).parallel;
  const bool gathers = policy.sharding == plan::Sharding::full ||
                       plan::offloads(policy.offload, plan::Offload::parameters);
  for (int r = 0; gathers && r + 1 < resharded; ++r)
    if (first.fits({point[0], r})) {
      point[1] = r;
      break;
    }
  Kept kept;
  kept.settings = candidates.settings(point);
  kept.arenas = candidates.arenas(point);
  kept.room = room;
  for (const config::Varied* key : {&kept_key, &reshard_key})
    if (key->get(kept.settings) != key->get(deck))
      kept.changes.push_back(key->full_name() + "=" + key->get(kept.settings));
  return kept;
}

Memory room_of_run(const config::Settings& deck, mesh::Mesh& mesh) {
  const auto share = [](std::int64_t available, int ranks) {
    const std::int64_t of_each = available / ranks;
    return static_cast<double>(of_each - of_each / 16);
  };
  comm::Communicator sharers = train::ranks_of_device(mesh.host());
  double room[] = {share(runtime::available_memory_bytes(plan::Space::device), sharers.size()),
                   share(runtime::available_memory_bytes(plan::Space::host), mesh.host().size()) -
                       static_cast<double>(train::process_bytes())};
  mesh.world().minimum(room, 2);
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
  world.run_collectively([&] {
    if (world.rank() != 0) return;
    const RanksOn on{simulate::machine_with({}), world.size(),
                     mesh.ranks_per_node() > 0 ? mesh.ranks_per_node() : world.size()};
    // All other ranks wait, so that their cores are free.
    const Kept kept =
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
