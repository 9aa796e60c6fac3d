// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <string>

namespace ostrakon::train {

/// The resolved Policy::node_windows of a run.
struct FoundWindows {
  plan::NodeWindows windows = plan::NodeWindows::never;  ///< never or always
  std::string why_not;  ///< why windows are not used although they were to be
};

/// Tests whether ranks of a node can map each other's memory. On devices they never do, without a
/// reason; if nodes have one rank the result is always, and nothing is mapped. Collective over the
/// mesh; the same on all ranks. Throws CollectiveError where `asked` is always and it is not
/// possible.
FoundWindows find_windows(plan::NodeWindows asked, mesh::Mesh& mesh);

/// Resolves `asked` without ranks, for plans: `automatic` is always if memory is a host's.
plan::NodeWindows expected_windows(plan::NodeWindows asked, bool on_devices);

}  // namespace ostrakon::train
