// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <climits>
#include <cstdint>
#include <ostrakon/model/graph/lists.hpp>
#include <ostrakon/model/graph/passes.hpp>
#include <vector>

namespace ostrakon::model::graph {

/// All calls of a listing, numbered through: those of forward, of backward, and deferred ones.
struct Numbered {
  explicit Numbered(const Listing& listing);

  std::vector<const Call*> calls;
  int begins[4] = {0, 0, 0, 0};  ///< of each list; the last is the number of calls

  int count() const { return begins[3]; }
  int section(int call) const { return call < begins[1] ? 0 : call < begins[2] ? 1 : 2; }
  const Call& operator[](int call) const { return *at(calls, call); }
};

/// Bytes that one value, or several one after the other or side by side, lie in.
struct ValueArray {
  std::int64_t bytes = 0;
  std::int64_t pieces = 1;         ///< Value::pieces
  bool is_vector = false;          ///< of one row
  int first = INT_MAX, last = -1;  ///< calls that use it
  Home home = Home::workspace;
  std::int64_t offset = 0;
  std::int64_t spare = -1;                              ///< Place::spare
  bool is_for_exchange = true;                          ///< nothing but exchanges reads it
  bool is_guest = false;                                ///< it lies in a saved array that is dead
  bool begins_by_piece = false, ends_by_piece = false;  ///< Call::is_by_piece of those calls
};

/// Says which values share an array: columns of a group, and what a call writes over what it reads.
struct ValueArrays {
  std::vector<ValueArray> all;
  std::vector<int> of;  ///< by value; -1: nothing uses it
  std::int64_t own_pieces = 1;

  const ValueArray& array_of(int v) const { return at(all, at(of, v)); }
  /// A saved array that nothing uses after `array` begins, and at most twice as large: the
  /// smallest. -1: none. It may end with the call that writes `array`.
  int find_dead(const ValueArray& array) const;
};

/// Homes are those that do not depend on phases: all that is not in another buffer is in the
/// workspace.
ValueArrays find_arrays(const Listing& listing, const Numbered& numbered);

/// By call of forward: whether something that is kept would not be there without it.
std::vector<bool> find_what_saves(const Listing& listing);

}  // namespace ostrakon::model::graph
