// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/elementwise.hpp>

#include "bench.hpp"

namespace ostrakon::bench {
namespace {

/// Buffers of one collective over `bytes` of full array, on this rank.
struct Buffers {
  std::int64_t shard_elements;
  Kokkos::View<float*, Memory> full, staging, shard;

  Buffers(std::int64_t bytes, int ranks)
      : shard_elements(
            std::max<std::int64_t>(64, bytes / std::int64_t{sizeof(float)} / ranks / 64 * 64)),
        full("full", static_cast<std::size_t>(shard_elements * ranks)),
        staging("staging", full.extent(0)),
        shard("shard", static_cast<std::size_t>(shard_elements)) {
    math::fill(Exec(), full.data(), shard_elements * ranks, 1.0f);
  }
};

}  // namespace

void run_comm(comm::Communicator& world, const Options& options) {
  world.agree([] {
    require(memory_is_host_accessible, "this build has no communication for device memory");
  });
  const double budget = options.seconds > 0.0 ? options.seconds : 0.3;
  Table table("comm",
              {{"collective", "collective", Format::text, 16},
               {"bytes", "bytes", Format::bytes, 10},
               {"time", "seconds", Format::seconds, 10},
               {"GB/s", "gigabytes_per_second", Format::ratio, 8},
               {"MPI's own", "mpi_seconds", Format::seconds, 10},
               {"GB/s", "mpi_gigabytes_per_second", Format::ratio, 8},
               {"to MPI's", "ratio_to_mpi", Format::ratio, 8}},
              options.json, world.rank() == 0);
  const int ranks = world.size();
  for (std::int64_t bytes = 4 << 10; bytes <= 64 << 20; bytes *= 4) {
    const Buffers buffers(bytes, ranks);
    const int count = static_cast<int>(buffers.shard_elements);
    float* const full = buffers.full.data();
    float* const staging = buffers.staging.data();
    float* const shard = buffers.shard.data();
    const auto show = [&](const char* name, const std::vector<Seconds>& seconds) {
      const double ours = seconds[0].median;
      const double mpi = seconds[1].median;
      const double moved =
          static_cast<double>(ranks - 1) * sizeof(float) * static_cast<double>(count);
      table.row({name, ranks * std::int64_t{count} * std::int64_t{sizeof(float)}, ours,
                 moved / ours * 1e-9, mpi, moved / mpi * 1e-9, mpi / ours});
    };
    show("all_gather", measure(world, budget,
                               {[&] { world.all_gather(shard, count, full); },
                                [&] {
                                  comm::check_mpi(MPI_Allgather(shard, count, MPI_FLOAT, full,
                                                                count, MPI_FLOAT, world.mpi()),
                                                  "MPI_Allgather");
                                }}));
    show("reduce_scatter", measure(world, budget,
                                   {[&] { world.reduce_scatter(full, count, staging, shard); },
                                    [&] {
                                      comm::check_mpi(
                                          MPI_Reduce_scatter_block(full, shard, count, MPI_FLOAT,
                                                                   MPI_SUM, world.mpi()),
                                          "MPI_Reduce_scatter_block");
                                    }}));
  }
}

}  // namespace ostrakon::bench
