// SPDX-License-Identifier: Apache-2.0
#include <ostrakon/comm/nccl.hpp>

#if defined(OSTRAKON_HAVE_NCCL)

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <ostrakon/base/clock.hpp>
#include <ostrakon/base/error.hpp>
#include <ostrakon/device/memory.hpp>
#include <set>
#include <utility>

namespace ostrakon::comm {
namespace {

constexpr auto poll_time = std::chrono::milliseconds(1);
constexpr auto watch_time = std::chrono::milliseconds(100);

/// The configuration of a non-blocking communicator: creation exchanges data with other ranks,
/// which may have failed.
ncclConfig_t config_of([[maybe_unused]] const std::string& name,
                       NcclCommunicator::Resources of_parts) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = of_parts == NcclCommunicator::Resources::of_parent ? 1 : 0;
#if NCCL_VERSION_CODE >= 22700
  config.commName = name.c_str();
#endif
  return config;
}

/// Held while an operation is submitted: threads must not call NCCL for one device at the same
/// time, even for different communicators.
std::mutex& submission_lock() {
  static std::mutex one;
  return one;
}

bool has_failed(ncclResult_t result) { return result != ncclSuccess && result != ncclInProgress; }

std::string text_of(const std::string& name, const char* call, ncclResult_t result,
                    ncclComm_t handle) {
  const char* const last = ncclGetLastError(handle);
  std::string all = text(call, " of ", name, " failed: ", ncclGetErrorString(result));
  if (last != nullptr && last[0] != '\0') all += text(" (", last, ")");
  return all;
}

}  // namespace

NcclCommunicator::NcclCommunicator(Communicator& group, std::string name, double seconds,
                                   Resources of_parts)
    : name_(std::move(name)), seconds_(seconds), size_(group.size()) {
  ncclUniqueId id{};
  group.run_on_root([&] { check(ncclGetUniqueId(&id), "ncclGetUniqueId"); });
  group.broadcast(&id, sizeof id, 0);
  ncclConfig_t config = config_of(name_, of_parts);
  try {
    // All ranks begin before any of them waits for the others.
    group.run_collectively([&] {
      const ncclResult_t result =
          ncclCommInitRankConfig(&handle_, size_, id, group.rank(), &config);
      if (has_failed(result))
        throw Error(text_of(name_, "ncclCommInitRankConfig", result, nullptr));
    });
    group.run_collectively([&] { check(ncclSuccess, "ncclCommInitRankConfig"); });
  } catch (...) {
    abort();
    throw;
  }
}

NcclCommunicator::NcclCommunicator(NcclCommunicator& parent, int color, int key, std::string name)
    : name_(std::move(name)), seconds_(parent.seconds_) {
  ncclConfig_t config = config_of(name_, Resources::own);
  // The parent's call may be in progress until all ranks have split it.
  const ncclResult_t result =
      ncclCommSplit(parent.handle_, color < 0 ? NCCL_SPLIT_NOCOLOR : color, key, &handle_, &config);
  try {
    parent.check(result, "ncclCommSplit");
    if (color < 0) return;
    check(ncclSuccess, "ncclCommSplit");
    check(ncclCommCount(handle_, &size_), "ncclCommCount");
  } catch (...) {
    abort();
    throw;
  }
}

NcclCommunicator::~NcclCommunicator() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (handle_ == nullptr) return;
  ncclResult_t state = ncclSuccess;
  // Finalizing is collective, so it is skipped if this rank has failed.
  if (ncclCommGetAsyncError(handle_, &state) != ncclSuccess || state != ncclSuccess ||
      std::uncaught_exceptions() > 0) {
    static_cast<void>(ncclCommAbort(handle_));
    return;
  }
  constexpr double most_seconds = 5.0;  // a limit, as other ranks may have failed
  ncclResult_t result = ncclCommFinalize(handle_);
  const double end = seconds_now() + std::min(most_seconds, seconds_);
  while ((result == ncclSuccess || result == ncclInProgress) &&
         ncclCommGetAsyncError(handle_, &state) == ncclSuccess && state == ncclInProgress &&
         seconds_now() < end)
    std::this_thread::sleep_for(poll_time);
  static_cast<void>(state == ncclSuccess ? ncclCommDestroy(handle_) : ncclCommAbort(handle_));
}

void NcclCommunicator::check(ncclResult_t result, const char* call) const {
  if (has_failed(result)) throw Error(text_of(name_, call, result, handle_));
  const double begin = seconds_now();
  for (;;) {
    ncclResult_t state = ncclSuccess;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (handle_ == nullptr) return;
      const ncclResult_t asked = ncclCommGetAsyncError(handle_, &state);
      if (asked != ncclSuccess)
        throw Error(text_of(name_, "ncclCommGetAsyncError", asked, handle_));
      if (has_failed(state)) throw Error(text_of(name_, call, state, handle_));
    }
    if (state == ncclSuccess) return;
    const double waited = seconds_now() - begin;
    if (waited > seconds_)
      throw Error(text(call, " of ", name_, " has not ended within ", seconds_,
                       " s: other ranks have not made the same call, or the network is stuck"));
    // Most calls are in progress for some microseconds only, and a step makes hundreds of them.
    constexpr double soon = 1e-3;
    if (waited < soon)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(poll_time);
  }
}

std::string NcclCommunicator::error() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (handle_ == nullptr) return "";
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(handle_, &state);
  if (asked != ncclSuccess) return text_of(name_, "ncclCommGetAsyncError", asked, handle_);
  if (state == ncclSuccess || state == ncclInProgress) return "";
  return text_of(name_, "a collective", state, handle_);
}

ncclComm_t NcclCommunicator::handle() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  require(handle_ != nullptr, name_, " was aborted");
  return handle_;
}

void NcclCommunicator::abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (handle_ != nullptr) static_cast<void>(ncclCommAbort(handle_));
  handle_ = nullptr;
}

// --- NcclWatchdog

NcclWatchdog::NcclWatchdog(double seconds, std::function<void(const std::string&)> ended)
    : seconds_(seconds),
      ended_(std::move(ended)),
      device_(device::current()),
      thread_([this] { serve(); }) {}

NcclWatchdog::~NcclWatchdog() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void NcclWatchdog::add(const void* who, NcclCommunicator& communicator,
                       std::function<Oldest()> oldest) {
  const std::lock_guard<std::mutex> lock(mutex_);
  watched_.push_back({who, &communicator, std::move(oldest)});
}

void NcclWatchdog::forget(const void* who) {
  const std::lock_guard<std::mutex> lock(mutex_);
  watched_.erase(std::remove_if(watched_.begin(), watched_.end(),
                                [&](const Watched& one) { return one.who == who; }),
                 watched_.end());
}

void NcclWatchdog::set_failure_deadline(const std::string& why, double seconds) {
  const std::lock_guard<std::mutex> lock(mutex_);
  why_ = why;
  until_ = seconds_now() + seconds;
}

void NcclWatchdog::clear_failure_deadline() {
  const std::lock_guard<std::mutex> lock(mutex_);
  why_.clear();
}

/// Returns the first failure that it finds, or "".
std::string NcclWatchdog::look() {
  for (const Watched& one : watched_) {
    std::string error = one.communicator->error();
    if (!error.empty()) return error;
    const Oldest oldest = one.oldest();
    if (!why_.empty() && !oldest.what.empty() && seconds_now() > until_) return why_;
    if (oldest.seconds > seconds_)
      return text(oldest.what, " on ", one.communicator->name(), " has not ended within ", seconds_,
                  " s: another rank has not made its part of it, or the network is stuck");
  }
  return "";
}

void NcclWatchdog::serve() {
  std::unique_lock<std::mutex> lock(mutex_);
  bool is_first = true;
  while (!ends_) {
    changed_.wait_for(lock, watch_time, [this] { return ends_; });
    std::string wrong;
    try {
      if (std::exchange(is_first, false)) device::use(device_);
      if (!ends_) wrong = look();
    } catch (const std::exception& error) {  // the device has failed
      wrong = error.what();
    }
    if (wrong.empty()) continue;
    // ended() is called before abort(), after which waiting work continues with data that it has
    // not received.
    ended_(wrong);
    for (const Watched& one : watched_) one.communicator->abort();
    return;
  }
}

// --- collectives

void NcclOrder::begin(device::StreamHandle stream) {
  if (has_begun_ && stream_ != stream) last_.delay(stream);
}

void NcclOrder::end(device::StreamHandle stream) {
  last_.record(stream);
  stream_ = stream;
  has_begun_ = true;
}

NcclTransport::NcclTransport(std::shared_ptr<NcclCommunicator> communicator, int rank,
                             NcclWatchdog* watch, std::shared_ptr<NcclOrder> order)
    : communicator_(std::move(communicator)), order_(std::move(order)), rank_(rank), watch_(watch) {
  constexpr std::size_t most = 256;
  pending_.resize(most);
  if (watch_ != nullptr) watch_->add(this, *communicator_, [this] { return oldest(); });
}

NcclTransport::~NcclTransport() {
  if (watch_ != nullptr) watch_->forget(this);
}

/// Begins an operation; note() must follow its call.
void NcclTransport::begin(const Exec& exec) {
  if (order_ != nullptr) order_->begin(stream_of(exec));
  const std::lock_guard<std::mutex> lock(mutex_);
  // If the list is full, the last entry is dropped: the new operation is done after it.
  if (count_ == pending_.size()) --count_;
  Pending& next = pending_[(first_ + count_) % pending_.size()];
  next.ready.record(stream_of(exec));
  next.begun = 0.0;
}

void NcclTransport::note(const Exec& exec, const char* what, std::int64_t bytes, const char* way,
                         int peer) {
  if (order_ != nullptr) order_->end(stream_of(exec));
  const std::lock_guard<std::mutex> lock(mutex_);
  Pending& next = pending_[(first_ + count_) % pending_.size()];
  next.done.record(stream_of(exec));
  next.what = what;
  next.bytes = bytes;
  next.way = way;
  next.peer = peer;
  ++count_;
}

NcclWatchdog::Oldest NcclTransport::oldest() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const double now = seconds_now();
  for (; count_ > 0; --count_, first_ = (first_ + 1) % pending_.size()) {
    Pending& next = pending_[first_];
    if (next.done.is_reached()) continue;
    // The time limit begins when the input is ready, as computing it may take long.
    if (next.begun == 0.0 && next.ready.is_reached()) next.begun = now;
    return {text(next.what, " of ", next.bytes, " bytes",
                 next.peer >= 0 ? text(next.way, next.peer, " of the group") : ""),
            next.begun == 0.0 ? 0.0 : now - next.begun};
  }
  return {};
}

void NcclTransport::connect() {
  // These two collectives may use different connections.
  const auto ranks = static_cast<std::int64_t>(communicator_->size());
  const device::DeviceBytes bytes(2 * ranks);
  const device::Stream stream;
  const Exec exec(stream.handle());
  all_gather(exec, bytes.data(), bytes.data() + ranks, 1);
  all_to_all(exec, bytes.data(), bytes.data() + ranks, 1);
  device::wait_for(stream.handle());
}

void NcclTransport::all_gather(const Exec& exec, const std::byte* shard, std::byte* full,
                               std::int64_t shard_bytes) {
  const std::lock_guard<std::mutex> lock(submission_lock());
  begin(exec);
  communicator_->check(ncclAllGather(shard, full, static_cast<std::size_t>(shard_bytes), ncclInt8,
                                     communicator_->handle(), stream_of(exec)),
                       "ncclAllGather");
  note(exec, "an all-gather", shard_bytes);
}

void NcclTransport::all_to_all(const Exec& exec, const std::byte* full, std::byte* received,
                               std::int64_t part_bytes) {
  const std::lock_guard<std::mutex> lock(submission_lock());
  const auto stream = stream_of(exec);
  const auto bytes = static_cast<std::size_t>(part_bytes);
  const ncclComm_t handle = communicator_->handle();
  begin(exec);
  communicator_->check(ncclGroupStart(), "ncclGroupStart");
  ncclResult_t failed = ncclSuccess;
  const char* call = "ncclGroupEnd";
  const auto add = [&](ncclResult_t result, const char* its) {
    if (failed != ncclSuccess || result == ncclSuccess || result == ncclInProgress) return;
    failed = result;
    call = its;
  };
  // Sends begin with the next rank, so that not all ranks send to rank 0 first.
  for (int i = 0; i < communicator_->size(); ++i) {
    const int to = (rank_ + i) % communicator_->size();
    const int from = (rank_ + communicator_->size() - i) % communicator_->size();
    add(ncclSend(full + to * part_bytes, bytes, ncclInt8, to, handle, stream), "ncclSend");
    add(ncclRecv(received + from * part_bytes, bytes, ncclInt8, from, handle, stream), "ncclRecv");
  }
  const ncclResult_t ended = ncclGroupEnd();
  communicator_->check(failed != ncclSuccess ? failed : ended, call);
  note(exec, "an all-to-all", part_bytes);
}

void NcclTransport::reduce_scatter(const Exec& exec, const std::byte* full, std::byte* sum,
                                   std::int64_t elements, DType dtype) {
  const ncclDataType_t type = dtype == DType::fp32   ? ncclFloat32
                              : dtype == DType::bf16 ? ncclBfloat16
                                                     : ncclFloat16;
  const std::lock_guard<std::mutex> lock(submission_lock());
  begin(exec);
  communicator_->check(ncclReduceScatter(full, sum, static_cast<std::size_t>(elements), type,
                                         ncclSum, communicator_->handle(), stream_of(exec)),
                       "ncclReduceScatter");
  note(exec, "a reduce-scatter", elements * bytes_of(dtype));
}

void NcclTransport::send(const Exec& exec, const std::byte* data, std::int64_t bytes, int to) {
  if (bytes == 0) return;
  const std::lock_guard<std::mutex> lock(submission_lock());
  begin(exec);
  communicator_->check(ncclSend(data, static_cast<std::size_t>(bytes), ncclInt8, to,
                                communicator_->handle(), stream_of(exec)),
                       "ncclSend");
  note(exec, "a send", bytes, " to rank ", to);
}

void NcclTransport::receive(const Exec& exec, std::byte* data, std::int64_t bytes, int from) {
  if (bytes == 0) return;
  const std::lock_guard<std::mutex> lock(submission_lock());
  begin(exec);
  communicator_->check(ncclRecv(data, static_cast<std::size_t>(bytes), ncclInt8, from,
                                communicator_->handle(), stream_of(exec)),
                       "ncclRecv");
  note(exec, "a receive", bytes, " from rank ", from);
}

// --- messages

int NcclMessages::lane_of(Pair pair) {
  int bit = 0;
  while (((pair.first ^ pair.second) >> bit & 1) == 0) ++bit;
  return 2 * bit + (pair.first >> bit & 1);
}

NcclMessages::NcclMessages(Communicator& group, const std::vector<Pair>& pairs,
                           const std::string& name, double seconds, NcclWatchdog* watch)
    : rank_(group.rank()) {
  for (const auto& [from, to] : pairs)
    require(from != to && std::min(from, to) >= 0 && std::max(from, to) < group.size(),
            "a message from rank ", from, " to ", to, " in a group of ", group.size());
  // It has its own resources: a send behind a waiting receive would wait, too.
  all_ = std::make_unique<NcclCommunicator>(group, name, seconds, NcclCommunicator::Resources::own);
  std::set<int> lanes;
  for (const Pair& pair : pairs) lanes.insert(lane_of(pair));
  for (const int lane : lanes)
    lanes_[lane] = std::make_unique<NcclTransport>(
        std::make_unique<NcclCommunicator>(*all_, 0, rank_, text(name, ", lane ", lane)), rank_,
        watch);
  connect(pairs);
}

/// Sends a byte for each pair, in the same order on all ranks.
void NcclMessages::connect(const std::vector<Pair>& pairs) {
  const device::DeviceBytes byte(1);
  const device::Stream stream;
  const Exec exec(stream.handle());
  for (const auto& [from, to] : pairs) {
    if (from == rank_) send(exec, byte.data(), 1, to);
    if (to == rank_) receive(exec, byte.data(), 1, from);
    if (from == rank_ || to == rank_) device::wait_for(stream.handle());
  }
}

void NcclMessages::send(const Exec& exec, const std::byte* data, std::int64_t bytes, int to) {
  lanes_.at(lane_of({rank_, to}))->send(exec, data, bytes, to);
}

void NcclMessages::receive(const Exec& exec, std::byte* data, std::int64_t bytes, int from) {
  lanes_.at(lane_of({from, rank_}))->receive(exec, data, bytes, from);
}

bool nccl_shares_devices() {
  constexpr int first = 23000;
  int version = 0;
  const char* const set = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return set != nullptr && std::strcmp(set, "1") == 0 && ncclGetVersion(&version) == ncclSuccess &&
         version >= first;
}

std::string nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return "unknown";
  return text(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace ostrakon::comm

#endif
