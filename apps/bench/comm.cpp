// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iostream>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/format.hpp>
#include <ostrakon/math/elementwise.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/trainer/resolve.hpp>
#include <vector>

#include "bench.hpp"

namespace ostrakon::bench {
namespace {

constexpr std::int64_t largest_bytes = 64 << 20;

/// Memory for the arrays of all sizes, allocated as an arena is: other ranks of the node may read
/// it.
class Room {
 public:
  explicit Room(int ranks) : memory_(4 * largest_bytes + (std::int64_t{1} << 16) * (ranks + 1)) {
    memory_.take_huge_pages();
  }
  SharedMemory& memory() { return memory_; }

  /// Returns the next array; with `first`, starts again with the first one.
  View<float*> array(std::int64_t elements, bool first = false) {
    if (first) used_ = 0;
    const View<float*> view(reinterpret_cast<float*>(memory_.data() + used_), elements);
    constexpr std::int64_t alignment = 4096;
    const std::int64_t bytes = elements * std::int64_t{sizeof(float)};
    used_ += (bytes + alignment - 1) / alignment * alignment;
    return view;
  }

 private:
  SharedMemory memory_;
  std::int64_t used_ = 0;
};

/// This rank's buffers of a collective over a full array of `bytes`.
struct Buffers {
  std::int64_t shard_elements;
  View<float*> full, staging, part, shard;

  /// `part`: the array between two levels, of `part_ranks` shards.
  Buffers(Room& room, std::int64_t bytes, int ranks, int part_ranks)
      : shard_elements(
            std::max<std::int64_t>(64, bytes / std::int64_t{sizeof(float)} / ranks / 64 * 64)),
        full(room.array(shard_elements * ranks, true)),
        staging(room.array(shard_elements * ranks)),
        part(room.array(shard_elements * part_ranks)),
        shard(room.array(shard_elements)) {
    for (const View<float*>& array : {full, staging, part, shard}) math::fill(Exec(), array, 1.0f);
  }
};

/// The ranks of this rank's node, and those with its position on every node, as in plans with
/// collectives in two levels.
struct Levels {
  comm::Communicator inside, across;

  Levels(comm::Communicator& world, int ranks_per_node)
      : inside(comm::Communicator::split(world.mpi(), world.rank() / ranks_per_node)),
        across(comm::Communicator::split(world.mpi(), world.rank() % ranks_per_node)) {}

  void all_gather(const Buffers& buffers) {
    across.all_gather<float, OnDevice>(Exec(), buffers.shard, buffers.part);
    inside.all_gather<float, OnDevice>(Exec(), buffers.part, buffers.full);
  }
  void reduce_scatter(const Buffers& buffers) {
    const View<float*>& part = buffers.part;
    inside.reduce_scatter<float, OnDevice>(Exec(), buffers.full, buffers.staging, part);
    across.reduce_scatter<float, OnDevice>(Exec(), part, buffers.staging.range(0, part.size()),
                                           buffers.shard);
  }
};

/// Returns the ranks per node if plans could have two levels, else 0.
int ranks_per_node(const mesh::Mesh& mesh) {
  const int ranks = mesh.ranks_per_node();
  return mesh.nodes() > 1 && ranks > 1 && (ranks & (ranks - 1)) == 0 ? ranks : 0;
}

/// Seconds of a unit's gathers and reductions, in one level and in two.
struct Pair {
  std::int64_t bytes = 0;
  double flat = 0.0, levels = 0.0;
};

/// Shows the size from which on two levels are faster for all larger sizes.
void show_size(const std::vector<Pair>& pairs, int ranks_per_node, bool json) {
  const Pair* from = nullptr;
  for (auto pair = pairs.rbegin(); pair != pairs.rend() && pair->levels < pair->flat; ++pair)
    from = &*pair;
  if (json) {
    nlohmann::ordered_json row = {{"bench", "comm"},
                                  {"collective", "all_gather and reduce_scatter"},
                                  {"ranks_per_node", ranks_per_node}};
    row["hierarchical_from_bytes"] =
        from != nullptr ? nlohmann::ordered_json(from->bytes) : nlohmann::ordered_json();
    std::cout << row.dump() << std::endl;
    return;
  }
  std::cout << "\ntwo levels, inside nodes of " << ranks_per_node << " ranks and across them: "
            << (from == nullptr
                    ? std::string("not faster at the largest size; "
                                  "parallel.hierarchical_collectives: never")
                    : text("faster from ", format_bytes(from->bytes),
                           " on; parallel.hierarchical_collectives: ",
                           from->bytes % (1 << 20) == 0 ? text(from->bytes >> 20, " MiB")
                                                        : text(from->bytes >> 10, " KiB")))
            << std::endl;
}

}  // namespace

void run_comm(comm::Communicator& world, const Options& options) {
  world.run_collectively([] {
    require(!has_device, "comm compares collectives of host memory; expected device in this build");
  });
  const double budget = options.seconds_or(0.3);
  mesh::Mesh mesh(MPI_COMM_WORLD, options.ranks_per_node);
  const int ranks = world.size(), node = ranks_per_node(mesh);
  const std::unique_ptr<Levels> levels = node > 0 ? std::make_unique<Levels>(world, node) : nullptr;
  Room room(ranks);
  comm::Communicator by_window = comm::Communicator::duplicate(world.mpi());
  const bool has_windows =
      train::find_windows(plan::NodeWindows::automatic, mesh).windows == plan::NodeWindows::always;
  const bool is_one_node = has_windows && mesh.nodes() == 1 && ranks > 1;
  if (is_one_node || (has_windows && levels)) {
    const auto memory = std::make_shared<const comm::NodeMemory>(
        mesh.node(), std::vector<SharedMemory*>{&room.memory()}, 1);
    comm::Communicator& group = levels ? levels->inside : by_window;
    group.set_window(std::make_unique<comm::Window>(memory, group, 0));
  }
  std::vector<Column> columns = {{"collective", "collective", Format::text, 16},
                                 {"bytes", "bytes", Format::bytes, 10},
                                 {"time", "seconds", Format::seconds, 10},
                                 {"GB/s", "gigabytes_per_second", Format::ratio, 8},
                                 {"MPI's own", "mpi_seconds", Format::seconds, 10},
                                 {"GB/s", "mpi_gigabytes_per_second", Format::ratio, 8},
                                 {"to MPI's", "ratio_to_mpi", Format::ratio, 8}};
  if (is_one_node || levels) {
    columns.push_back({is_one_node ? "by window" : "two levels",
                       is_one_node ? "window_seconds" : "hierarchical_seconds", Format::seconds,
                       10});
    columns.push_back(
        {"gain", is_one_node ? "window_gain" : "hierarchical_gain", Format::ratio, 8});
  }
  Table table("comm", world, options, columns);
  std::vector<Pair> pairs;
  for (std::int64_t bytes = 4 << 10; bytes <= largest_bytes; bytes *= 4) {
    const Buffers buffers(room, bytes, ranks, levels ? levels->across.size() : 1);
    const int count = static_cast<int>(buffers.shard_elements);
    const View<float*>&full = buffers.full, &staging = buffers.staging, &shard = buffers.shard;
    pairs.push_back({ranks * std::int64_t{count} * std::int64_t{sizeof(float)}});
    const auto measure_and_show = [&](const char* name, std::vector<std::function<void()>> works,
                                      const std::function<void()>& in_window,
                                      void (Levels::*in_levels)(const Buffers&)) {
      if (is_one_node) works.push_back(in_window);
      if (levels) works.push_back([&] { (levels.get()->*in_levels)(buffers); });
      const std::vector<Seconds> seconds = measure(world, budget, works);
      const double ours = seconds[0].median;
      const double mpi = seconds[1].median;
      const double moved =
          static_cast<double>(ranks - 1) * sizeof(float) * static_cast<double>(count);
      Table::Row row = {name, pairs.back().bytes, ours,      moved / ours * 1e-9,
                        mpi,  moved / mpi * 1e-9, mpi / ours};
      if (seconds.size() > 2) {
        row.push_back(seconds[2].median);
        row.push_back(ours / seconds[2].median);
        pairs.back().flat += ours;
        pairs.back().levels += seconds[2].median;
      }
      table.row(row);
    };
    measure_and_show(
        "all_gather",
        {[&] { world.all_gather<float, OnDevice>(Exec(), shard, full); },
         [&] {
           comm::check_mpi(MPI_Allgather(shard.data(), count, MPI_FLOAT, full.data(), count,
                                         MPI_FLOAT, world.mpi()),
                           "MPI_Allgather");
         }},
        [&] { by_window.all_gather<float, OnDevice>(Exec(), shard, full); }, &Levels::all_gather);
    measure_and_show(
        "reduce_scatter",
        {[&] { world.reduce_scatter<float, OnDevice>(Exec(), full, staging, shard); },
         [&] {
           comm::check_mpi(MPI_Reduce_scatter_block(full.data(), shard.data(), count, MPI_FLOAT,
                                                    MPI_SUM, world.mpi()),
                           "MPI_Reduce_scatter_block");
         }},
        [&] { by_window.reduce_scatter<float, OnDevice>(Exec(), full, View<float*>(), shard); },
        &Levels::reduce_scatter);
  }
  if (levels && world.rank() == 0) show_size(pairs, node, options.json);
}

}  // namespace ostrakon::bench
