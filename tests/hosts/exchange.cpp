// SPDX-License-Identifier: Apache-2.0
// What nodes send in an all-gather or a reduce-scatter over all ranks, in one level and in two, as
// the network's interfaces count it. Started by scripts/network-check:
//
//   mpiexec ... exchange BYTES REPEATS INTERFACE
//
// Prints, for each of the four, the bytes that a node sent for one message of BYTES, the most of
// all nodes. Exit status 1 where a result is wrong.

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <ostrakon/plan/ir/axes.hpp>
#include <string>
#include <vector>

namespace {

using namespace ostrakon;
using plan::Axis;
using plan::Grid;
using plan::Span;
using plan::Spans;

/// Sent by this node since it has the interface.
double bytes_of(const std::string& interface) {
  const std::string path = "/sys/class/net/" + interface + "/statistics/tx_bytes";
  std::ifstream file(path);
  double bytes = -1.0;
  file >> bytes;
  require(bytes >= 0.0, path, ": can't be read");
  return bytes;
}

/// A small whole number, so that sums over ranks are exact.
float value_of(std::int64_t element) { return static_cast<float>(element % 1021); }

/// Collectives over the spans of a plan, by its rule: sums from the first span to the last, gathers
/// the other way round.
class Exchange {
 public:
  Exchange(comm::Communicator& world, int ranks_per_node, std::int64_t elements)
      : grid_(make_grid(world.size(), ranks_per_node)),
        spans_(grid_.levels(Axis::shard)),
        elements_(elements),
        full_(static_cast<std::size_t>(elements)),
        staging_(full_.size()) {
    std::int64_t part = elements;
    for (const Span& span : spans_) {
      const int place = grid_.coordinate(world.rank(), span);
      groups_.push_back(comm::Communicator::split(
          world.mpi(), world.rank() - place * grid_.stride(span), world.rank()));
      part /= span.ranks;
      first_ += place * part;
      parts_.emplace_back(static_cast<std::size_t>(part));
    }
  }

  void all_gather() {
    std::vector<float>& shard = parts_.back();
    for (std::size_t i = 0; i < shard.size(); ++i)
      shard[i] = value_of(first_ + static_cast<std::int64_t>(i));
    for (std::size_t level = groups_.size(); level-- > 0;)
      groups_[level].all_gather<float, OnHost>(Exec(), host_view(parts_[level]), whole_of(level));
  }
  bool is_gathered() const {
    for (std::int64_t i = 0; i < elements_; ++i)
      if (full_[static_cast<std::size_t>(i)] != value_of(i)) return false;
    return true;
  }

  void reduce_scatter() {
    for (std::int64_t i = 0; i < elements_; ++i) full_[static_cast<std::size_t>(i)] = value_of(i);
    for (std::size_t level = 0; level < groups_.size(); ++level) {
      const HostView<float*> whole = whole_of(level);
      groups_[level].reduce_scatter<float, OnHost>(
          Exec(), whole, host_view(staging_).range(0, whole.size()), host_view(parts_[level]));
    }
  }
  bool is_reduced() const {
    const std::vector<float>& shard = parts_.back();
    for (std::size_t i = 0; i < shard.size(); ++i)
      if (shard[i] !=
          static_cast<float>(grid_.shard()) * value_of(first_ + static_cast<std::int64_t>(i)))
        return false;
    return true;
  }

 private:
  /// What the parts of a level are parts of.
  HostView<float*> whole_of(std::size_t level) {
    return host_view(level == 0 ? full_ : parts_[level - 1]);
  }

  static Grid make_grid(int ranks, int ranks_per_node) {
    Grid grid(1, ranks, 1);
    grid.node = ranks_per_node;
    return grid;
  }

  const Grid grid_;
  const Spans spans_;
  const std::int64_t elements_;
  std::int64_t first_ = 0;
  std::vector<comm::Communicator> groups_;
  std::vector<float> full_, staging_;
  std::vector<std::vector<float>> parts_;
};

int run(int argc, char** argv) {
  require(argc == 4, "usage: exchange BYTES REPEATS INTERFACE");
  comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  mesh::Mesh mesh(MPI_COMM_WORLD, 0);
  const std::int64_t block = 64 * world.size();
  const std::int64_t elements = std::stoll(argv[1]) / 4 / block * block;
  const int repeats = std::stoi(argv[2]);
  const std::string interface = argv[3];
  require(mesh.nodes() > 1 && mesh.ranks_per_node() > 1, "found ", mesh.nodes(),
          " nodes; expected several, each with equally many ranks, neighbours, at least 2");
  const double message = 4.0 * static_cast<double>(elements), n = mesh.nodes();
  bool is_right = true;
  for (const bool gathers : {true, false})
    for (const int node : {0, mesh.ranks_per_node()}) {
      Exchange exchange(world, node, elements);
      const auto work = [&] { gathers ? exchange.all_gather() : exchange.reduce_scatter(); };
      work();  // makes connections
      is_right = is_right && (gathers ? exchange.is_gathered() : exchange.is_reduced());
      world.barrier();
      const double before = bytes_of(interface);
      for (int i = 0; i < repeats; ++i) work();
      world.barrier();
      double sent = (bytes_of(interface) - before) / repeats;
      world.all_reduce_max(&sent, 1);
      if (world.rank() == 0)
        std::printf("%-14s  %-10s  %5.0f  %5d  %12.0f  %14.0f  %10.3f  %12.3f\n",
                    gathers ? "all_gather" : "reduce_scatter",
                    node > 0 ? "two levels" : "one level", n, mesh.ranks_per_node(), message, sent,
                    sent / message, sent / (message * (n - 1.0) / n));
    }
  double wrong = is_right ? 0.0 : 1.0;
  world.all_reduce_max(&wrong, 1);
  if (wrong > 0.0 && world.rank() == 0) std::cerr << "exchange: a result is wrong\n";
  return wrong > 0.0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = 1;
  try {
    status = run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "exchange: " << error.what() << std::endl;
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return status;
}
