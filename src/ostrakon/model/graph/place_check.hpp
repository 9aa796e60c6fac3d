// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <ostrakon/model/graph/arrays.hpp>

namespace ostrakon::model::graph {

/// Throws std::logic_error, naming call and value, where a call reads what was not written before
/// it, or writes, or has scratch, where another value lies that is needed later, or by itself
/// unless it may replace it. `place`: of a value as a call finds it; `scratch`: of a call; `run`:
/// of phases that keep their workspace, which a call is in; `first_by_piece`: of neighbouring calls
/// that run for one piece after the other, the first.
void check_places(const Listing& listing, const Numbered& calls,
                  const std::function<Place(int call, int v)>& place,
                  const std::function<std::vector<Place>(int call)>& scratch,
                  const std::function<int(int call)>& run,
                  const std::function<int(int call)>& first_by_piece);

/// Throws std::logic_error, naming the weight, unless the gradient of each trained weight is
/// computed once, and of no other. A unit that is decoded has none.
void check_gradients(const Listing& listing, const Numbered& calls);

}  // namespace ostrakon::model::graph
