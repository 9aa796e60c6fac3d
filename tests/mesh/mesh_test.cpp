// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <new>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/process.hpp>
#include <ostrakon/mesh/mesh.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/messages.hpp"

namespace ostrakon::mesh {
namespace {

using testing::error_of;

int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

TEST(NamedAgree, NamesRankAndHostButNotOfDamage) {
  comm::Communicator world = comm::Communicator::duplicate(MPI_COMM_WORLD);
  const int last = world.size() - 1;
  const auto failing = [&](const std::function<void()>& fail) {
    return error_of([&] {
      run_collectively_by_name(world, [&] {
        if (world.rank() == last) fail();
      });
    });
  };
  const std::string name = text("rank ", last, " on ", host_name(), ": ");
  EXPECT_EQ(failing([] {}), "no error");
  EXPECT_EQ(failing([] { throw Error("can't read"); }), name + "can't read");
  EXPECT_EQ(failing([] { throw std::bad_alloc(); }), name + "out of memory");
  EXPECT_EQ(failing([] { throw DamagedError("is damaged"); }), "is damaged");
  EXPECT_THROW(run_collectively_by_name(world, [] { throw DamagedError("is damaged"); }),
               CollectiveDamagedError);
}

std::vector<std::string> lines_of(const std::string& table) {
  std::istringstream stream(table);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::string host_of_this_rank() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

TEST(Mesh, FindsTheNodeThatSharesMemory) {
  Mesh mesh(MPI_COMM_WORLD, 0);
  EXPECT_EQ(mesh.world().size(), world_size());
  EXPECT_EQ(mesh.world().rank(), world_rank());
  EXPECT_EQ(mesh.shard_group().size(), world_size());
  EXPECT_EQ(mesh.shard_group().rank(), world_rank());

  MPI_Comm shared = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared);
  int size = 0;
  MPI_Comm_size(shared, &size);
  MPI_Comm_free(&shared);
  EXPECT_EQ(mesh.node().size(), size);
  EXPECT_GE(mesh.nodes(), 1);
  EXPECT_LT(mesh.node_index(), mesh.nodes());
  if (size == world_size()) {
    EXPECT_EQ(mesh.nodes(), 1);
  }
}

TEST(Mesh, PretendsNodes) {
  for (int ranks_per_node = 1; ranks_per_node <= world_size(); ++ranks_per_node) {
    if (world_size() % ranks_per_node != 0) continue;
    Mesh mesh(MPI_COMM_WORLD, ranks_per_node);
    EXPECT_EQ(mesh.nodes(), world_size() / ranks_per_node);
    EXPECT_EQ(mesh.node_index(), world_rank() / ranks_per_node);
    EXPECT_EQ(mesh.node().size(), ranks_per_node);
    EXPECT_EQ(mesh.ranks_per_node(), ranks_per_node);
    EXPECT_EQ(mesh.node().rank(), world_rank() % ranks_per_node);
    EXPECT_EQ(mesh.shard_group().size(), world_size());

    std::int64_t sum = world_rank();
    mesh.node().all_reduce_sum(&sum, 1);
    const std::int64_t first = mesh.node_index() * ranks_per_node;
    EXPECT_EQ(sum, (2 * first + ranks_per_node - 1) * ranks_per_node / 2);
  }
}

TEST(Mesh, KnowsNodesOfEquallyManyNeighbours) {
  EXPECT_EQ(regular_ranks_per_node({0}), 1);
  EXPECT_EQ(regular_ranks_per_node({0, 0, 0}), 3);
  EXPECT_EQ(regular_ranks_per_node({0, 1, 2}), 1);
  EXPECT_EQ(regular_ranks_per_node({0, 0, 1, 1, 2, 2}), 2);
  EXPECT_EQ(regular_ranks_per_node({0, 1, 0, 1}), 0);
  EXPECT_EQ(regular_ranks_per_node({0, 0, 1}), 0);
  EXPECT_EQ(regular_ranks_per_node({0, 1, 1}), 0);
  EXPECT_EQ(regular_ranks_per_node({0, 0, 1, 2}), 0);
  EXPECT_EQ(regular_ranks_per_node({0, 0, 1, 1, 0, 0}), 0);
}

TEST(Mesh, NumbersNodesByTheirLowestRanks) {
  // The parent's ranks run backwards: node numbers follow the parent, not MPI_COMM_WORLD.
  MPI_Comm backwards = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -world_rank(), &backwards);
  {
    Mesh mesh(backwards, 1);
    EXPECT_EQ(mesh.node_index(), world_size() - 1 - world_rank());
  }
  MPI_Comm_free(&backwards);
}

TEST(Mesh, RefusesNodesThatDoNotDivideTheRanks) {
  const int size = world_size();
  for (const int wrong : {size + 1, 2 * size, 5}) {
    if (size % wrong == 0) continue;
    EXPECT_EQ(error_of([&] { Mesh mesh(MPI_COMM_WORLD, wrong); }),
              text("parallel.ranks_per_node = ", wrong, " does not divide the ", size,
                   size == 1 ? " rank" : " ranks"));
  }
  EXPECT_EQ(error_of([] { Mesh mesh(MPI_COMM_WORLD, -2); }),
            "parallel.ranks_per_node = -2 is negative; expected a number of ranks, or 0 to find "
            "the nodes");
}

/// Checks that groups of `size` are neighbours of `order` (a rank's place in it), and who
/// replicates.
void expect_groups_of(Mesh& mesh, int size, int place) {
  EXPECT_EQ(mesh.shard_group().size(), size);
  EXPECT_EQ(mesh.shard_group().rank(), place % size);
  EXPECT_EQ(mesh.replicate_group().size(), world_size() / size);
  EXPECT_EQ(mesh.replicate_group().rank(), place / size);
}

TEST(Mesh, ShardGroupsAreNeighboursAndReplicasHoldTheSameShard) {
  for (int size = 1; size <= world_size(); ++size) {
    if (world_size() % size != 0) continue;
    Mesh mesh(MPI_COMM_WORLD, 0, size);
    expect_groups_of(mesh, size, world_rank());
    Mesh pretended(MPI_COMM_WORLD, size, node_group);
    expect_groups_of(pretended, size, world_rank());
  }
  Mesh world(MPI_COMM_WORLD, 1);
  expect_groups_of(world, world_size(), world_rank());
}

TEST(Mesh, RefusesShardGroupsThatDoNotDivideTheRanks) {
  const int wrong = world_size() + 1;
  EXPECT_EQ(error_of([&] { Mesh mesh(MPI_COMM_WORLD, 0, wrong); }),
            text("parallel.shard_group = ", wrong, " does not divide the ", world_size(),
                 world_size() == 1 ? " rank" : " ranks"));
}

/// This process may run on `cores` until the end of the scope.
class Pinned {
 public:
  explicit Pinned(const std::vector<int>& cores) {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t mask;
    CPU_ZERO(&mask);
    for (const int core : cores) CPU_SET(static_cast<std::size_t>(core), &mask);
    sched_setaffinity(0, sizeof mask, &mask);
  }
  ~Pinned() { sched_setaffinity(0, sizeof before_, &before_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  cpu_set_t before_;
};

TEST(Mesh, CoresThatEveryRankHasToItself) {
  std::vector<int> cores;
  cpu_set_t mask;
  ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(static_cast<std::size_t>(core), &mask)) cores.push_back(core);
  const auto available = static_cast<int>(cores.size());
  Mesh free(MPI_COMM_WORLD, 0);
  if (free.host().size() != world_size()) GTEST_SKIP() << "for the ranks of one host";
  EXPECT_EQ(free.cores(), available / world_size());
  // Nodes that are pretended have the cores of the host all the same.
  EXPECT_EQ(Mesh(MPI_COMM_WORLD, 1).cores(), free.cores());

  // All ranks on the same core share it, also where the host has others.
  {
    const Pinned to_one({cores[0]});
    EXPECT_EQ(Mesh(MPI_COMM_WORLD, 0).cores(), world_size() == 1 ? 1 : 0);
  }
  // A rank that may run on one core only has no more than that, and so has no rank.
  const Pinned rank_0_to_one(world_rank() == 0 ? std::vector<int>{cores[0]} : cores);
  EXPECT_EQ(Mesh(MPI_COMM_WORLD, 0).cores(), std::min(1, available / world_size()));
}

TEST(Mesh, TableHasALineForEachRank) {
  Mesh mesh(MPI_COMM_WORLD, 1);
  const std::string table = mesh.table();
  for (const std::string& other : mesh.world().gather_texts(table)) EXPECT_EQ(other, table);

  const auto lines = lines_of(table);
  ASSERT_EQ(static_cast<int>(lines.size()), world_size() + 1);
  EXPECT_EQ(words_of(lines[0]),
            (std::vector<std::string>{"rank", "host", "node", "cores", "device"}));
  const auto hosts = mesh.world().gather_texts(host_of_this_rank());
  for (int rank = 0; rank < world_size(); ++rank) {
    const std::string& line = lines[static_cast<std::size_t>(rank) + 1];
    const auto words = words_of(line);
    ASSERT_EQ(words.size(), 5U);
    EXPECT_EQ(words[0], std::to_string(rank));
    EXPECT_EQ(words[1], hosts[static_cast<std::size_t>(rank)]);
    EXPECT_EQ(words[2], std::to_string(rank));
    EXPECT_TRUE(words[3].find_first_not_of("0123456789,-") == std::string::npos) << words[3];
    if (memory_is_host_accessible) {
      EXPECT_EQ(words[4], "-");
    }
    for (std::size_t column = 1; column < 5; ++column) {
      const std::string heading = words_of(lines[0])[column];
      const std::size_t place = lines[0].find(heading);
      EXPECT_EQ(line[place - 1], ' ');
      EXPECT_EQ(line.find(words[column], place), place) << line;
    }
  }
}

TEST(Mesh, TableFoldsNodesOfManyRanks) {
  if (world_size() <= 16 || world_size() % 2 != 0) GTEST_SKIP() << "too few ranks to fold";
  const int half = world_size() / 2;
  Mesh mesh(MPI_COMM_WORLD, half);
  const auto lines = lines_of(mesh.table());
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(words_of(lines[1])[0], text("0-", half - 1));
  EXPECT_EQ(words_of(lines[1])[2], "0");
  EXPECT_EQ(words_of(lines[2])[0], text(half, "-", world_size() - 1));
  EXPECT_EQ(words_of(lines[2])[2], "1");
}

TEST(Nodes, OfANumberOfRanksLieOnOneHost) {
  const std::vector<std::string> hosts = {"0 a", "0 a", "0 a", "0 a", "4 b", "4 b"};
  for (const int ranks : {1, 2}) EXPECT_NO_THROW(require_nodes_within_hosts(hosts, ranks));
  EXPECT_NO_THROW(require_nodes_within_hosts({"0 a", "0 a"}, 2));
  const std::string what = error_of([&] { require_nodes_within_hosts(hosts, 3); });
  EXPECT_EQ(what.rfind("parallel.ranks_per_node = 3 makes a node of ranks 3 to 5, of which rank 3 "
                       "runs on host a and rank 4 on b",
                       0),
            0U)
      << what;
  // Containers may all have the same name.
  EXPECT_THROW(require_nodes_within_hosts({"0 a", "1 a"}, 2), Error);
}

}  // namespace
}  // namespace ostrakon::mesh
