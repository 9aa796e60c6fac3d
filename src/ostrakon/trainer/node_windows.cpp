// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/trainer/node_windows.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/comm/window.hpp>
#include <ostrakon/math/portability.hpp>

namespace ostrakon::train {
namespace {

using plan::NodeWindows;

/// Returns why ranks of a node can't map each other's memory; "" if they can, or a node has one
/// rank.
std::string why_not(mesh::Mesh& mesh) {
  if (has_device) return "this build computes on a device, whose memory ranks do not map";
  if (mesh.ranks_per_node() == 0)
    return "nodes don't have equally many ranks each, numbered one after the other";
  const std::string mine = mesh.ranks_per_node() > 1 ? comm::why_not_shared(mesh.node()) : "";
  try {
    mesh.world().run_collectively([&] {
      if (!mine.empty()) throw Error(mine);
    });
  } catch (const CollectiveError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

FoundWindows find_windows(NodeWindows asked, mesh::Mesh& mesh) {
  if (asked == NodeWindows::never || (asked == NodeWindows::automatic && has_device)) return {};
  FoundWindows found = {NodeWindows::always, why_not(mesh)};
  if (found.why_not.empty()) return found;
  if (asked == NodeWindows::always)
    throw CollectiveError(
        text("parallel.node_windows = always: ", found.why_not, "; expected auto or never"));
  found.windows = NodeWindows::never;
  return found;
}

NodeWindows expected_windows(NodeWindows asked, bool on_devices) {
  if (asked != NodeWindows::automatic) return asked;
  return on_devices ? NodeWindows::never : NodeWindows::always;
}

}  // namespace ostrakon::train
