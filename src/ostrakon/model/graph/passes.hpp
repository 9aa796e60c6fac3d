// SPDX-License-Identifier: Apache-2.0
#pragma once

// The passes that make a unit's program of its graph, in the order in which they run and can be
// read. Each is a function of what the one before has made; program.hpp runs them. The graph is
// divided over ranks as it is built; see division.hpp.

#include <map>
#include <ostrakon/model/graph/graph.hpp>
#include <ostrakon/model/graph/program.hpp>
#include <set>
#include <vector>

namespace ostrakon::model::graph {

/// A graph with its calls listed.
struct Listing {
  Graph graph;
  Calls forward = {}, backward = {}, deferred = {};
  std::set<int> kept = {};              ///< values of forward that backward reads
  std::set<int> gradient_aliases = {};  ///< values that lie in the gradients of the unit's outputs,
                                        ///< which become those of its inputs
  std::vector<int> output_gradients = {};  ///< of Graph::outputs
  std::vector<int> input_gradients = {};   ///< of Graph::inputs
  std::map<int, int> recomputed_of =
      {};  ///< values of backward that are values of forward, made again

  Value& value(int v) { return graph.value(v); }
  const Value& value(int v) const { return graph.value(v); }
  /// Has the call write values like those that it writes, which `made` tells of each.
  void write_anew(Call& call, std::map<int, int>& made);
  /// The operation, and its call, that makes each value of forward.
  struct Maker {
    const Operation* operation;
    const Call* call;
  };
  std::map<int, Maker> makers() const;
};

/// 1. Lists the calls of forward, and those of backward from the last operation to the first.
/// Gradients of a value that is read several times are added up: by calls that can add, else by a
/// call that does nothing else. Guarantee: the gradient of the input, and of each trained weight,
/// is made once; nothing is computed for other weights. A unit that is decoded has no backward.
Listing differentiate(Graph graph);

/// 2. What backward reads of forward is kept, or, if it is dropped, made again before its first
/// reader: of statistics where these are kept. Exchanges are made again, too. Guarantee: backward
/// reads nothing of forward but what is kept, and the unit's input.
void keep(Listing& listing);

/// The call that makes a value of forward again: from statistics, if these are kept.
Call recomputation_of(const Listing& listing, const std::map<int, Listing::Maker>& makers, int v);

/// 3. Moves gradients of weights by products to `deferred`, and with them all that reads nothing
/// else, and exchanges of what only they read. What these read is kept and not replaced, or made
/// again by a pass over memory or as forward has exchanged it, or left by backward, as is what
/// backward exchanges: nothing is exchanged more often than where nothing is deferred. Other
/// gradients of weights wait in values of their own. Guarantee: deferred calls read no weights, and
/// no exchange of other calls.
void defer(Listing& listing);

/// 4. Puts calls in the order in which they run: what is made again comes just before its reader,
/// exchanges as soon as what they take is there, gradients of weights behind those.
void order(Listing& listing);

/// 5. Has calls of forward compute some rows at a time where tensor ranks exchange these, so that
/// some are computed while others travel. Guarantee: all rows of a value are there before a call
/// that takes all of them.
void divide_rows(Listing& listing);

/// 6. Has one kernel compute calls that a FusedKernel names, where they can become neighbours: no
/// exchange lies between them, all that one needs of the other still comes before, and arrays of
/// the workspace take at most an eighth more memory than apart. Drops copies of backward whose
/// readers can read the original. Guarantee: each call is computed once, of the same values.
void fuse(Listing& listing);

/// 7. The calls at which phases begin, numbered through all lists: behind each exchange, and before
/// what waits for one if a product runs before it.
std::set<int> find_phases(const Listing& listing);

/// 8. Gives each array its place, for phases that begin at these calls. What crosses from one phase
/// to another lies where a saved array is dead, is left in `deferred`, or has the phases keep their
/// workspace. Guarantee, checked here: a value is written before it is read, and nothing else is
/// written where it lies until it is read for the last time.
Program place(Listing listing, const std::set<int>& phases);

/// Throws std::logic_error, naming call and value, where a call of the program reads what was not
/// written before it, or writes, or has scratch, where another value lies that is needed later, or
/// by itself unless it may replace it, or beyond the end of a buffer: in forward and backward, and
/// where forward runs for what it saves alone. `listing`: whose values the program places.
void check_places(const Listing& listing, const Program& program);

/// Throws std::logic_error, naming the weight, unless the gradient of each trained weight is
/// computed once, and of no other. A unit that is decoded has none.
void check_gradients(const Program& program);

}  // namespace ostrakon::model::graph
