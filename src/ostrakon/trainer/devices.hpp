// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostrakon/comm/transport.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <string>
#include <vector>

// This file chooses how ranks exchange data in the memory of their devices.

namespace ostrakon::train {

/// Identifies this rank's device: "device 0000:17:00.0 of host n1". Empty in builds without a
/// device. Throws Error.
std::string device_name();

/// Returns the ranks of `ranks` that use this rank's device; in builds without a device all.
/// Collective.
comm::Communicator ranks_of_device(comm::Communicator& ranks);

/// Facts that the choice depends on, the same on all ranks.
struct TransportFacts {
  bool has_device = false;
  bool has_nccl = false;      ///< whether this build has NCCL
  bool mpi_is_aware = false;  ///< whether MPI says that it can read device memory
  std::string shared;         ///< names ranks with the same device; empty: each has its own
  bool nccl_shares = false;   ///< whether NCCL supports ranks that share a device, on all ranks
  std::int64_t stages = 1;    ///< stages of the pipeline, which exchange messages
  /// The dtype in which MPI or NCCL adds up gradients (parallel.reduction = library), if it does.
  std::optional<DType> adds;
};

/// Finds the facts for the ranks of `world`. Collective.
TransportFacts transport_facts(comm::Communicator& world);

/// Returns the transport that runtime.transport names; for auto, the best one that is possible.
/// Throws Error where the named one is not possible.
comm::TransportKind transport_for(config::TransportChoice choice, const TransportFacts& facts);

/// Throws Error where runtime.communicators is not possible with `transport`.
void require_communicators(config::CommunicatorsChoice choice, comm::TransportKind transport,
                           bool has_device);

/// Names the first two equal entries of `devices`, one for each rank: "ranks 0 and 1 of host n1
/// share device ..."; empty if all differ.
std::string shared_device(const std::vector<std::string>& devices);

/// Gives the group a transport for arrays in device memory, as runtime.transport = auto does for a
/// run; does nothing in builds without a device. Collective.
void set_device_transport(comm::Communicator& group);

/// The transport of a run for device memory, and which ranks share a device, if any do.
struct ChosenTransport {
  comm::TransportKind kind = comm::TransportKind::mpi_staged;
  std::string shared;
};
/// Chooses the transport. Collective over the mesh, the same on all ranks. Throws CollectiveError.
ChosenTransport choose_transport(const config::Settings& settings, mesh::Mesh& mesh);

}  // namespace ostrakon::train
