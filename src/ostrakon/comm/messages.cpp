// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/comm/messages.hpp>

#include <algorithm>
#include <numeric>
#include <ostrakon/base/error.hpp>
#include <ostrakon/math/warm_up.hpp>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#if OSTRAKON_HAS_DEVICE
#include <ostrakon/device/stream.hpp>
#endif

namespace ostrakon::comm {
namespace {

/// Larger messages are sent in parts, as MPI counts in int.
constexpr std::int64_t most_bytes = std::int64_t{1} << 30;

}  // namespace

/// Returns the buffer that MPI sends from or receives into: `data` or `target` itself, or pinned
/// memory, which is copied to `target` when the message is finished. `target` is null for a send.
template <class Space>
char* Messages::begin_stage([[maybe_unused]] Begun& begun, [[maybe_unused]] const Exec& exec,
                            const char* data, [[maybe_unused]] std::int64_t bytes,
                            [[maybe_unused]] char* target) const {
  char* const as_it_is = target != nullptr ? target : const_cast<char*>(data);  // NOLINT
#if OSTRAKON_HAS_DEVICE
  const bool passes = staged_ && std::is_same<Space, OnDevice>::value;
  StagingBuffer stage;
  if (passes) {
    const auto fits = [&](const StagingBuffer& one) { return one.capacity >= bytes; };
    const auto found = std::find_if(begun.spare.begin(), begun.spare.end(), fits);
    if (found != begun.spare.end()) {
      stage = std::move(*found);
      begun.spare.erase(found);
    } else {
      stage.memory = device::PinnedBytes(std::max<std::int64_t>(bytes, 1));
      stage.capacity = bytes;
    }
    stage.bytes = bytes;
    stage.target = reinterpret_cast<std::byte*>(target);
    stage.stream = stream_of(exec);
    if (target == nullptr)
      device::copy_to_host(stage.stream, data, stage.memory.data(),
                           static_cast<std::size_t>(bytes));
  }
  char* const place = passes ? reinterpret_cast<char*>(stage.memory.data()) : as_it_is;
  begun.stages.push_back(std::move(stage));
  exec.fence();
  return place;
#else
  return as_it_is;
#endif
}

/// Finishes the stages of the first `messages` messages, which are done.
void Messages::finish_stages([[maybe_unused]] Begun& begun,
                             [[maybe_unused]] std::ptrdiff_t messages) {
#if OSTRAKON_HAS_DEVICE
  for (std::ptrdiff_t i = 0; i < messages; ++i) {
    StagingBuffer& stage = begun.stages[static_cast<std::size_t>(i)];
    if (stage.memory.data() == nullptr) continue;
    if (stage.target != nullptr) {
      device::copy_to_device(stage.stream, stage.memory.data(), stage.target,
                             static_cast<std::size_t>(stage.bytes));
      device::wait_for(stage.stream);
    }
    begun.spare.push_back(std::move(stage));
  }
  begun.stages.erase(begun.stages.begin(), begun.stages.begin() + messages);
#endif
}

/// Calls call(first byte, count, request) for each part of a message.
template <class Call>
void Messages::begin(Begun& begun, std::int64_t bytes, const Call& call) {
  begun.parts.push_back(0);
  for (std::int64_t first = 0; first < bytes; first += most_bytes) {
    ++begun.parts.back();
    begun.requests.push_back(MPI_REQUEST_NULL);
    call(first, static_cast<int>(std::min(most_bytes, bytes - first)), &begun.requests.back());
  }
}

void Messages::require_carried(bool on_device) const {
  if (transport_ != nullptr && !on_device)
    throw std::logic_error("a message of host memory, where a transport carries those of devices");
}

template <class Space>
void Messages::begin_send(const Exec& exec, View<const char*, Space> data, int to) {
  require_carried(std::is_same<Space, OnDevice>::value);
  if (math::WarmUp::runs()) return;
  if (transport_ != nullptr) {
    transport_->send(exec, reinterpret_cast<const std::byte*>(data.data()), data.size(), to);
    bytes_sent_ += data.size();
    return;
  }
  const char* const from = begin_stage<Space>(sends_, exec, data.data(), data.size(), nullptr);
  begin(sends_, data.size(), [&](std::int64_t first, int count, MPI_Request* request) {
    check_mpi(MPI_Isend(from + first, count, MPI_BYTE, to, 0, group_.mpi(), request), "MPI_Isend");
  });
  bytes_sent_ += data.size();
}

template <class Space>
void Messages::begin_receive(const Exec& exec, View<char*, Space> data, int from) {
  require_carried(std::is_same<Space, OnDevice>::value);
  if (math::WarmUp::runs()) return;
  if (transport_ != nullptr)
    return transport_->receive(exec, reinterpret_cast<std::byte*>(data.data()), data.size(), from);
  char* const to = begin_stage<Space>(receives_, exec, nullptr, data.size(), data.data());
  begin(receives_, data.size(), [&](std::int64_t first, int count, MPI_Request* request) {
    check_mpi(MPI_Irecv(to + first, count, MPI_BYTE, from, 0, group_.mpi(), request), "MPI_Irecv");
  });
}

bool Messages::finish(Begun& begun, int may_go_on, const std::atomic<bool>& gives_up) {
  const auto messages = static_cast<std::ptrdiff_t>(begun.parts.size()) - may_go_on;
  if (messages <= 0) return true;
  const auto end = begun.parts.begin() + messages;
  const int requests = std::accumulate(begun.parts.begin(), end, 0);
  for (int done = 0; done == 0;) {
    check_mpi(MPI_Testall(requests, begun.requests.data(), &done, MPI_STATUSES_IGNORE),
              "MPI_Testall");
    if (done != 0) break;
    if (gives_up) return false;
    std::this_thread::yield();
  }
  finish_stages(begun, messages);
  begun.requests.erase(begun.requests.begin(), begun.requests.begin() + requests);
  begun.parts.erase(begun.parts.begin(), end);
  return true;
}

template void Messages::begin_send(const Exec&, View<const char*, OnHost>, int);
template void Messages::begin_receive(const Exec&, View<char*, OnHost>, int);
template void Messages::begin_send(const Exec&, View<const char*, OnDevice>, int);
template void Messages::begin_receive(const Exec&, View<char*, OnDevice>, int);

}  // namespace ostrakon::comm
