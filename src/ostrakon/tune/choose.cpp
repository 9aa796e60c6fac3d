// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/tune/choose.hpp>

#include <algorithm>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/files/input.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/config/assignment.hpp>
#include <ostrakon/config/deck.hpp>
#include <ostrakon/config/machine_file.hpp>
#include <ostrakon/config/nearest.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/tune/recompute.hpp>
#include <sstream>
#include <utility>

namespace ostrakon::tune {
namespace {

std::vector<std::string> changes_of(const config::Settings& settings,
                                    const config::Settings& deck) {
  std::vector<std::string> changes;
  for (const config::Varied* key : varied_keys())
    if (key->get(settings) != key->get(deck))
      changes.push_back(key->full_name() + "=" + key->get(settings));
  return changes;
}

/// A point of which time and memory are known.
Chosen describe(const Point& point, const LayoutCandidates& candidates,
                const config::Settings& deck) {
  Chosen chosen;
  chosen.settings = candidates.settings(point);
  chosen.changes = changes_of(chosen.settings, deck);
  chosen.prediction = candidates.prediction(point);
  chosen.arenas = candidates.arenas(point);
  chosen.fits = candidates.fits(point);
  chosen.bits_of_one_rank = candidates.has_bits(point);
  return chosen;
}

void describe_deck(Result& choice, const config::Settings& deck, const Request& request) {
  const Space as_it_is;
  LayoutCandidates deck_alone(deck, as_it_is, request.on, {false, choice.room, request.threads});
  if (deck_alone.seconds({})) {
    deck_alone.memory({});
    choice.deck = describe({}, deck_alone, deck);
    return;
  }
  try {
    std::rethrow_exception(deck_alone.error());
  } catch (const Error& error) {
    choice.why_not_deck = error.what();
  }
}

Memory room_for(const config::Settings& deck, const Request& request) {
  const std::int64_t device =
      request.room.device > 0 ? request.room.device : room_of(request.on.machine);
  Memory room{device > 0 ? device : any_bytes,
              request.room.host > 0 ? request.room.host : any_bytes};
  if (deck.memory_limit > 0) room.device = std::min(room.device, deck.memory_limit);
  return room;
}

std::string room_text(const Memory& room, bool is_device) {
  std::string words = format_bytes(room.device) + " of a rank's memory";
  if (is_device) words = format_bytes(room.device) + " of a rank's device memory";
  if (room.host == any_bytes) return words;
  const std::string host = format_bytes(room.host) + " of the host's memory for it";
  return room.device == any_bytes ? host : words + " and " + host;
}

/// The deck without what is kept in host memory, which is the last thing to choose.
config::Settings without_offload(config::Settings deck, const Freedom& freedom) {
  if (freedom.keeps_sums) return deck;
  if (freedom.kept.count("memory.offload") == 0) deck.parallel.offload = plan::Offload::none;
  if (freedom.kept.count("memory.activations") == 0) deck.parallel.offload_activations = false;
  return deck;
}

/// Chooses for a deck that leaves open what is computed again: that is varied in any case.
Result choose_with_recompute(config::Settings deck, Request request) {
  constexpr config::Varied key{"memory", "activation_checkpointing"};
  const config::Settings as_given = deck;
  key.set(deck, "none");
  request.kept.erase(key.full_name());
  Result choice = choose(deck, request);
  for (Chosen& one : choice.best) one.changes = changes_of(one.settings, as_given);
  if (choice.deck) choice.deck->changes = changes_of(choice.deck->settings, as_given);
  return choice;
}

}  // namespace

std::int64_t room_of(const simulate::Machine& machine) {
  return machine.memory_bytes - machine.memory_bytes / 16;
}

Result choose(const config::Settings& deck, const Request& request) {
  if (deck.chooses_recompute) return choose_with_recompute(deck, request);
  config::require_rates(deck, request.on.machine);
  config::require_own_steps(request.on.machine, "settings are chosen for Ostrakon's own steps");
  const std::optional<bool> bits = has_the_bits_of_one_rank(deck, request.on);
  const bool is_device = deck.processor.is_device;
  Freedom freedom;
  freedom.ranks = request.on.ranks;
  freedom.ranks_per_node = request.on.ranks_per_node;
  freedom.kept = request.kept;
  freedom.any_precision = request.any_precision;
  freedom.keeps_sums = !request.any_precision && bits.has_value() && !*bits;
  const bool needs_bits = !request.any_precision && !freedom.keeps_sums;
  const config::Settings base = without_offload(deck, freedom);

  Result choice;
  choice.room = room_for(deck, request);
  for (freedom.offloads = false;; freedom.offloads = true) {
    const Space space = make_space(base, freedom);
    LayoutCandidates candidates(base, space, request.on,
                                {needs_bits, choice.room, request.threads});
    const SearchResult found =
        (request.is_exhaustive ? search_all : search)(candidates, choice.room, request.most);
    choice.bounded += found.bounded;
    choice.estimated += found.estimated;
    choice.planned += found.planned;
    choice.left_out = space.left_out;
    if (candidates.with_other_bits() > 0)
      choice.left_out.push_back(text(format_count(candidates.with_other_bits()),
                                     " settings whose sums would not be bitwise equal to 1 rank"));
    for (const Found& one : found.best)
      choice.best.push_back(describe(one.point, candidates, deck));
    if (!choice.best.empty()) break;
    if (is_device && !freedom.offloads) continue;
    if (!found.smallest) {
      if (candidates.error()) std::rethrow_exception(candidates.error());
      throw Error(
          text("no settings are possible on ", request.on.ranks,
               " ranks without changing bits: ", config::join(choice.left_out, "; ", "; ")));
    }
    const Chosen smallest = describe(found.smallest->point, candidates, deck);
    throw Error(text("nothing fits ", room_text(choice.room, is_device), " (", request.on.ranks,
                     request.on.ranks == 1 ? " rank, " : " ranks, ", request.on.ranks_per_node,
                     " on each node); the smallest arena that was found takes ",
                     format_bytes(smallest.arenas.device),
                     choice.room.host < any_bytes || !is_device
                         ? " and " + format_bytes(smallest.arenas.host) + " of the host's memory"
                         : "",
                     ": ", config::set_options(smallest.changes)));
  }
  describe_deck(choice, deck, request);
  return choice;
}

std::string why_slower(const simulate::Prediction& slower, const simulate::Prediction& than) {
  struct Named {
    const char* name;
    double is, was;
  };
  const simulate::NamedFactors now = list(slower.factors), before = list(than.factors);
  std::vector<Named> factors;
  for (std::size_t f = 0; f < now.size(); ++f)
    factors.push_back({now[f].first, now[f].second, before[f].second});
  std::stable_sort(factors.begin(), factors.end(), [](const Named& one, const Named& other) {
    return one.is * other.was < other.is * one.was;
  });
  std::string why;
  for (const Named& factor : factors) {
    if (factor.is > 0.99 * factor.was) break;
    why += (why.empty() ? "" : ", ") +
           print("%s %.3f instead of %.3f", factor.name, factor.is, factor.was);
  }
  return why;
}

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
  if (settings.choose.empty())
    return choose_recompute_for_run(std::move(settings), parent, std::cout);
  mesh::Mesh mesh(parent, static_cast<int>(settings.ranks_per_node));
  comm::Communicator& world = mesh.world();
  std::string changes;
  world.run_on_root([&] {
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
