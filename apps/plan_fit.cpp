// SPDX-License-Identifier: Apache-2.0
#include "plan_fit.hpp"

#include <algorithm>
#include <cstddef>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/plan/fit.hpp>
#include <ostrakon/simulate/machine_costs.hpp>
#include <ostrakon/simulate/prediction.hpp>
#include <ostrakon/train/layout_candidates.hpp>

#include "plan_fit_output.hpp"
#include "plan_fit_space.hpp"

namespace ostrakon::apps {
namespace {

/// At which no setting takes longer than simulated, in any dtype that the machine has.
plan::Rates bounds_of(const simulate::Machine& machine, int ranks_per_node) {
  plan::Rates bound;
  bound.flops = 0.0;
  for (const std::int64_t bytes : {2, 4, 8}) {
    if (machine.rates(bytes) == nullptr) continue;
    const double flops = bound.flops;
    bound = simulate::bounding_rates(machine, bytes, ranks_per_node);
    bound.flops = std::max(bound.flops, flops);
  }
  return bound;
}

plan::StepTimes times_on(const simulate::Machine& machine, const config::Settings& deck,
                         int ranks_per_node) {
  const simulate::Streams streams = train::streams_of(deck, machine, ranks_per_node);
  return [machine, streams, ranks_per_node](const std::vector<const plan::StepPlan*>& plans) {
    const simulate::Prediction found =
        simulate::predict(plans, machine, ranks_per_node, streams, 0.0);
    std::vector<plan::Timing> timings = found.timings;
    for (plan::Timing& timing : timings) timing.seconds = found.step_seconds;
    return timings;
  };
}

}  // namespace

void show_fits(const config::Settings& deck, const FitRequest& request, bool json,
               std::ostream& out) {
  constexpr std::size_t most = 10;
  const fit::Space space(deck, request);
  const int node = request.ranks_per_node;
  const plan::Rates rates = request.machine ? bounds_of(*request.machine, node) : request.rates;
  const plan::StepTimes times =
      request.machine ? times_on(*request.machine, deck, node) : plan::StepTimes();
  const plan::Fits fits =
      plan::find_fits(space.candidates(), request.ranks, node, request.room, rates, most, times);
  if (fits.best.empty()) {
    const int smallest = fits.smallest.candidate;
    require(smallest >= 0, "nothing fits --host-bytes: no settings need as little of the host's ",
            "memory as ", format_bytes(request.room.host_bytes), " for a rank (",
            fit::ranks_text(request), ")");
    throw Error(text("nothing fits ", fit::room_text(request), " (", fit::ranks_text(request),
                     "); the smallest arena in device memory",
                     fits.is_smallest_of_all ? "" : " that was found",
                     fit::is_bounded(request) ? ", of settings within --host-bytes," : "",
                     " takes ", format_bytes(fits.smallest.arena_bytes),
                     fits.smallest.bits_of_one_rank ? "" : ", not bitwise equal to 1 rank", ": ",
                     fit::set_options(space.changes(smallest))));
  }
  (json ? fit::write_json : fit::write_text)(space, request, fits, out);
}

}  // namespace ostrakon::apps
