// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <string>

// How many threads of a rank do what.

namespace ostrakon::train {

/// Threads of a rank in matrix products: `wanted`, or where that is config::automatic_threads as
/// many as run kernels on this rank, `of_kernels`; the least over ranks, as the bits of a product
/// may depend on it, and ranks may compute the same product. Collective; the same on all ranks.
int matrix_threads(std::int64_t wanted, int of_kernels, comm::Communicator& world);

/// Gives matrix products of this process as many threads, and returns how many. Collective; the
/// same on all ranks.
int set_matrix_threads(comm::Communicator& world, std::int64_t wanted = config::automatic_threads);

/// Sets the threads that runtime.threads sets.
int set_matrix_threads(const config::Settings& settings, comm::Communicator& world);

/// A line on the threads of a rank that has `cores` cores, 0 where ranks outnumber them: how many
/// run kernels, how many multiply matrices, and what to set where that is more than there are.
/// Empty on a device.
std::string threads_line(int of_kernels, int of_matrices, int cores);

/// What the choice of streams depends on.
struct StreamsFacts {
  bool computes_on_device = false;
  bool threads_may_call_mpi = false;
  bool has_other_streams = false;  ///< something to communicate, or to copy to and from the host
  int cores = 0;                   ///< of a rank, see mesh::Mesh::cores
  int compute_threads = 1;         ///< of a rank
  int busy_streams = 2;            ///< that communicate, during which MPI keeps a core busy
};

/// Throws Error where streams can't have threads of their own. `setting` asks for them, and
/// `expected` is what else it may say: "inline or auto".
void require_stream_threads(const StreamsFacts& facts, const std::string& setting,
                            const std::string& expected);

/// Throws Error where kernels can't treat subnormal numbers so. `setting` asks for it, and
/// `expected` is what it may say.
void require_subnormals(Subnormals subnormals, const std::string& setting,
                        const std::string& expected);

/// How streams run: as runtime.streams says, or where that is auto, on threads where that pays:
/// with something to run on them, and a core to spare for each that communicates. Throws Error
/// where threads are set and not available.
runtime::Streams streams_for(config::StreamsChoice choice, const StreamsFacts& facts);

/// Chooses the streams of a run. Collective over the mesh, the same on all ranks. Throws
/// AgreedError.
runtime::Streams choose_streams(const config::Settings& settings, mesh::Mesh& mesh);

}  // namespace ostrakon::train
