// SPDX-License-Identifier: Apache-2.0
#include "plan_fit.hpp"

#include <cstddef>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/plan/fit.hpp>

#include "plan_fit_output.hpp"
#include "plan_fit_space.hpp"

namespace ostrakon::apps {

void show_fits(const config::Settings& deck, const FitRequest& request, bool json,
               std::ostream& out) {
  constexpr std::size_t most = 10;
  const fit::Space space(deck, request);
  const plan::Fits fits = plan::find_fits(space.candidates(), request.ranks, request.ranks_per_node,
                                          request.room, request.rates, most);
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
