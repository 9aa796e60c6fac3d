// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/comm/communicator.hpp>

#include <algorithm>
#include <cmath>
#include <exception>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/watch/progress.hpp>
#include <utility>

namespace ostrakon::comm {
namespace {

std::string message_of_current_exception() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char message[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, message, &length) != MPI_SUCCESS) length = 0;
  throw Error(text(call, " failed with code ", code, ": ",
                   std::string(message, static_cast<std::size_t>(length))));
}

Communicator Communicator::duplicate(MPI_Comm parent) {
  MPI_Comm made = MPI_COMM_NULL;
  const watch::MpiCallScope mark("MPI_Comm_dup");
  check_mpi(MPI_Comm_dup(parent, &made), "MPI_Comm_dup");
  return Communicator(made);
}

Communicator Communicator::split(MPI_Comm parent, int color, int key) {
  require(color >= 0, "the color of a group of ranks is ", color, ", expected 0 or more");
  MPI_Comm made = MPI_COMM_NULL;
  const watch::MpiCallScope mark("MPI_Comm_split");
  check_mpi(MPI_Comm_split(parent, color, key, &made), "MPI_Comm_split");
  return Communicator(made);
}

Communicator Communicator::split_shared_memory(MPI_Comm parent) {
  MPI_Comm made = MPI_COMM_NULL;
  const watch::MpiCallScope mark("MPI_Comm_split_type");
  check_mpi(MPI_Comm_split_type(parent, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made),
            "MPI_Comm_split_type");
  return Communicator(made);
}

// The delegation makes the object complete, so that a throw from the body still frees `owned`.
Communicator::Communicator(MPI_Comm owned) : Communicator() {
  comm_ = owned;
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  const MPI_Datatype elements[] = {MPI_FLOAT, MPI_UINT16_T};
  for (std::size_t t = 0; t < blocks_.size(); ++t) {
    check_mpi(MPI_Type_contiguous(block_elements, elements[t], &blocks_[t]), "MPI_Type_contiguous");
    check_mpi(MPI_Type_commit(&blocks_[t]), "MPI_Type_commit");
  }
}

Communicator::Communicator(Communicator&& other) noexcept { *this = std::move(other); }

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  std::swap(comm_, other.comm_);
  std::swap(transport_, other.transport_);
  std::swap(window_, other.window_);
  std::swap(blocks_, other.blocks_);
  std::swap(rank_, other.rank_);
  std::swap(size_, other.size_);
  std::swap(bytes_sent_, other.bytes_sent_);
  std::swap(seconds_per_byte_, other.seconds_per_byte_);
  return *this;
}

Communicator::~Communicator() {
  if (comm_ == MPI_COMM_NULL) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized) return;
  for (MPI_Datatype& block : blocks_)
    if (block != MPI_DATATYPE_NULL) MPI_Type_free(&block);
  MPI_Comm_free(&comm_);
}

bool Communicator::threads_may_call() {
  int provided = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&provided), "MPI_Query_thread");
  return provided == MPI_THREAD_MULTIPLE;
}

void Communicator::slow_down(double seconds_per_byte) {
  require(seconds_per_byte >= 0.0 && std::isfinite(seconds_per_byte),
          "slow_down: ", seconds_per_byte, " seconds for each byte, expected 0 or more");
  seconds_per_byte_ = seconds_per_byte;
}

void Communicator::all_reduce_sum(std::int64_t* values, int count) {
  // Unsigned addition gives the same bits as two's complement addition, and its overflow is
  // defined.
  all_reduce_sum(reinterpret_cast<std::uint64_t*>(values), count);
}

void Communicator::all_reduce_sum(std::uint64_t* values, int count) {
  if (size_ == 1) return;
  const watch::MpiCallScope mark("MPI_Allreduce");
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_UINT64_T, MPI_SUM, comm_),
            "MPI_Allreduce");
}

void Communicator::all_reduce_max(double* values, int count) {
  if (size_ == 1) return;
  const watch::MpiCallScope mark("MPI_Allreduce");
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_MAX, comm_),
            "MPI_Allreduce");
}

void Communicator::all_reduce_min(double* values, int count) {
  if (size_ == 1) return;
  const watch::MpiCallScope mark("MPI_Allreduce");
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_MIN, comm_),
            "MPI_Allreduce");
}

void Communicator::broadcast(void* data, std::int64_t bytes, int root) {
  if (size_ == 1) return;
  const watch::MpiCallScope mark("MPI_Bcast");
  for (std::int64_t done = 0; done < bytes;) {
    const std::int64_t count = std::min(bytes - done, largest_count);
    check_mpi(
        MPI_Bcast(static_cast<char*>(data) + done, static_cast<int>(count), MPI_BYTE, root, comm_),
        "MPI_Bcast");
    done += count;
  }
}

void Communicator::send(const void* data, std::int64_t bytes, int to) {
  const watch::MpiCallScope mark("MPI_Send");
  for (std::int64_t done = 0; done < bytes; done += largest_count)
    check_mpi(
        MPI_Send(static_cast<const char*>(data) + done,
                 static_cast<int>(std::min(bytes - done, largest_count)), MPI_BYTE, to, 0, comm_),
        "MPI_Send");
}

void Communicator::receive(void* data, std::int64_t bytes, int from) {
  const watch::MpiCallScope mark("MPI_Recv");
  for (std::int64_t done = 0; done < bytes; done += largest_count)
    check_mpi(MPI_Recv(static_cast<char*>(data) + done,
                       static_cast<int>(std::min(bytes - done, largest_count)), MPI_BYTE, from, 0,
                       comm_, MPI_STATUS_IGNORE),
              "MPI_Recv");
}

std::string Communicator::broadcast(std::string text, int root) {
  auto bytes = static_cast<std::int64_t>(text.size());
  broadcast(&bytes, sizeof bytes, root);
  text.resize(static_cast<std::size_t>(bytes));
  broadcast(text.data(), bytes, root);
  return text;
}

std::vector<std::string> Communicator::gather_texts(const std::string& text) {
  if (size_ == 1) return {text};
  const auto ranks = static_cast<std::size_t>(size_);
  std::vector<std::int64_t> bytes(ranks);
  bytes[static_cast<std::size_t>(rank_)] = static_cast<std::int64_t>(text.size());
  all_reduce_sum(bytes.data(), size_);
  const std::int64_t total = std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  require(total <= largest_count, "gather_texts: ", total, " bytes of text, at most ",
          largest_count, " fit");

  const std::vector<int> counts(bytes.begin(), bytes.end());
  std::vector<int> begins(ranks);
  std::partial_sum(counts.begin(), counts.end() - 1, begins.begin() + 1);
  std::string all(static_cast<std::size_t>(total), '\0');
  const watch::MpiCallScope mark("MPI_Allgatherv");
  check_mpi(MPI_Allgatherv(text.data(), static_cast<int>(text.size()), MPI_CHAR, all.data(),
                           counts.data(), begins.data(), MPI_CHAR, comm_),
            "MPI_Allgatherv");
  std::vector<std::string> texts(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    texts[rank] =
        all.substr(static_cast<std::size_t>(begins[rank]), static_cast<std::size_t>(counts[rank]));
  return texts;
}

void Communicator::gather_texts_on_root(
    const std::string& mine, const std::function<void(int rank, const std::string& text)>& take) {
  constexpr int tag = 1;
  const auto in_chunks = [](std::size_t bytes, const auto& move) {
    for (std::size_t done = 0; done < bytes;) {
      const std::size_t count = std::min(bytes - done, static_cast<std::size_t>(largest_count));
      move(done, static_cast<int>(count));
      done += count;
    }
  };
  if (rank_ > 0) {
    const watch::MpiCallScope mark("MPI_Send");
    auto bytes = static_cast<std::uint64_t>(mine.size());
    check_mpi(MPI_Send(&bytes, 1, MPI_UINT64_T, 0, tag, comm_), "MPI_Send");
    in_chunks(mine.size(), [&](std::size_t begin, int count) {
      check_mpi(MPI_Send(mine.data() + begin, count, MPI_CHAR, 0, tag, comm_), "MPI_Send");
    });
    return;
  }
  take(0, mine);
  std::string text;
  for (int rank = 1; rank < size_; ++rank) {
    const watch::MpiCallScope mark("MPI_Recv");
    std::uint64_t bytes = 0;
    check_mpi(MPI_Recv(&bytes, 1, MPI_UINT64_T, rank, tag, comm_, MPI_STATUS_IGNORE), "MPI_Recv");
    text.resize(static_cast<std::size_t>(bytes));
    in_chunks(text.size(), [&](std::size_t begin, int count) {
      check_mpi(MPI_Recv(text.data() + begin, count, MPI_CHAR, rank, tag, comm_, MPI_STATUS_IGNORE),
                "MPI_Recv");
    });
    take(rank, text);
  }
}

void Communicator::barrier() {
  if (size_ == 1) return;
  const watch::MpiCallScope mark("MPI_Barrier");
  check_mpi(MPI_Barrier(comm_), "MPI_Barrier");
}

void Communicator::run_collectively(const std::function<void()>& work) {
  // A reduction finds the minimum: the lowest rank with an error that is no damage, or, if there is
  // none, the lowest with damage.
  const int none = 2 * size_;
  int failed = none;
  std::string message;
  try {
    work();
  } catch (const DamagedError& error) {
    failed = size_ + rank_;
    message = error.what();
  } catch (...) {
    failed = rank_;
    message = message_of_current_exception();
  }
  if (size_ > 1) {
    const watch::MpiCallScope mark("MPI_Allreduce");
    check_mpi(MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MIN, comm_), "MPI_Allreduce");
  }
  if (failed == none) return;
  message = broadcast(std::move(message), failed % size_);
  if (failed >= size_) throw CollectiveDamagedError(message);
  throw CollectiveError(message);
}

void Communicator::run_on_root(const std::function<void()>& work) {
  run_collectively([&] {
    if (rank_ == 0) work();
  });
}

}  // namespace ostrakon::comm
