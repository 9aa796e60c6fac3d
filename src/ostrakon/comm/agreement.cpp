// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/comm/agreement.hpp>

#include <ostrakon/base/error.hpp>
#include <ostrakon/base/process.hpp>

namespace ostrakon::comm {

std::string disagreement(Communicator& world, const Facts& facts) {
  if (world.size() == 1) return "";
  const std::string first_host = world.broadcast(host_name(), 0);
  const Facts first = unpack_facts(world.broadcast(pack_facts(facts), 0));
  const auto found = first_difference(facts, first);
  double lowest = found ? world.rank() : world.size();
  world.all_reduce_min(&lowest, 1);
  const int rank = static_cast<int>(lowest);
  if (rank == world.size()) return "";
  const std::string mine =
      found ? text("the ", found->name, " is ", found->ours, " on rank ", world.rank(), " (host ",
                   host_name(), "), ", found->theirs, " on rank 0 (host ", first_host, ")")
            : "";
  return world.broadcast(mine, rank);
}

void require_agreement(Communicator& world, const std::string& about, const Facts& facts) {
  const std::string found = disagreement(world, facts);
  if (!found.empty()) throw CollectiveError(text(about, ": ", found));
}

}  // namespace ostrakon::comm
