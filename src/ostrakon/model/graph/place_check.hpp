// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostrakon/model/graph/arrays.hpp>

namespace ostrakon::model::graph {

/// Throws std::logic_error, naming call and values, where a call reads what was not written before
/// it, or writes where another value lies that is read later, or by itself unless it may replace
/// it. `place`: of a value as a call finds it; `run`: of phases that keep their workspace, which a
/// call is in.
void check_places(const Listing& listing, const Numbered& calls,
                  const std::function<Place(int call, int v)>& place,
                  const std::function<int(int call)>& run);

}  // namespace ostrakon::model::graph
