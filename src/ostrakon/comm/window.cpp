// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/comm/window.hpp>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <ctime>
#include <new>
#include <ostrakon/base/error.hpp>
#include <ostrakon/base/print.hpp>
#include <ostrakon/comm/communicator.hpp>
#include <random>
#include <stdexcept>

namespace ostrakon::comm {

using Number = std::atomic<std::uint32_t>;
static_assert(Number::is_always_lock_free && sizeof(Number) == sizeof(std::uint32_t),
              "other processes, and the system, see a number as it is");

/// The flags of a rank, aligned to two cache lines, which processors fetch together.
struct alignas(128) WindowFlags {
  Number ready{0};     ///< number of collectives whose source may be read
  Number done{0};      ///< number of collectives in which this rank has read all sources
  Number sleepers{0};  ///< number of ranks that wait for one of the counters
  NodeMemory::Place source;
};

namespace {

constexpr std::size_t identity_bytes = alignof(WindowFlags);

/// A random number in front of the flags, which shows that a process number is the expected process
/// and not one of another namespace.
using Identity = std::uint64_t;

Identity& identity_in(const SharedMemory& flags) {
  return *reinterpret_cast<Identity*>(flags.data());
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

constexpr int naps_in_a_second = 1000;

/// Sleeps while `word` is `seen`, for a millisecond at most. Returns false if that time is over.
bool nap_on(const Number& word, std::uint32_t seen) {
  const timespec limit = {0, 1000000000 / naps_in_a_second};
  const long woken = ::syscall(SYS_futex, reinterpret_cast<const std::uint32_t*>(&word), FUTEX_WAIT,
                               seen, &limit, nullptr, 0);
  return woken == 0 || errno != ETIMEDOUT;
}

void set(Number WindowFlags::*word, WindowFlags& flags, std::uint32_t number) {
  // The store and the load are sequentially consistent: sleepers count themselves, then read the
  // word again, so no wake-up is lost.
  (flags.*word).store(number);
  if (flags.sleepers.load() > 0)
    ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&(flags.*word)), FUTEX_WAKE, INT_MAX,
              nullptr, nullptr, 0);
}

/// Whether `number` has been reached; counters wrap around.
bool has_come(std::uint32_t seen, std::uint32_t number) {
  return static_cast<std::int32_t>(seen - number) >= 0;
}

}  // namespace

NodeMemory::NodeMemory(Communicator& node, const std::vector<SharedMemory*>& own, int windows)
    : rank_(node.rank()), own_(own), ranks_(static_cast<std::size_t>(node.size())) {
  Rank& mine = ranks_[static_cast<std::size_t>(rank_)];
  const auto flag_bytes = static_cast<std::int64_t>(
      identity_bytes + static_cast<std::size_t>(windows) * sizeof(WindowFlags));
  TextWriter shown;
  node.run_collectively([&] {
    mine.flags = SharedMemory(flag_bytes);
    std::random_device random;
    identity_in(mine.flags) = (Identity{random()} << 32) + random();
    for (int window = 0; window < windows; ++window) new (&flags(rank_, window)) WindowFlags();
    shown << ::getpid() << ' ' << identity_in(mine.flags) << ' ' << mine.flags.descriptor();
    for (SharedMemory* const part : own) {
      shown << ' ' << part->descriptor() << ' ' << part->bytes();
      mine.parts.push_back(part->data());
    }
  });
  const std::vector<std::string> of_ranks = node.gather_texts(shown.str());
  node.run_collectively([&] {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      TextReader stream(of_ranks[r]);
      Identity identity = 0;
      int descriptor = -1;
      stream >> rank.process >> identity >> descriptor;
      if (&rank == &mine) continue;
      rank.flags =
          SharedMemory(rank.process, descriptor, flag_bytes, SharedMemory::Access::read_write);
      require(identity_in(rank.flags) == identity, "process ", rank.process,
              " is another one on the side of rank ", r, " of the node: its ranks are in ",
              "containers of their own");
      for (std::size_t part = 0; part < own.size(); ++part) {
        std::int64_t bytes = 0;
        stream >> descriptor >> bytes;
        rank.mapped.emplace_back(rank.process, descriptor, bytes, SharedMemory::Access::read);
        rank.parts.push_back(rank.mapped.back().data());
      }
    }
  });
  // All ranks have mapped all memory, so it can be closed to others.
  mine.flags.close();
  for (SharedMemory* const part : own_) part->close();
}

NodeMemory::~NodeMemory() = default;

NodeMemory::Place NodeMemory::place_of(const void* data, std::int64_t bytes) const {
  for (std::size_t part = 0; part < own_.size(); ++part)
    if (own_[part]->has(data, bytes))
      return {static_cast<int>(part), static_cast<const std::byte*>(data) - own_[part]->data()};
  return {};
}

const std::byte* NodeMemory::at(int rank, const Place& place) const {
  return ranks_[static_cast<std::size_t>(rank)].parts[static_cast<std::size_t>(place.part)] +
         place.offset;
}

WindowFlags& NodeMemory::flags(int rank, int window) const {
  std::byte* const first = ranks_[static_cast<std::size_t>(rank)].flags.data() + identity_bytes;
  return reinterpret_cast<WindowFlags*>(first)[window];
}

void NodeMemory::require_process(int rank) const {
  const int process = ranks_[static_cast<std::size_t>(rank)].process;
  require(::kill(process, 0) == 0 || errno != ESRCH, "rank ", rank,
          " of this node, which others wait for, is no longer there (process ", process, ")");
}

std::string why_not_shared(Communicator& node) {
  try {
    SharedMemory any;
    node.run_collectively([&] { any = SharedMemory(1); });
    const NodeMemory probe(node, {&any}, 1);
    return "";
  } catch (const CollectiveError& error) {
    return error.what();
  }
}

Window::Window(std::shared_ptr<const NodeMemory> memory, Communicator& group, int number)
    : memory_(std::move(memory)),
      rank_(group.rank()),
      number_(number),
      group_(group.mpi()),
      on_node_(static_cast<std::size_t>(group.size())),
      sources_(on_node_.size()) {
  const std::vector<std::string> of_ranks = group.gather_texts(std::to_string(memory_->rank()));
  for (std::size_t rank = 0; rank < on_node_.size(); ++rank)
    on_node_[rank] = std::stoi(of_ranks[rank]);
}

void Window::begin(const void* source, std::int64_t bytes) {
  const NodeMemory::Place place = memory_->place_of(source, bytes);
  if (place.part < 0)
    throw std::logic_error("what ranks read of each other is not in memory that they share");
  WindowFlags& mine = memory_->flags(memory_->rank(), number_);
  mine.source = place;
  set(&WindowFlags::ready, mine, ++collective_);
}

const std::byte* Window::source(int rank) const {
  wait_for(&WindowFlags::ready, static_cast<std::size_t>(rank));
  const int on_node = on_node_[static_cast<std::size_t>(rank)];
  return memory_->at(on_node, memory_->flags(on_node, number_).source);
}

const std::vector<const std::byte*>& Window::sources(std::int64_t offset) {
  for (std::size_t rank = 0; rank < on_node_.size(); ++rank)
    sources_[rank] = source(static_cast<int>(rank)) + offset;
  return sources_;
}

void Window::end() {
  set(&WindowFlags::done, memory_->flags(memory_->rank(), number_), collective_);
  for (std::size_t rank = 0; rank < on_node_.size(); ++rank) wait_for(&WindowFlags::done, rank);
}

template <class Word>
void Window::wait_for(Word WindowFlags::*word, std::size_t rank) const {
  constexpr int looks = 400;  // iterations, about ten microseconds
  const int on_node = on_node_[rank];
  WindowFlags& flags = memory_->flags(on_node, number_);
  const Number& awaited = flags.*word;
  for (int look = 0; look < looks; ++look) {
    if (has_come(awaited.load(std::memory_order_acquire), collective_)) return;
    relax();
  }
  ++flags.sleepers;
  for (int naps = 1;; ++naps) {
    const std::uint32_t seen = awaited.load();
    if (has_come(seen, collective_)) break;
    if (nap_on(awaited, seen)) continue;
    // The awaited rank may wait for a message of this rank, and some MPI libraries move messages
    // only while the sender calls MPI.
    int unused = 0;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, group_, &unused, MPI_STATUS_IGNORE),
              "MPI_Iprobe");
    if (naps % naps_in_a_second == 0) memory_->require_process(on_node);
  }
  --flags.sleepers;
}

}  // namespace ostrakon::comm
