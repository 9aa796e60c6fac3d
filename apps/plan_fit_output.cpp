// SPDX-License-Identifier: Apache-2.0
#include "plan_fit_output.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/plan/report_text.hpp>
#include <ostream>

namespace ostrakon::apps::fit {
std::string ranks_text(const FitRequest& request) {
  return text(format_count(request.ranks), request.ranks == 1 ? " rank, " : " ranks, ",
              format_count(request.ranks_per_node), " on each node");
}

bool is_bounded(const FitRequest& request) {
  return request.room.host_bytes != plan::Room().host_bytes;
}

std::string room_text(const FitRequest& request) {
  std::string room = format_bytes(request.room.device_bytes) + " of a rank's device memory";
  if (is_bounded(request))
    room += " and " + format_bytes(request.room.host_bytes) + " of the host's memory for it";
  return room;
}

void write_text(const Space& space, const FitRequest& request, const plan::Fits& fits,
                std::ostream& out) {
  const auto column = [&](std::int64_t plan::Fit::*bytes) {
    return std::any_of(fits.best.begin(), fits.best.end(),
                       [&](const plan::Fit& fit) { return fit.*bytes > 0; });
  };
  const bool copies = column(&plan::Fit::bytes_copied), on_host = column(&plan::Fit::bytes_on_host);
  out << "settings whose arena fits " << room_text(request) << " (" << ranks_text(request)
      << "), fastest first\n"
      << print("  %10s %12s %8s %10s %12s %12s %18s %14s %14s", "seconds", "tokens/s", "MFU",
               "exposed", "arena", "host arena", "computing", "inside a node", "across nodes")
      << (copies ? print(" %12s", "copied") : "") << (on_host ? print(" %12s", "on the host") : "")
      << print(" %16s", "bitwise equal") << "\n";
  for (const plan::Fit& fit : fits.best) {
    const Throughput made = space.throughput_of(fit);
    out << print("  %#10.4g %12s %6.1f %% %10.3g %12s %12s %18s %14s %14s", fit.seconds,
                 format_count(std::llround(made.tokens_per_second)).c_str(), 100.0 * made.mfu,
                 fit.exposed_communication, format_bytes(fit.arena_bytes).c_str(),
                 format_bytes(fit.host_arena_bytes).c_str(), plan::format_flops(fit.flops).c_str(),
                 format_bytes(fit.bytes_inside_nodes).c_str(),
                 format_bytes(fit.bytes_across_nodes).c_str())
        << (copies ? print(" %12s", format_bytes(fit.bytes_copied).c_str()) : "")
        << (on_host ? print(" %12s", format_bytes(fit.bytes_on_host).c_str()) : "")
        << print(" %16s", fit.bits_of_one_rank ? "yes" : "no") << "\n    "
        << set_options(space.changes(fit.candidate)) << "\n";
  }
  if (request.machine)
    out << "\nseconds: of a step, simulated on " << request.machine->name << ", as --time does\n";
  else
    out << "\nseconds: of a step, by its streams and waits,\n"
        << plan::rates_text(request.rates, true, true) << "\n";
  out << "exposed: of these, those in which a rank communicates and does not compute\n"
      << "bitwise equal: whether sums over micro-batches are bitwise equal to 1 rank with these "
         "settings;\n"
      << "no: equal up to rounding\n"
      << (space.deck().pipeline > 1
              ? text("seconds, arenas: of all ", space.deck().pipeline,
                     " stages; all else of the stage with the largest arena\n")
              : "")
      << (space.deck().expert > 1
              ? "inside a node, across nodes: with further rounds of experts, which even routing "
                "does not take; in no time above\n"
              : "")
      << "of " << format_count(static_cast<std::int64_t>(space.candidates().size()))
      << " settings, " << format_count(fits.planned)
      << " were planned; of the others, known without a plan,\n"
      << format_count(fits.too_large) << " are too large, " << format_count(fits.too_slow)
      << " take longer than these, " << format_count(fits.unneeded)
      << " are no faster than others that differ in overlap or the host's part alone";
  if (fits.needless > 0)
    out << ", " << format_count(fits.needless) << " are slower and need no less memory";
  if (fits.impossible > 0) out << ", " << format_count(fits.impossible) << " can't be planned";
  out << "\n";
}

void write_json(const Space& space, const FitRequest& request, const plan::Fits& fits,
                std::ostream& out) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const plan::Fit& fit : fits.best) {
    const Throughput made = space.throughput_of(fit);
    rows.push_back({{"set", space.changes(fit.candidate)},
                    {"seconds", fit.seconds},
                    {"exposed_communication_seconds", fit.exposed_communication},
                    {"tokens_per_second", made.tokens_per_second},
                    {"mfu", made.mfu},
                    {"arena_bytes", fit.arena_bytes},
                    {"host_arena_bytes", fit.host_arena_bytes},
                    {"flops", fit.flops},
                    {"bytes_inside_nodes", fit.bytes_inside_nodes},
                    {"bytes_across_nodes", fit.bytes_across_nodes},
                    {"bytes_copied", fit.bytes_copied},
                    {"bytes_on_host", fit.bytes_on_host},
                    {"bits_of_one_rank", fit.bits_of_one_rank}});
  }
  Json json = {{"format", 1},
               {"fit_bytes", request.room.device_bytes},
               {"host_bytes", is_bounded(request) ? Json(request.room.host_bytes) : Json()},
               {"ranks", request.ranks},
               {"ranks_per_node", request.ranks_per_node},
               {"candidates", space.candidates().size()},
               {"too_large_without_planning", fits.too_large},
               {"too_slow_without_planning", fits.too_slow},
               {"unneeded", fits.unneeded},
               {"needless_without_planning", fits.needless},
               {"impossible", fits.impossible},
               {"planned", fits.planned},
               {"settings", rows}};
  if (request.machine) {
    json["machine"] = request.machine->name;
  } else {
    const plan::Rates& rates = request.rates;
    json["flops_per_second"] = rates.flops;
    json["bytes_per_second_inside_nodes"] = rates.bytes_inside_nodes;
    json["bytes_per_second_across_nodes"] = rates.bytes_across_nodes;
    json["bytes_per_second_copied"] = rates.bytes_copied;
    json["bytes_per_second_on_host"] = rates.bytes_on_host;
  }
  out << json.dump(2) << "\n";
}

}  // namespace ostrakon::apps::fit
