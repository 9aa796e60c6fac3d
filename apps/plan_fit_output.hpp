// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iosfwd>
#include <ostrakon/config/assignment.hpp>
#include <ostrakon/plan/fit.hpp>
#include <string>
#include <vector>

#include "plan_fit_request.hpp"
#include "plan_fit_space.hpp"

namespace ostrakon::apps::fit {

using config::set_options;
/// "64 ranks, 8 on each node"
std::string ranks_text(const FitRequest& request);
/// "80.00 GiB of a rank's device memory and 200.00 GiB of the host's memory for it"
std::string room_text(const FitRequest& request);
/// Whether host memory is bounded.
bool is_bounded(const FitRequest& request);

/// A table of settings that fit, with the options that make them.
void write_text(const Space& space, const FitRequest& request, const plan::Fits& fits,
                std::ostream& out);
/// Writes the fits as JSON.
void write_json(const Space& space, const FitRequest& request, const plan::Fits& fits,
                std::ostream& out);

}  // namespace ostrakon::apps::fit
