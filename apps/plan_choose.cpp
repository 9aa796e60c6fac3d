// SPDX-License-Identifier: Apache-2.0
// ostrakon-plan --choose: the settings with which a step is fastest on a described machine.
#include "plan_choose.hpp"

#include <nlohmann/json.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/config/assignment.hpp>
#include <ostream>

#include "plan_text.hpp"

namespace ostrakon::apps {
namespace {

using Json = nlohmann::ordered_json;
using train::ChosenLayout;

std::string memory_text(const ChosenLayout& one) {
  std::string memory = "arena of a rank " + format_bytes(one.arena_bytes);
  if (one.settings.parallel.offload != plan::Offload::none ||
      one.settings.parallel.offload_activations)
    memory += ", " + format_bytes(one.host_arena_bytes) + " of the host's memory";
  return memory;
}

void show_as_json(const train::ChosenLayouts& chosen, const train::ChooseRequest& request,
                  double tokens, std::ostream& out) {
  Json rows = Json::array();
  for (const ChosenLayout& one : chosen.best)
    rows.push_back({{"set", one.changes},
                    {"step_seconds", one.prediction.step_seconds},
                    {"fastest_step_seconds", one.prediction.fastest},
                    {"slowest_step_seconds", one.prediction.slowest},
                    {"tokens_per_second", tokens / one.prediction.step_seconds},
                    {"mfu", one.prediction.mfu},
                    {"arena_bytes", one.arena_bytes},
                    {"host_arena_bytes", one.host_arena_bytes},
                    {"factors", factors_json(one.prediction.factors)}});
  out << Json{{"machine", request.on.machine.name},
              {"ranks", request.on.ranks},
              {"ranks_per_node", request.on.ranks_per_node},
              {"room_bytes", chosen.room_bytes > 0 ? Json(chosen.room_bytes) : Json()},
              {"not_tried_as_bits_would_change", chosen.left_out},
              {"bounded", chosen.bounded},
              {"estimated", chosen.estimated},
              {"planned", chosen.planned},
              {"settings", rows}}
             .dump(2)
      << "\n";
}

}  // namespace

void show_choice(const train::ChosenLayouts& chosen, const train::ChooseRequest& request,
                 double tokens, bool json, std::ostream& out) {
  if (json) return show_as_json(chosen, request, tokens, out);
  const simulate::Prediction& best = chosen.best.front().prediction;
  out << request.on.machine.name << ": " << format_count(request.on.ranks)
      << (request.on.ranks == 1 ? " rank, " : " ranks, ") << request.on.ranks_per_node
      << " on each node, ";
  if (chosen.room_bytes > 0)
    out << format_bytes(chosen.room_bytes) << " for the arena of each\n";
  else
    out << "arenas of any size\n";
  out << "\nthe fastest settings that were found: " << seconds_text(best.step_seconds)
      << " a step, in 19 of 20 runs " << seconds_text(best.fastest) << " to "
      << seconds_text(best.slowest) << "\n"
      << print("  %.6g tokens/s, MFU %.1f %%, ", tokens / best.step_seconds, 100.0 * best.mfu)
      << memory_text(chosen.best.front()) << "\n  "
      << config::set_options(chosen.best.front().changes) << "\n";
  if (chosen.best.size() > 1) out << "\nof other kinds\n";
  for (std::size_t i = 1; i < chosen.best.size(); ++i) {
    const ChosenLayout& one = chosen.best[i];
    const std::string why = train::why_slower(one.prediction, best);
    out << print("  %.1f %% slower, ",
                 100.0 * (one.prediction.step_seconds / best.step_seconds - 1.0))
        << seconds_text(one.prediction.step_seconds) << (why.empty() ? "" : ": " + why) << "; "
        << memory_text(one) << "\n    " << config::set_options(one.changes) << "\n";
  }
  if (!chosen.left_out.empty()) out << "\nnot tried, as bits of results would change\n";
  for (const std::string& one : chosen.left_out) out << "  " << one << "\n";
  out << "\n"
      << format_count(chosen.bounded) << " settings were bounded, "
      << format_count(chosen.estimated) << " estimated by shorter steps, "
      << format_count(chosen.planned) << " planned and simulated\n";
}

}  // namespace ostrakon::apps
