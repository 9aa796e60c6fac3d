// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/builder.hpp>
#include <vector>

namespace ostrakon::plan {

/// What is moved, and the names of its intermediate buffers.
struct Moving {
  Kind gather = Kind::gather;  ///< the collective
  Role part = Role::shard;     ///< of the collective: what is gathered, and the whole
  Role whole = Role::parameters;
  Category category = Category::gathered;  ///< of what is gathered
  const char* on_device = "";              ///< copied there as it is
  const char* gathered = "";
  const char* on_host = "";  ///< copied there at last
  bool converts = false;     ///< masters, which are sent in another dtype
};

/// Brings an array of a unit from the layout of its buffer to `to`, which is divided over the same
/// spans or over the outer ones of them (else std::logic_error): copies it to the device where
/// ranks have to gather, gathers over each span that `to` does not have, the innermost first, into
/// a buffer of its own each time, or both levels of an axis into one, and copies the result to the
/// memory of `to`. The dtype changes in the first gather, over one rank if need be. Returns the
/// buffer: `target` where one is given, `source` where there is nothing to do. All that it makes
/// are appended to `made`.
int redistribute(Builder& builder, int u, int source, const Layout& to, const Moving& moving,
                 std::vector<int>& made, int target = -1);

/// Gathers in place: `buffer`, on the device, is laid out as `to` and has this rank's part of it as
/// `from` divides it; the other ranks' parts are gathered.
void gather_in_place(Builder& builder, int u, int buffer, const Spans& from, const Layout& to);

}  // namespace ostrakon::plan
