// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/mesh/mesh.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <iterator>
#include <new>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/device/api.hpp>
#include <ostrakon/device/memory.hpp>
#include <set>
#include <string>
#include <vector>

namespace ostrakon::mesh {
namespace {

constexpr std::size_t most_single_rows = 16;

void check_ranks_per_node(const comm::Communicator& world, int ranks_per_node) {
  require(ranks_per_node >= 0, "parallel.ranks_per_node = ", ranks_per_node,
          " is negative; expected a number of ranks, or 0 to find the nodes");
  require(ranks_per_node == 0 || world.size() % ranks_per_node == 0,
          "parallel.ranks_per_node = ", ranks_per_node, " does not divide the ", world.size(),
          world.size() == 1 ? " rank" : " ranks");
}

/// Returns the lowest rank in `world` of the ranks of `group`.
int lowest_rank(const comm::Communicator& world, comm::Communicator& group) {
  int lowest = world.rank();
  group.broadcast(&lowest, sizeof lowest, 0);
  return lowest;
}

comm::Communicator make_node(comm::Communicator& world, comm::Communicator& host,
                             int ranks_per_node) {
  world.run_collectively([&] { check_ranks_per_node(world, ranks_per_node); });
  if (ranks_per_node == 0) return comm::Communicator::split_shared_memory(world.mpi());
  const std::string mine = text(lowest_rank(world, host), ' ', host_name());
  const std::vector<std::string> hosts = world.gather_texts(mine);
  world.run_collectively([&] { require_nodes_within_hosts(hosts, ranks_per_node); });
  return comm::Communicator::split(world.mpi(), world.rank() / ranks_per_node);
}

comm::Communicator make_stage(comm::Communicator& world, int stages) {
  world.run_collectively([&] {
    require(stages >= 1 && world.size() % stages == 0, "parallel.pipeline = ", stages,
            " does not divide the ", world.size(), world.size() == 1 ? " rank" : " ranks");
  });
  return comm::Communicator::split(world.mpi(), world.rank() / (world.size() / stages));
}

comm::Communicator make_shard_group(comm::Communicator& world, comm::Communicator& node,
                                    comm::Communicator& stage, int ranks) {
  const char* const of_stage = stage.size() < world.size() ? " of a stage" : "";
  world.run_collectively([&] {
    require(ranks >= node_group, "parallel.shard_group = ", ranks,
            ": expected world, node or a number of ranks");
    require(ranks <= 0 || stage.size() % ranks == 0, "parallel.shard_group = ", ranks,
            " does not divide the ", stage.size(), stage.size() == 1 ? " rank" : " ranks",
            of_stage);
  });
  if (ranks == world_group) return comm::Communicator::duplicate(stage.mpi());
  if (ranks > 0) return comm::Communicator::split(stage.mpi(), stage.rank() / ranks);
  comm::Communicator group = comm::Communicator::split(stage.mpi(), lowest_rank(world, node));
  double largest = group.size(), smallest = group.size();
  world.all_reduce_max(&largest, 1);
  world.all_reduce_min(&smallest, 1);
  world.run_collectively([&] {
    require(largest == smallest, "parallel.shard_group = node, but nodes have ", smallest, " to ",
            largest, " ranks", of_stage, "; expected the same number on all");
  });
  return group;
}

/// The host, node, cores and devices of a rank, or of a run of ranks.
struct NodePlacement {
  std::set<int> ranks;
  std::string host;
  int node = 0;
  std::set<int> cores;
  std::set<int> devices;
};

/// The device that this rank computes on; empty on the host.
std::set<int> used_devices() {
#if OSTRAKON_HAS_DEVICE
  return {device::current()};
#else
  return {};
#endif
}

void write_list(std::ostream& stream, const std::set<int>& numbers) {
  stream << ' ' << numbers.size();
  for (const int number : numbers) stream << ' ' << number;
}

std::set<int> read_list(std::istream& stream) {
  std::size_t count = 0;
  stream >> count;
  std::set<int> numbers;
  for (int number = 0; count > 0 && stream >> number; --count) numbers.insert(number);
  return numbers;
}

std::string encode(const NodePlacement& placement) {
  TextWriter stream;
  stream << placement.host << '\n' << placement.node;
  write_list(stream, placement.cores);
  write_list(stream, placement.devices);
  return stream.str();
}

NodePlacement decode(int rank, const std::string& encoded) {
  TextReader stream(encoded);
  NodePlacement placement;
  placement.ranks = {rank};
  std::getline(stream, placement.host);
  stream >> placement.node;
  placement.cores = read_list(stream);
  placement.devices = read_list(stream);
  return placement;
}

/// Joins neighbours on the same node of the same host.
std::vector<NodePlacement> fold(const std::vector<NodePlacement>& placements) {
  std::vector<NodePlacement> folded;
  for (const NodePlacement& placement : placements) {
    if (folded.empty() || folded.back().host != placement.host ||
        folded.back().node != placement.node) {
      folded.push_back(placement);
      continue;
    }
    NodePlacement& run = folded.back();
    run.ranks.insert(placement.ranks.begin(), placement.ranks.end());
    run.cores.insert(placement.cores.begin(), placement.cores.end());
    run.devices.insert(placement.devices.begin(), placement.devices.end());
  }
  return folded;
}

/// Returns numbers as ranges: "0-3,8" for {0, 1, 2, 3, 8}; "-" for none.
std::string compact(const std::set<int>& numbers) {
  if (numbers.empty()) return "-";
  std::string list;
  for (auto begin = numbers.begin(); begin != numbers.end();) {
    int last = *begin;
    auto next = std::next(begin);
    while (next != numbers.end() && *next == last + 1) last = *next++;
    if (!list.empty()) list += ',';
    list += std::to_string(*begin);
    if (last != *begin) list += '-' + std::to_string(last);
    begin = next;
  }
  return list;
}

/// Returns Mesh::cores.
int cores_of_each(comm::Communicator& world, comm::Communicator& host) {
  const std::set<int> mine = allowed_cores();
  TextWriter encoded;
  write_list(encoded, mine);
  std::set<int> of_host;
  for (const std::string& text : host.gather_texts(encoded.str())) {
    TextReader stream(text);
    of_host.merge(read_list(stream));
  }
  const auto ranks = static_cast<std::size_t>(host.size());
  auto least = static_cast<double>(std::min(mine.size(), of_host.size() / ranks));
  world.all_reduce_min(&least, 1);
  return static_cast<int>(least);
}

using Row = std::array<std::string, 5>;

/// Left-aligns columns, two spaces apart, one line per row.
std::string align(const std::vector<Row>& rows) {
  std::array<std::size_t, 5> widths{};
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string lines;
  for (const Row& row : rows) {
    for (std::size_t i = 0; i + 1 < row.size(); ++i)
      lines += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    lines += row.back() + '\n';
  }
  return lines;
}

}  // namespace

void require_nodes_within_hosts(const std::vector<std::string>& hosts, int ranks_per_node) {
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const std::size_t first = rank - rank % static_cast<std::size_t>(ranks_per_node);
    const auto name = [&](std::size_t of) { return hosts[of].substr(hosts[of].find(' ') + 1); };
    require(hosts[rank] == hosts[first], "parallel.ranks_per_node = ", ranks_per_node,
            " makes a node of ranks ", first, " to ",
            first + static_cast<std::size_t>(ranks_per_node) - 1, ", of which rank ", first,
            " runs on host ", name(first), " and rank ", rank, " on ", name(rank),
            "; expected nodes that lie on one host: 0 takes them as they are, a divisor of the "
            "ranks on each host makes smaller ones");
  }
}

int regular_ranks_per_node(const std::vector<std::int64_t>& node_of_rank) {
  const auto begin = node_of_rank.begin(), end = node_of_rank.end();
  const auto ranks =
      std::find_if(begin, end, [&](std::int64_t node) { return node != *begin; }) - begin;
  for (auto rank = begin; rank != end; ++rank)
    if (*rank != (rank - begin) / ranks) return 0;
  return (end - begin) % ranks == 0 ? static_cast<int>(ranks) : 0;
}

Mesh::Mesh(MPI_Comm parent, int ranks_per_node, int shard_group, int stages)
    : world_(comm::Communicator::duplicate(parent)),
      host_(comm::Communicator::split_shared_memory(world_.mpi())),
      node_(make_node(world_, host_, ranks_per_node)),
      stage_(make_stage(world_, stages)),
      pipeline_(comm::Communicator::split(world_.mpi(), stage_.rank())),
      shard_group_(make_shard_group(world_, node_, stage_, shard_group)),
      replicate_group_(comm::Communicator::split(stage_.mpi(), shard_group_.rank(),
                                                 lowest_rank(world_, shard_group_))) {
  // Nodes are numbered in the order of their lowest ranks in the world.
  const int first = lowest_rank(world_, node_);
  std::vector<std::int64_t> begins_node(static_cast<std::size_t>(world_.size()));
  begins_node[static_cast<std::size_t>(first)] = node_.rank() == 0 ? 1 : 0;
  world_.all_reduce_sum(begins_node.data(), world_.size());
  const auto begin = begins_node.begin();
  nodes_ = static_cast<int>(std::accumulate(begin, begins_node.end(), std::int64_t{0}));
  node_index_ = static_cast<int>(std::accumulate(begin, begin + first, std::int64_t{0}));
  std::vector<std::int64_t> node_of_rank(begins_node.size());
  node_of_rank[static_cast<std::size_t>(world_.rank())] = node_index_;
  world_.all_reduce_sum(node_of_rank.data(), world_.size());
  ranks_per_node_ = regular_ranks_per_node(node_of_rank);
  cores_ = cores_of_each(world_, host_);
}

std::string Mesh::table() {
  NodePlacement mine;
  mine.host = host_name();
  mine.node = node_index_;
  mine.cores = allowed_cores();
  mine.devices = used_devices();

  std::vector<NodePlacement> placements;
  for (const std::string& encoded : world_.gather_texts(encode(mine)))
    placements.push_back(decode(static_cast<int>(placements.size()), encoded));
  if (placements.size() > most_single_rows) placements = fold(placements);

  std::vector<Row> rows = {{"rank", "host", "node", "cores", "device"}};
  for (const NodePlacement& placement : placements)
    rows.push_back({compact(placement.ranks), placement.host, std::to_string(placement.node),
                    compact(placement.cores), compact(placement.devices)});
  return align(rows);
}

void run_collectively_by_name(comm::Communicator& world, const std::function<void()>& work) {
  const auto by_name = [&](const std::string& what) {
    return Error(text("rank ", world.rank(), " on ", host_name(), ": ", what));
  };
  world.run_collectively([&] {
    try {
      work();
    } catch (const DamagedError&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw by_name("out of memory");
    } catch (const std::exception& error) {
      throw by_name(error.what());
    }
  });
}

}  // namespace ostrakon::mesh
