// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/train/choose_layout.hpp>

#include <algorithm>
#include <limits>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/config/assignment.hpp>
#include <ostrakon/config/nearest.hpp>
#include <utility>

namespace ostrakon::train {
namespace {

std::vector<std::string> changes_of(const config::Settings& settings,
                                    const config::Settings& deck) {
  std::vector<std::string> changes;
  for (const config::Varied* key : layout_keys())
    if (key->get(settings) != key->get(deck))
      changes.push_back(key->full_name() + "=" + key->get(settings));
  return changes;
}

ChosenLayout describe_choice(const simulate::Point& point, const LayoutCandidates& candidates,
                             const config::Settings& deck) {
  ChosenLayout chosen;
  chosen.settings = candidates.settings(point);
  chosen.changes = changes_of(chosen.settings, deck);
  chosen.prediction = candidates.prediction(point);
  chosen.arena_bytes = candidates.fit(point).arena_bytes;
  chosen.host_arena_bytes = candidates.fit(point).host_arena_bytes;
  return chosen;
}

/// The deck without what is kept in host memory, which is the last thing to choose.
config::Settings without_offload(config::Settings deck, const LayoutFreedom& freedom) {
  if (freedom.keeps_sums) return deck;
  if (freedom.kept.count("memory.offload") == 0) deck.parallel.offload = plan::Offload::none;
  if (freedom.kept.count("memory.activations") == 0) deck.parallel.offload_activations = false;
  return deck;
}

}  // namespace

std::int64_t room_of(const simulate::Machine& machine) {
  return machine.memory_bytes - machine.memory_bytes / 16;
}

ChosenLayouts choose_layouts(const config::Settings& deck, const ChooseRequest& request) {
  const std::optional<bool> bits = has_the_bits_of_one_rank(deck, request.on);
  LayoutFreedom freedom;
  freedom.ranks = request.on.ranks;
  freedom.ranks_per_node = request.on.ranks_per_node;
  freedom.kept = request.kept;
  freedom.keeps_sums = bits.has_value() && !*bits;
  const std::int64_t room =
      request.room_bytes > 0 ? request.room_bytes : room_of(request.on.machine);
  const std::int64_t limit = room > 0 ? room : std::numeric_limits<std::int64_t>::max();
  const config::Settings base = without_offload(deck, freedom);

  ChosenLayouts chosen;
  chosen.room_bytes = room;
  for (freedom.offloads = false;; freedom.offloads = true) {
    const LayoutSpace space = make_layout_space(base, freedom);
    LayoutCandidates candidates(base, space, request.on,
                                {!freedom.keeps_sums, limit, request.threads});
    const simulate::Choices found =
        (request.is_exhaustive ? simulate::search_all : simulate::search)(candidates, limit,
                                                                          request.most);
    chosen.bounded += found.bounded;
    chosen.estimated += found.estimated;
    chosen.planned += found.planned;
    chosen.left_out = space.left_out;
    if (candidates.with_other_bits() > 0)
      chosen.left_out.push_back(text(format_count(candidates.with_other_bits()),
                                     " settings whose sums would not be bitwise equal to 1 rank"));
    for (const simulate::Found& one : found.best)
      chosen.best.push_back(describe_choice(one.point, candidates, deck));
    if (!chosen.best.empty()) return chosen;
    if (!freedom.offloads) continue;
    if (!found.smallest) {
      if (candidates.error()) std::rethrow_exception(candidates.error());
      throw Error(
          text("no settings are possible on ", request.on.ranks,
               " ranks without changing bits: ", config::join(chosen.left_out, "; ", "; ")));
    }
    const ChosenLayout smallest = describe_choice(found.smallest->point, candidates, deck);
    throw Error(
        text("nothing fits ", format_bytes(room), " of a rank's device memory (", request.on.ranks,
             request.on.ranks == 1 ? " rank, " : " ranks, ", request.on.ranks_per_node,
             " on each node); the smallest arena that was found ", "takes ",
             format_bytes(smallest.arena_bytes), ": ", config::set_options(smallest.changes)));
  }
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

}  // namespace ostrakon::train
