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

template <class Space>
void prepare([[maybe_unused]] const Exec& exec) {
  require(memory_is_host_accessible || std::is_same<Space, OnHost>::value,
          "this build has no communication for device memory");
  if constexpr (on_device) exec.fence();
}

}  // namespace

/// call(first byte, count, request) for each part of a message.
template <class Call>
void Messages::begin(Begun& begun, std::int64_t bytes, const Call& call) {
  begun.parts.push_back(0);
  begun.bytes.push_back(bytes);
  for (std::int64_t first = 0; first < bytes; first += most_bytes) {
    ++begun.parts.back();
    begun.requests.push_back(MPI_REQUEST_NULL);
    call(first, static_cast<int>(std::min(most_bytes, bytes - first)), &begun.requests.back());
  }
}

template <class Space>
void Messages::begin_send(const Exec& exec, View<const char*, Space> data, int to) {
  prepare<Space>(exec);
  begin(sends_, data.size(), [&](std::int64_t first, int count, MPI_Request* request) {
    check_mpi(MPI_Isend(data.data() + first, count, MPI_BYTE, to, 0, group_.mpi(), request),
              "MPI_Isend");
  });
  bytes_sent_ += data.size();
}

template <class Space>
void Messages::begin_receive(const Exec& exec, View<char*, Space> data, int from) {
  prepare<Space>(exec);
  begin(receives_, data.size(), [&](std::int64_t first, int count, MPI_Request* request) {
    check_mpi(MPI_Irecv(data.data() + first, count, MPI_BYTE, from, 0, group_.mpi(), request),
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
