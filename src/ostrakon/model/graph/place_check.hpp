// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/model/graph/passes.hpp>

namespace ostrakon::model::graph {

/// Throws std::logic_error, naming call and value, where a call of the program reads what was not
/// written before it, or writes, or has scratch, where another value lies that is needed later, or
/// by itself unless it may replace it, or beyond the end of a buffer: in forward and backward, and
/// where forward runs for what it saves alone. `listing`: whose values the program places.
void check_places(const Listing& listing, const Program& program);

/// Throws std::logic_error, naming the weight, unless the gradient of each trained weight is
/// computed once, and of no other. A unit that is decoded has none.
void check_gradients(const Program& program);

}  // namespace ostrakon::model::graph
