// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/plan/ir/step_plan.hpp>
#include <ostrakon/preflight/check.hpp>
#include <ostrakon/preflight/faults.hpp>
#include <ostrakon/simulate/machine.hpp>
#include <string>
#include <vector>

namespace ostrakon::preflight {

/// Checks links between ranks: in round k each rank exchanges `bytes` with the rank whose number
/// differs in bit k, all pairs at the same time, in the memory of kernels. The slower direction
/// counts. `machine`: may be null.
Check links(comm::Communicator& world, std::int64_t bytes, double seconds, const Faults& faults,
            const simulate::Machine* machine);

/// A collective whose rate is measured: an all-gather to `bytes`, or a reduce-scatter of as many.
struct Collective {
  bool gathers = true;
  std::int64_t bytes = 0;
  std::string over;  ///< for people: "8 ranks of shard"
  std::shared_ptr<comm::Communicator> group;
  int ranks_per_host = 1;  ///< of the group, the most

  std::string name() const;
};

/// All-gathers and reduce-scatters over all ranks, of usual sizes.
std::vector<Collective> usual_collectives(comm::Communicator& world);

/// The collectives of a plan: of each kind and span those of the least and the most bytes.
/// Collective over the mesh; stages have plans of their own.
std::vector<Collective> collectives_of(const plan::StepPlan& plan, mesh::Mesh& mesh);

/// Checks that groups of ranks have the rates of other groups, and with `machine` that all have at
/// least half of what it predicts. `machine` may be null.
Check collectives(comm::Communicator& world, const std::vector<Collective>& all, double seconds,
                  const simulate::Machine* machine);

}  // namespace ostrakon::preflight
