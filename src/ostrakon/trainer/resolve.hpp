// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostrakon/config/settings.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/model/model.hpp>
#include <ostrakon/plan/ir/policy.hpp>
#include <ostrakon/simulate/machine_costs.hpp>
#include <ostrakon/trainer/trainer_settings.hpp>
#include <string>

// From what a user chooses to what plans are made by. A deck's settings and a Trainer's have the
// same plan::PolicyChoices. config::policy_of adds what follows from the other settings, the
// functions of this file what follows from the ranks: those of a mesh, of which a step is run, or a
// number of them, for which it is planned only.

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

/// The policy of a run.
struct RunPolicy {
  plan::Policy policy;
  std::string why_no_windows;  ///< FoundWindows::why_not
};

/// Returns the policy of a run. Collective over the mesh. Throws CollectiveError as find_windows.
RunPolicy resolve(const TrainerSettings& settings, const model::Model& model, mesh::Mesh& mesh);

/// Returns the policy by which a deck's step is planned without its ranks. Throws Error where the
/// settings do not fit that number of ranks.
plan::Policy resolve(const config::Settings& settings, int ranks, int ranks_per_node);

/// How ranks run their streams on a machine, as runtime.streams says.
simulate::Streams streams_of(const config::Settings& settings, const simulate::Machine& machine,
                             int ranks_per_node);

}  // namespace ostrakon::train
