// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/plan/passes/builder.hpp>
#include <vector>

namespace ostrakon::plan {

/// A redistribution of an array, and the names of its intermediate buffers.
struct Redistribution {
  Kind gather = Kind::gather;  ///< kind of the collective
  Role part = Role::shard;     ///< roles in the collective of a rank's part, and of the whole
  Role whole = Role::parameters;
  Category category = Category::gathered;  ///< category of the gathered buffers
  const char* on_device = "";              ///< name of the copy on the device, made before gathers
  const char* gathered = "";
  const char* on_host = "";  ///< name of the copy on the host, made last
  bool converts = false;     ///< whether masters are converted to another dtype, or quantized, to
                             ///< be sent
};

/// Brings an array of a unit from the layout of its buffer to `to`, which is divided over the same
/// spans or over the outer ones of them (else std::logic_error). It copies the array to the device
/// where ranks have to gather; gathers over each span that `to` does not have, the innermost first,
/// into a new buffer for each axis; and copies the result to the memory of `to`. The dtype changes
/// in the first gather, over one rank if need be; that is where masters are quantized, too. Returns
/// the buffer: `target` where one is given, `source` where there is nothing to do. All buffers that
/// it makes are appended to `made`.
int redistribute(Builder& builder, int u, int source, const Layout& to,
                 const Redistribution& moving, std::vector<int>& made, int target = -1);

/// Gathers in place: `buffer`, on the device and laid out as `to`, has this rank's part as `from`
/// divides it; the other ranks' parts are gathered.
void gather_in_place(Builder& builder, int u, int buffer, const Spans& from, const Layout& to);

/// Hands a unit's master parameters to the caller, whole on each rank; those without masters as
/// they are computed with, converted.
void export_parameters(Builder& builder, int u);

}  // namespace ostrakon::plan
