// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/plan/policy.hpp>
#include <string>

namespace ostrakon::train {

/// What Policy::node_windows becomes on the ranks of a run.
struct FoundWindows {
  plan::NodeWindows windows = plan::NodeWindows::never;  ///< never or always
  std::string why_not;  ///< where they are never and were not to be: why
};

/// Tries whether ranks of a node can map each other's memory. On devices there are none, without a
/// reason; where nodes have one rank, it is always, and nothing is to be mapped. Collective over
/// the mesh; the same on all ranks. Throws AgreedError where `asked` is always and they can't be.
FoundWindows find_windows(plan::NodeWindows asked, mesh::Mesh& mesh);

/// Chooses without ranks, for plans: with `automatic` always where memory is a host's.
plan::NodeWindows expected_windows(plan::NodeWindows asked, bool on_devices);

}  // namespace ostrakon::train
