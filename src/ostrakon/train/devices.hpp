// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostrakon/comm/transport.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <string>
#include <vector>

// How ranks exchange what is in the memory of their devices.

namespace ostrakon::train {

/// This rank's, told from all others: "device 0000:17:00.0 of host n1". Empty in builds without a
/// device. Throws Error.
std::string device_name();

/// Those of `ranks` that have this rank's device; in builds without a device all. Collective.
comm::Communicator ranks_of_device(comm::Communicator& ranks);

/// What the choice depends on, the same on all ranks.
struct TransportFacts {
  bool has_device = false;
  bool has_nccl = false;      ///< this build
  bool mpi_is_aware = false;  ///< of device memory, as far as MPI says
  std::string shared;         ///< ranks with one device; empty: each has its own
  bool nccl_shares = false;   ///< NCCL takes ranks that share a device, on all ranks
  std::int64_t stages = 1;    ///< of a pipeline, which send each other messages
  /// MPI or NCCL adds up gradients of this dtype (parallel.reduction = library).
  std::optional<DType> adds;
};

/// Finds what the ranks of `world` can do. Collective.
TransportFacts transport_facts(comm::Communicator& world);

/// Chooses what runtime.transport says; where that is auto, the best that can be. Throws Error
/// where what is set can't be.
comm::TransportKind transport_for(config::TransportChoice choice, const TransportFacts& facts);

/// Throws Error where runtime.communicators can't be with it.
void require_communicators(config::CommunicatorsChoice choice, comm::TransportKind transport,
                           bool has_device);

/// The first two of `devices`, one for each rank, that are the same: "ranks 0 and 1 of host n1
/// share device ..."; empty where none are.
std::string shared_device(const std::vector<std::string>& devices);

/// Gives the group a transport of arrays in device memory, as runtime.transport = auto does for a
/// run; nothing in builds without a device. Collective.
void carry_device_memory(comm::Communicator& group);

/// How a run moves what is in device memory, and which ranks share a device, where any do.
struct ChosenTransport {
  comm::TransportKind kind = comm::TransportKind::mpi_staged;
  std::string shared;
};
/// Collective over the mesh, the same on all ranks. Throws AgreedError.
ChosenTransport choose_transport(const config::Settings& settings, mesh::Mesh& mesh);

}  // namespace ostrakon::train
