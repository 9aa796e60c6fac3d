// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/comm/messages.hpp>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <thread>
#include <type_traits>

namespace ostrakon::comm {
namespace {

/// Larger messages are sent in parts: MPI counts in int.
constexpr std::int64_t most_bytes = std::int64_t{1} << 30;

/// begin(first byte, count) for the parts of a message.
template <class Begin>
void in_parts(std::int64_t bytes, const Begin& begin) {
  for (std::int64_t first = 0; first < bytes; first += most_bytes)
    begin(first, static_cast<int>(std::min(most_bytes, bytes - first)));
}

template <class Space>
void prepare([[maybe_unused]] const Exec& exec) {
  require(memory_is_host_accessible || std::is_same<Space, OnHost>::value,
          "this build has no communication for device memory");
  if constexpr (on_device) exec.fence();
}

}  // namespace

template <class Space>
void Messages::begin_send(const Exec& exec, View<const char*, Space> data, int to) {
  prepare<Space>(exec);
  sends_.parts.push_back(0);
  sends_.bytes.push_back(data.size());
  in_parts(data.size(), [&](std::int64_t first, int count) {
    ++sends_.parts.back();
    sends_.requests.push_back(MPI_REQUEST_NULL);
    check_mpi(MPI_Isend(data.data() + first, count, MPI_BYTE, to, 0, group_.mpi(),
                        &sends_.requests.back()),
              "MPI_Isend");
  });
  bytes_sent_ += data.size();
}

template <class Space>
void Messages::begin_receive(const Exec& exec, View<char*, Space> data, int from) {
  prepare<Space>(exec);
  receives_.parts.push_back(0);
  receives_.bytes.push_back(data.size());
  in_parts(data.size(), [&](std::int64_t first, int count) {
    ++receives_.parts.back();
    receives_.requests.push_back(MPI_REQUEST_NULL);
    check_mpi(MPI_Irecv(data.data() + first, count, MPI_BYTE, from, 0, group_.mpi(),
                        &receives_.requests.back()),
              "MPI_Irecv");
  });
}

bool Messages::finish(Begun& begun, int may_go_on, const std::atomic<bool>& gives_up) {
  const auto messages = static_cast<std::ptrdiff_t>(begun.parts.size()) - may_go_on;
  if (messages <= 0) return true;
  const auto end = begun.parts.begin() + messages;
  const int requests = std::accumulate(begun.parts.begin(), end, 0);
  const std::int64_t bytes =
      std::accumulate(begun.bytes.begin(), begun.bytes.begin() + messages, std::int64_t{0});
  for (int done = 0; done == 0;) {
    check_mpi(MPI_Testall(requests, begun.requests.data(), &done, MPI_STATUSES_IGNORE),
              "MPI_Testall");
    if (done != 0) break;
    if (gives_up) return false;
    std::this_thread::yield();
  }
  begun.requests.erase(begun.requests.begin(), begun.requests.begin() + requests);
  begun.parts.erase(begun.parts.begin(), end);
  begun.bytes.erase(begun.bytes.begin(), begun.bytes.begin() + messages);
  const double seconds = begun.seconds_per_byte * static_cast<double>(bytes);
  if (seconds > 0.0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  return true;
}

template void Messages::begin_send(const Exec&, View<const char*, OnHost>, int);
template void Messages::begin_receive(const Exec&, View<char*, OnHost>, int);
template void Messages::begin_send(const Exec&, View<const char*, OnDevice>, int);
template void Messages::begin_receive(const Exec&, View<char*, OnDevice>, int);

}  // namespace ostrakon::comm
