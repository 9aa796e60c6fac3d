// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostrakon/base/facts.hpp>
#include <ostrakon/config/settings.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/runtime/executor.hpp>
#include <string>

// This file sets the numbers of threads of a rank.

namespace ostrakon::train {

/// Returns the threads of a rank for matrix products: `wanted`, or for config::automatic_threads as
/// many as run kernels on this rank, `of_kernels`; the minimum over ranks, as the bits of a product
/// may depend on it, and ranks may compute the same product. Collective; the same on all ranks.
int matrix_threads(std::int64_t wanted, int of_kernels, comm::Communicator& world);

/// Sets that number of threads for matrix products of this process, and returns it. Collective; the
/// same on all ranks.
int set_matrix_threads(comm::Communicator& world, std::int64_t wanted = config::automatic_threads);

/// Sets the number of threads that runtime.threads says.
int set_matrix_threads(const config::Settings& settings, comm::Communicator& world);

/// Returns a line on the threads of a rank that has `cores` cores (0 if ranks outnumber them): how
/// many run kernels, how many multiply matrices, and what to set if there are more threads than
/// cores. Empty on a device.
std::string threads_line(int of_kernels, int of_matrices, int cores);

/// Facts that the choice of streams depends on.
struct StreamsFacts {
  bool computes_on_device = false;
  bool threads_may_call_mpi = false;
  bool has_other_streams = false;  ///< whether there is communication, or copies between host and
                                   ///< device
  int cores = 0;                   ///< per rank, see mesh::Mesh::cores
  int compute_threads = 1;         ///< per rank
  int busy_streams = 2;            ///< streams that communicate, during which MPI keeps a core busy
};

/// Throws Error where streams can't have threads of their own. `setting` names the setting that
/// asks for them, and `expected` its other values: "inline or auto".
void require_stream_threads(const StreamsFacts& facts, const std::string& setting,
                            const std::string& expected);

/// Throws Error where kernels can't treat subnormal numbers as `subnormals` says. `setting` names
/// the setting, and `expected` its values.
void require_subnormals(Subnormals subnormals, const std::string& setting,
                        const std::string& expected);

/// Returns how streams run: as runtime.streams says; for auto, on threads if that pays: if there is
/// work for them, and a spare core for each stream that communicates. Throws Error where threads
/// are set and not available.
runtime::Streams streams_for(config::StreamsChoice choice, const StreamsFacts& facts);

/// Chooses how the streams of a run run. Collective over the mesh, the same on all ranks. Throws
/// CollectiveError.
runtime::Streams choose_streams(const config::Settings& settings, mesh::Mesh& mesh);

/// What a run computes with, as far as bits of kernels depend on it.
struct KernelUse {
  DType dtype = DType::fp32;  ///< of parameters as gathered
  math::ProductDType products = math::ProductDType::as_stored;
  Subnormals subnormals = Subnormals::keep;
};

/// Returns the facts that determine the bits of kernels on this rank: the build, Kokkos, the
/// library of matrix products and its threads, and the digest of some products in the dtypes in
/// use. If all of them are equal, a leaf gives the same bits on each rank. Takes
/// milliseconds, and host or device memory for that time.
Facts kernel_facts(const KernelUse& use, int matrix_threads);
/// Returns those of a run with these settings.
Facts kernel_facts(const config::Settings& settings, int matrix_threads);

}  // namespace ostrakon::train
