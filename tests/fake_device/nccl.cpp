// SPDX-License-Identifier: Apache-2.0
#include <fake_device/nccl.h>
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "nccl_floats.hpp"

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): returns from the function
#define MAY_FAIL(function) \
  if (fake_fails(function) != 0) return ncclInternalError
// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): returns from the function
#define SUBMITS         \
  const Submitting own; \
  if (own.races()) return ncclInvalidUsage

namespace {

constexpr int most_ranks = 256;

/// Returns a communicator for this library, separate from other messages of the program.
MPI_Comm world() {
  static MPI_Comm* const own = [] {
    auto* const made = new MPI_Comm;
    MPI_Comm_dup(MPI_COMM_WORLD, made);
    return made;
  }();
  return *own;
}

/// The content of a unique id.
struct Id {
  int root = 0;    ///< rank in world()
  int number = 0;  ///< number of ids made by this rank
};

}  // namespace

/// The resources of communicators: those that share them run their work one after the other, in the
/// order of submission.
struct Resources {
  std::mutex mutex;
  std::condition_variable more_done;
  long submitted = 0, done = 0;

  void await(long number, const std::atomic<bool>& aborted) {
    constexpr auto poll = std::chrono::milliseconds(1);
    std::unique_lock<std::mutex> lock(mutex);
    while (done < number && !aborted && fake_lost() == 0) more_done.wait_for(lock, poll);
  }
  void add_done() {
    const std::lock_guard<std::mutex> lock(mutex);
    ++done;
    more_done.notify_all();
  }
};

struct ncclComm {
  std::shared_ptr<Resources> resources = std::make_shared<Resources>();
  bool parts_share = false;  ///< share with communicators that are split from it
  int rank = 0;
  int tag = 0;  ///< tag of its messages
  int splits = 0;
  std::vector<int> world;  ///< ranks in world()
  std::atomic<bool> aborted{false};
  std::atomic<bool> busy{false};  ///< in a collective or message: no other stream may use it
  std::atomic<int> error{ncclSuccess};
};

namespace {

struct Move {
  bool sends;
  char* data;
  std::size_t bytes;
  int peer;
};

/// The current group of calls, which belongs to one thread.
thread_local int depth = 0;
thread_local std::vector<Move> grouped;
thread_local ncclComm_t comm_of_group = nullptr;
thread_local cudaStream_t stream_of_group = nullptr;

double seconds_per_byte() {
  const char* const set = std::getenv("FAKE_NCCL_SECONDS");
  return set != nullptr ? std::strtod(set, nullptr) : 0.0;
}

/// Marks a submission: no other thread may submit at the same time.
class Submitting {
 public:
  Submitting() : races_(calls()++ > 0) {}
  ~Submitting() { --calls(); }
  Submitting(const Submitting&) = delete;
  Submitting& operator=(const Submitting&) = delete;
  bool races() const { return races_; }

 private:
  static std::atomic<int>& calls() {
    static std::atomic<int> now{0};
    return now;
  }
  bool races_;
};

/// Whether this collective never finishes.
bool is_stuck() {
  static const long stuck = [] {
    const char* const set = std::getenv("FAKE_NCCL_STUCK");
    if (set == nullptr) return 0L;
    const std::string all = set;
    const std::size_t comma = all.find(',');
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (comma != std::string::npos && std::atoi(all.c_str() + comma + 1) != rank) return 0L;
    return std::strtol(set, nullptr, 10);
  }();
  static std::atomic<long> made{0};
  return ++made == stuck;
}

/// Runs on a stream's thread. It does not spin, and stops at an abort.
void do_moves(const ncclComm_t comm, const std::vector<Move>& moves, bool stuck) {
  if (comm->busy.exchange(true)) {
    std::fprintf(stderr, "fake NCCL: a communicator in two streams at a time\n");
    std::abort();
  }
  std::vector<MPI_Request> requests;
  std::vector<const Move*> kept, taken;
  std::size_t from_others = 0;
  for (const Move& move : moves) {
    if (move.peer == comm->rank) {
      (move.sends ? kept : taken).push_back(&move);
      continue;
    }
    requests.push_back(MPI_REQUEST_NULL);
    const int peer = comm->world[static_cast<std::size_t>(move.peer)];
    const int count = static_cast<int>(move.bytes);
    if (move.sends)
      MPI_Isend(move.data, count, MPI_BYTE, peer, comm->tag, world(), &requests.back());
    else
      MPI_Irecv(move.data, count, MPI_BYTE, peer, comm->tag, world(), &requests.back());
    if (!move.sends) from_others += move.bytes;
  }
  for (std::size_t i = 0; i < std::min(kept.size(), taken.size()); ++i)
    std::memmove(taken[i]->data, kept[i]->data, kept[i]->bytes);
  int done = 0;
  while (!comm->aborted && fake_lost() == 0) {
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    if (done != 0 && !stuck) break;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  const double seconds = seconds_per_byte() * static_cast<double>(from_others);
  if (seconds > 0.0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  comm->busy = false;
}

/// `then`: called with the received data.
void submit(ncclComm_t comm, std::vector<Move> moves, cudaStream_t stream,
            std::function<void()> then = {}) {
  struct Work {
    ncclComm_t comm;
    std::vector<Move> moves;
    bool stuck;
    std::function<void()> then;
    long number;  ///< number of the work in these resources
  };
  Work work{comm, std::move(moves), is_stuck(), std::move(then), comm->resources->submitted++};
  fake_submit(
      stream, sizeof(Work),
      [](void* at, void* from) { new (at) Work(std::move(*static_cast<Work*>(from))); }, &work,
      [](void* at) {
        auto* const it = static_cast<Work*>(at);
        it->comm->resources->await(it->number, it->comm->aborted);
        do_moves(it->comm, it->moves, it->stuck);
        if (it->then && !it->comm->aborted) it->then();
        it->comm->resources->add_done();
        it->~Work();
      });
}

/// Adds to the group of calls, or submits alone.
void add(const Move& move, ncclComm_t comm, cudaStream_t stream) {
  if (depth == 0) return submit(comm, {move}, stream);
  comm_of_group = comm;
  stream_of_group = stream;
  grouped.push_back(move);
}

/// Returns the tags of a communicator, distinct for communicators of one root and from those of its
/// parents.
int tag_of(const Id& id) { return (id.root * 64 + id.number % 64) * 64 + 1; }

/// Sends or receives ints; returns false if the communicator is aborted before.
bool move(ncclComm_t comm, bool sends, int* data, int count, int peer) {
  MPI_Request request = MPI_REQUEST_NULL;
  if (sends)
    MPI_Isend(data, count, MPI_INT, peer, comm->tag, world(), &request);
  else
    MPI_Irecv(data, count, MPI_INT, peer, comm->tag, world(), &request);
  for (int done = 0; done == 0;) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (done == 0 && comm->aborted) return false;
    if (done == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return true;
}

/// Runs work while the communicator reports that it is in progress.
template <class Work>
void in_background(ncclComm_t comm, Work work) {
  comm->error = ncclInProgress;
  std::thread([comm, work] {
    const bool done = work();
    comm->error = done ? ncclSuccess : ncclInternalError;
  }).detach();
}

bool shares(const ncclConfig_t* config) { return config != nullptr && config->splitShare == 1; }

}  // namespace

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclInternalError:
      return "internal error";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclInvalidArgument:
      return "invalid argument";
    default:
      return "error";
  }
}
const char* ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  MAY_FAIL("ncclGetUniqueId");
  static std::atomic<int> made{0};
  Id mine;
  MPI_Comm_rank(MPI_COMM_WORLD, &mine.root);
  mine.number = made++;
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, static_cast<const void*>(&mine), sizeof mine);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  MAY_FAIL("ncclCommInitRankConfig");
  if (ranks > most_ranks) return ncclInvalidArgument;
  Id of;
  std::memcpy(static_cast<void*>(&of), id.internal, sizeof of);
  auto* const comm = new ncclComm;
  comm->rank = rank;
  comm->parts_share = shares(config);
  comm->tag = tag_of(of);
  comm->world.resize(static_cast<std::size_t>(ranks));
  fake_take_memory(std::size_t{1} << 20);
  *made = comm;
  int me = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &me);
  in_background(comm, [comm, of, me] {
    const int all = static_cast<int>(comm->world.size());
    if (me != of.root) {
      int mine[2] = {comm->rank, me};
      return move(comm, true, mine, 2, of.root) &&
             move(comm, false, comm->world.data(), all, of.root);
    }
    comm->world[static_cast<std::size_t>(comm->rank)] = me;
    for (int i = 1; i < all; ++i) {
      int other[2] = {0, 0};
      if (!move(comm, false, other, 2, MPI_ANY_SOURCE)) return false;
      comm->world[static_cast<std::size_t>(other[0])] = other[1];
    }
    for (const int other : comm->world)
      if (other != me && !move(comm, true, comm->world.data(), all, other)) return false;
    return true;
  });
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made,
                           ncclConfig_t* config) {
  MAY_FAIL("ncclCommSplit");
  const int number = ++comm->splits;
  if (number >= 64) return ncclInvalidUsage;  // limited by tags
  auto* const part = new ncclComm;
  part->tag = comm->tag + number;
  // In NCCL, too, the parent's configuration determines sharing, not that of the part.
  if (comm->parts_share) part->resources = comm->resources;
  part->parts_share = shares(config);
  *made = color == NCCL_SPLIT_NOCOLOR ? nullptr : part;
  // The first rank of the group gathers the values of all, and distributes them. The parent's call
  // is in progress until then.
  in_background(comm, [comm, part, color, key] {
    const auto size = comm->world.size();
    const int ints = static_cast<int>(2 * size), root = comm->world.front();
    std::vector<int> all(2 * size);
    int mine[2] = {color, key};
    if (comm->rank > 0) {
      if (!move(comm, true, mine, 2, root) || !move(comm, false, all.data(), ints, root))
        return false;
    } else {
      all[0] = color;
      all[1] = key;
      for (std::size_t i = 1; i < size; ++i)
        if (!move(comm, false, &all[2 * i], 2, comm->world[i])) return false;
      for (std::size_t i = 1; i < size; ++i)
        if (!move(comm, true, all.data(), ints, comm->world[i])) return false;
    }
    std::vector<std::pair<int, int>> members;  // key, rank in comm
    for (std::size_t i = 0; i < size; ++i)
      if (all[2 * i] == color) members.emplace_back(all[2 * i + 1], static_cast<int>(i));
    std::sort(members.begin(), members.end());
    for (const auto& [its_key, of_parent] : members) {
      if (of_parent == comm->rank) part->rank = static_cast<int>(part->world.size());
      part->world.push_back(comm->world[static_cast<std::size_t>(of_parent)]);
    }
    return true;
  });
  return ncclInProgress;
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  MAY_FAIL("ncclCommCount");
  *count = static_cast<int>(comm->world.size());
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  MAY_FAIL("ncclCommGetAsyncError");
  *error = static_cast<ncclResult_t>(comm->error.load());
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t) {
  MAY_FAIL("ncclCommFinalize");
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t) {  // streams may still use it
  MAY_FAIL("ncclCommDestroy");
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart(void) {
  MAY_FAIL("ncclGroupStart");
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd(void) {
  if (depth == 0) return ncclInvalidUsage;
  if (--depth > 0) return ncclSuccess;
  std::vector<Move> moves = std::move(grouped);
  grouped = {};
  MAY_FAIL("ncclGroupEnd");
  SUBMITS;
  if (!moves.empty()) submit(comm_of_group, std::move(moves), stream_of_group);
  return ncclSuccess;
}

// Threads must not submit concurrently.

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  MAY_FAIL("ncclSend");
  SUBMITS;
  add({true, static_cast<char*>(fake_address(data)), count * size_of(type), peer}, comm, stream);
  return ncclSuccess;
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  MAY_FAIL("ncclRecv");
  SUBMITS;
  add({false, static_cast<char*>(fake_address(data)), count * size_of(type), peer}, comm, stream);
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  MAY_FAIL("ncclAllGather");
  SUBMITS;
  const std::size_t bytes = count * size_of(type);
  char* const mine = static_cast<char*>(fake_address(from));
  char* const all = static_cast<char*>(fake_address(to));
  std::vector<Move> moves;
  for (std::size_t i = 0; i < comm->world.size(); ++i) {
    moves.push_back({true, mine, bytes, static_cast<int>(i)});
    moves.push_back({false, all + i * bytes, bytes, static_cast<int>(i)});
  }
  submit(comm, std::move(moves), stream);
  return ncclSuccess;
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  MAY_FAIL("ncclReduceScatter");
  SUBMITS;
  if (op != ncclSum || type == ncclInt8) return ncclInvalidArgument;
  const std::size_t element = size_of(type), bytes = count * element, ranks = comm->world.size();
  char* const parts = static_cast<char*>(fake_address(from));
  char* const sum = static_cast<char*>(fake_address(to));
  const auto received = std::make_shared<std::vector<char>>(ranks * bytes);
  std::vector<Move> moves;
  for (std::size_t i = 0; i < ranks; ++i) {
    moves.push_back({true, parts + i * bytes, bytes, static_cast<int>(i)});
    moves.push_back({false, received->data() + i * bytes, bytes, static_cast<int>(i)});
  }
  submit(comm, std::move(moves), stream, [=] {
    const auto part = [&](std::size_t i) {
      return received->data() + (static_cast<std::size_t>(comm->rank) + 1 + i) % ranks * bytes;
    };
    std::memcpy(sum, part(0), bytes);
    for (std::size_t i = 1; i < ranks; ++i)
      for (std::size_t at = 0; at < bytes; at += element) add_to(sum + at, part(i) + at, type);
  });
  return ncclSuccess;
}

}  // extern "C"
