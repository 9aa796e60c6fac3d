// SPDX-License-Identifier: Apache-2.0
#include <fake_device/runtime.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csetjmp>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// ---- faults on request

namespace {

struct Faults {
  std::atomic<std::uint64_t> seed{0};
  std::atomic<double> microseconds{0.0};
  std::atomic<double> copy_seconds{0.0};
  std::atomic<double> load_seconds{0.0};
  std::atomic<long> drop_wait{0};
  std::string failing;
  long failing_call = 0;

  Faults() {
    if (const char* shake = std::getenv("FAKE_DEVICE_SHAKE")) {
      char* end = nullptr;
      seed = std::strtoul(shake, &end, 10);
      microseconds = *end == ',' ? std::strtod(end + 1, nullptr) : 0.0;
    }
    if (const char* copy = std::getenv("FAKE_DEVICE_COPY"))
      copy_seconds = std::strtod(copy, nullptr);
    if (const char* drop = std::getenv("FAKE_DEVICE_DROP_WAIT"))
      drop_wait = std::strtol(drop, nullptr, 10);
    const char* const fail = std::getenv("FAKE_DEVICE_FAIL");
    if (fail == nullptr) return;
    const std::string all = fail;
    const std::size_t comma = all.find(',');
    const std::size_t second = all.find(',', comma + 1);
    const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
    if (second != std::string::npos && rank != nullptr && all.substr(second + 1) != rank) return;
    failing = all.substr(0, comma);
    failing_call =
        comma == std::string::npos ? 1 : std::strtol(all.c_str() + comma + 1, nullptr, 10);
  }
};

Faults& faults() {
  static Faults* const one = new Faults;
  return *one;
}

struct Calls {
  std::mutex mutex;
  std::map<std::string, long, std::less<>> count;
};
Calls& calls() {
  static Calls* const one = new Calls;
  return *one;
}

void sleep_for(double seconds) {
  if (seconds > 0.0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace

extern "C" int fake_fails(const char* function) {
  Calls& all = calls();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto found = all.count.find(function);
  if (found == all.count.end()) found = all.count.emplace(function, 0).first;
  ++found->second;
  return faults().failing_call == found->second && faults().failing == function ? 1 : 0;
}

extern "C" long fake_calls(const char* function) {
  Calls& all = calls();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.count.find(function);
  return found == all.count.end() ? 0 : found->second;
}

extern "C" void fake_shake(unsigned long seed, double microseconds) {
  faults().seed = seed;
  faults().microseconds = microseconds;
}
extern "C" void fake_copy_seconds(double per_byte) { faults().copy_seconds = per_byte; }
extern "C" void fake_load_seconds(double seconds) { faults().load_seconds = seconds; }
extern "C" void fake_drop_wait(long n) { faults().drop_wait = n; }

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): returns from the function
#define MAY_FAIL(function) \
  if (is_lost || (fake_fails(function) != 0 && lose())) return cudaErrorUnknown

namespace {

/// The device is in the state after a sticky CUDA error: each later call fails, and nothing runs.
std::atomic<bool> is_lost{false};
bool lose();

}  // namespace

extern "C" int fake_lost(void) { return is_lost ? 1 : 0; }

// ---- device memory

namespace {

/// Device memory, mapped twice. The mapping that programs see is accessible only while a kernel
/// runs, or some time after it; the mapping for this file always is. If the processor has memory
/// protection keys, stream threads can always access the first mapping, other threads never.
class Memory {
 public:
  static Memory& one() {
    static Memory* const memory = new Memory;
    return *memory;
  }

  cudaError_t allocate(void** data, std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::size_t whole = rounded(bytes);
    if (used_ + whole > total_) return cudaErrorMemoryAllocation;
    const int file = memfd_create("fake device", 0);
    if (file < 0 || ftruncate(file, static_cast<off_t>(whole)) != 0)
      return cudaErrorMemoryAllocation;
    constexpr int all = PROT_READ | PROT_WRITE;
    void* const outside = mmap(nullptr, whole, has_key() ? all : PROT_NONE, MAP_SHARED, file, 0);
    void* const inside = mmap(nullptr, whole, all, MAP_SHARED, file, 0);
    close(file);
    if (outside == MAP_FAILED || inside == MAP_FAILED) return cudaErrorMemoryAllocation;
    if (has_key()) pkey_mprotect(outside, whole, all, key_);
    if (!has_key() && is_open_) mprotect(outside, whole, all);
    // Unwritten memory is detectable: its bytes are a NaN in every format.
    std::memset(inside, 0xff, whole);
    pieces_[reinterpret_cast<std::uintptr_t>(outside)] = {whole, static_cast<char*>(inside)};
    used_ += whole;
    *data = outside;
    return cudaSuccess;
  }

  cudaError_t free(void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = pieces_.find(reinterpret_cast<std::uintptr_t>(data));
    if (found == pieces_.end()) return data == nullptr ? cudaSuccess : cudaErrorInvalidValue;
    munmap(data, found->second.bytes);
    munmap(found->second.inside, found->second.bytes);
    used_ -= found->second.bytes;
    pieces_.erase(found);
    return cudaSuccess;
  }

  void take(std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    used_ += bytes;
  }

  /// Returns null for other addresses than device memory.
  char* inside(const void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = reinterpret_cast<std::uintptr_t>(data);
    auto next = pieces_.upper_bound(at);
    if (next == pieces_.begin()) return nullptr;
    --next;
    return at - next->first < next->second.bytes ? next->second.inside + (at - next->first)
                                                 : nullptr;
  }

  /// Makes memory accessible when a kernel begins; close_again() ends that.
  void open() {
    if (has_key()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    ++kernels_;
    if (!is_open_) protect(true);
  }
  void close_again() {
    if (has_key()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    // Protecting takes longer than most kernels here, so it is done always at first, then rarely.
    constexpr long first = 500, then_every = 50;
    if (--kernels_ == 0 && (++ended_ <= first || ended_ % then_every == 0)) protect(false);
  }
  /// Marks the calling thread as a stream's.
  void allow_thread() const {
    if (has_key()) pkey_set(key_, 0);
  }

  std::size_t used() const { return used_; }
  std::size_t total() const { return total_; }

 private:
  struct Piece {
    std::size_t bytes;
    char* inside;
  };

  Memory() {
    const char* const wanted = std::getenv("FAKE_DEVICE_BYTES");
    total_ = wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : std::size_t{4} << 30;
    key_ = pkey_alloc(0, PKEY_DISABLE_ACCESS);
  }
  bool has_key() const { return key_ >= 0; }
  static std::size_t rounded(std::size_t bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return std::max<std::size_t>(1, (bytes + page - 1) / page) * page;
  }
  void protect(bool is_open) {
    const int access = is_open ? PROT_READ | PROT_WRITE : PROT_NONE;
    for (const auto& [address, piece] : pieces_)
      mprotect(reinterpret_cast<void*>(address), piece.bytes, access);  // NOLINT
    is_open_ = is_open;
  }

  std::mutex mutex_;
  std::map<std::uintptr_t, Piece> pieces_;
  std::size_t used_ = 0, total_ = 0;
  int kernels_ = 0;  // number of running kernels
  long ended_ = 0;
  bool is_open_ = false;
  int key_ = -1;
};

}  // namespace

extern "C" void* fake_address(const void* data) {
  char* const inside = Memory::one().inside(data);
  return inside != nullptr ? inside : const_cast<void*>(data);  // NOLINT
}

// ---- streams and events

struct CUevent_st {
  std::mutex mutex;
  std::condition_variable reached_more;
  long recorded = 0, reached = 0;
  bool has_time = false;
  std::chrono::steady_clock::time_point when;  // time when it was reached
};

namespace {

void reach(const std::shared_ptr<CUevent_st>& event, long count) {
  const std::lock_guard<std::mutex> lock(event->mutex);
  event->reached = std::max(event->reached, count);
  event->when = std::chrono::steady_clock::now();
  event->reached_more.notify_all();
}

void wait(const std::shared_ptr<CUevent_st>& event, long count) {
  std::unique_lock<std::mutex> lock(event->mutex);
  event->reached_more.wait(lock, [&] { return event->reached >= count; });
}

}  // namespace

/// One piece of work in a stream. Allocates nothing.
struct FakeSlot {
  void (*run)(void*) = nullptr;
  bool is_kernel = false;
  bool is_event = false;
  double delay = 0.0;  // in seconds
  alignas(max_align_t) unsigned char closure[FAKE_CLOSURE_BYTES];
};

namespace {

std::mutex& kernel_mutex() {
  static std::mutex* const one = new std::mutex;  // Kokkos' host backends run one kernel at a time
  return *one;
}

thread_local bool in_kernel = false;
thread_local double next_delay = 0.0;
std::atomic<long> kernels_given{0};

// ---- kernels that access invalid memory

thread_local sigjmp_buf* before_kernel = nullptr;
std::atomic<bool> gives_up{false};
std::atomic<long> given_up{0};

extern "C" void give_up_kernel(int signal) {
  if (before_kernel == nullptr) {
    std::signal(signal, SIG_DFL);
    return;  // the access fails again, without the handler
  }
  siglongjmp(*before_kernel, 1);
}

void run_kernel(FakeSlot& slot) {
  in_kernel = true;
  sigjmp_buf here;
  if (!gives_up) {
    slot.run(slot.closure);
  } else if (sigsetjmp(here, 1) == 0) {
    before_kernel = &here;
    slot.run(slot.closure);
  } else {
    ++given_up;
  }
  before_kernel = nullptr;
  in_kernel = false;
}

}  // namespace

struct CUstream_st {
  explicit CUstream_st(unsigned number) : random(number), thread([this] { serve(); }) {}
  ~CUstream_st() {
    synchronize();
    {
      const std::lock_guard<std::mutex> lock(mutex);
      ends = true;
    }
    changed.notify_all();
    thread.join();
  }

  template <class Make>
  void submit(bool is_kernel, void (*run)(void*), const Make& make, bool is_event = false) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [this] { return submitted - done < slots; });
    FakeSlot& slot = ring[submitted % slots];
    slot.run = run;
    slot.is_kernel = is_kernel;
    slot.is_event = is_event;
    slot.delay = is_event ? 0.0 : std::exchange(next_delay, 0.0);
    make(static_cast<void*>(slot.closure));
    ++submitted;
    changed.notify_all();
  }

  void synchronize() {
    std::unique_lock<std::mutex> lock(mutex);
    const std::uint64_t all = submitted;
    changed.wait(lock, [&] { return done >= all; });
  }

  static constexpr std::uint64_t slots = 1024;
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_ptr<FakeSlot[]> ring{new FakeSlot[slots]};
  std::uint64_t submitted = 0, done = 0;
  bool ends = false;
  std::mt19937 random;
  std::uint64_t seeded_with = 0;
  std::thread thread;  // last, as it uses all other members

 private:
  void serve() {
    Memory::one().allow_thread();
    std::unique_lock<std::mutex> lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return done < submitted || ends; });
      if (done == submitted) return;
      FakeSlot& slot = ring[done % slots];
      lock.unlock();
      shake();
      sleep_for(slot.delay);
      if (is_lost && !slot.is_event) {
      } else if (slot.is_kernel) {
        const std::lock_guard<std::mutex> one_at_a_time(kernel_mutex());
        Memory::one().open();
        run_kernel(slot);
        Memory::one().close_again();
      } else {
        slot.run(slot.closure);
      }
      lock.lock();
      ++done;
      changed.notify_all();
    }
  }

  void shake() {
    const double longest = faults().microseconds;
    if (longest <= 0.0) return;
    if (seeded_with != faults().seed) {
      seeded_with = faults().seed;
      random.seed(static_cast<unsigned>(seeded_with * 1000003U + number_of(this)));
    }
    sleep_for(1e-6 * longest * std::uniform_real_distribution<double>(0.0, 1.0)(random));
  }

  static unsigned number_of(const CUstream_st* stream) {
    return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(stream) >> 6);
  }
};

namespace {

/// Every submission holds it briefly; loading a kernel holds it for long.
std::mutex& driver_lock() {
  static std::mutex* const one = new std::mutex;
  return *one;
}
void pass_driver_lock() { const std::lock_guard<std::mutex> lock(driver_lock()); }

struct Loaded {
  std::mutex mutex;
  std::set<std::pair<void (*)(void*), unsigned long>> kernels;
  std::vector<std::pair<const char*, unsigned long>> names;

  /// Records a kernel; returns whether it is new.
  bool add(const fake_kernel& kernel) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!kernels.emplace(kernel.run, kernel.variant).second) return false;
    names.emplace_back(kernel.name, kernel.variant);
    return true;
  }
};
Loaded& loaded() {
  static Loaded* const one = new Loaded;
  return *one;
}

CUstream_st& stream_of(cudaStream_t stream) {
  static CUstream_st* const standard = new CUstream_st(0);
  return stream != nullptr ? *stream : *standard;
}

/// All streams except the default one.
struct Streams {
  std::mutex mutex;
  std::set<cudaStream_t> all;
};
Streams& streams() {
  static Streams* const one = new Streams;
  return *one;
}

/// Waits for all streams, as CUDA does before it frees memory.
void wait_for_all() {
  std::set<cudaStream_t> all;
  {
    const std::lock_guard<std::mutex> lock(streams().mutex);
    all = streams().all;
  }
  for (const cudaStream_t stream : all) stream->synchronize();
  stream_of(nullptr).synchronize();
}

/// The stream's thread calls `work`.
template <class Work>
void submit(cudaStream_t stream, Work work, bool is_event = false) {
  static_assert(sizeof(Work) <= FAKE_CLOSURE_BYTES, "does not fit");
  pass_driver_lock();
  stream_of(stream).submit(
      false,
      [](void* at) {
        auto* const it = static_cast<Work*>(at);
        (*it)();
        it->~Work();
      },
      [&](void* at) { new (at) Work(std::move(work)); }, is_event);
}

bool lose() {
  is_lost = true;
  wait_for_all();
  return true;
}

void fit(std::size_t bytes) {
  if (bytes <= FAKE_CLOSURE_BYTES) return;
  std::fprintf(stderr, "fake device: a closure of %zu bytes\n", bytes);
  std::abort();
}

struct Event {
  std::shared_ptr<CUevent_st> state = std::make_shared<CUevent_st>();
};

std::shared_ptr<CUevent_st>& state_of(cudaEvent_t event) {
  return reinterpret_cast<Event*>(event)->state;
}

}  // namespace

extern "C" {

void fake_launch(cudaStream_t stream, size_t bytes, void (*make)(void*, void*), void* from,
                 const fake_kernel* kernel) {
  fit(bytes);
  ++kernels_given;
  if (loaded().add(*kernel)) {
    sleep_for(faults().load_seconds);
    const std::lock_guard<std::mutex> lock(driver_lock());
    wait_for_all();
  } else {
    pass_driver_lock();
  }
  stream_of(stream).submit(true, kernel->run, [&](void* at) { make(at, from); });
}
long fake_loaded_kernels(void) {
  const std::lock_guard<std::mutex> lock(loaded().mutex);
  return static_cast<long>(loaded().kernels.size());
}
void fake_forget_kernels(void) {
  const std::lock_guard<std::mutex> lock(loaded().mutex);
  loaded().kernels.clear();
  loaded().names.clear();
}
void fake_list_kernels(void (*take)(const char*, unsigned long, void*), void* context) {
  const std::lock_guard<std::mutex> lock(loaded().mutex);
  for (const auto& [name, variant] : loaded().names) take(name, variant, context);
}
long fake_give_up_kernels(void) {
  gives_up = true;
  std::signal(SIGSEGV, give_up_kernel);
  std::signal(SIGBUS, give_up_kernel);
  return given_up;
}
void fake_delay_next(double seconds) { next_delay = seconds; }
void fake_take_memory(size_t bytes) { Memory::one().take(bytes); }
long fake_kernels(void) { return kernels_given; }
int fake_in_kernel(void) { return in_kernel ? 1 : 0; }
void fake_submit(cudaStream_t stream, size_t bytes, void (*make)(void*, void*), void* from,
                 void (*run)(void*)) {
  fit(bytes);
  pass_driver_lock();
  stream_of(stream).submit(false, run, [&](void* at) { make(at, from); });
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorNotReady:
      return "device not ready";
    default:
      return "unknown error";
  }
}

static int devices_of_host() {
  const char* const wanted = std::getenv("FAKE_DEVICE_COUNT");
  return wanted != nullptr ? std::atoi(wanted) : 8;
}
cudaError_t cudaGetDeviceCount(int* count) {
  MAY_FAIL("cudaGetDeviceCount");
  *count = devices_of_host();
  return cudaSuccess;
}
/// The program's device: one per rank of a host, chosen as Kokkos does.
static std::atomic<int> device_of_program = [] {
  const char* const rank = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK");
  return rank != nullptr ? std::atoi(rank) % devices_of_host() : 0;
}();
static const std::thread::id first_thread = std::this_thread::get_id();
/// New threads begin with device 0, except the first thread.
static thread_local int device_in_use =
    std::this_thread::get_id() == first_thread ? device_of_program.load() : 0;
/// Whether this thread is about to create something on a device that the program has not chosen.
static bool is_elsewhere() { return device_in_use != device_of_program; }
cudaError_t cudaGetDevice(int* device) {
  MAY_FAIL("cudaGetDevice");
  *device = device_in_use;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  MAY_FAIL("cudaSetDevice");
  device_in_use = device;
  if (std::this_thread::get_id() == first_thread) device_of_program = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* name, int bytes, int device) {
  MAY_FAIL("cudaDeviceGetPCIBusId");
  std::snprintf(name, static_cast<size_t>(bytes), "fake:%d", device);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  MAY_FAIL("cudaMemGetInfo");
  *total = Memory::one().total();
  *free = *total - Memory::one().used();
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  MAY_FAIL("cudaMalloc");
  if (is_elsewhere()) return cudaErrorInvalidValue;
  return Memory::one().allocate(data, bytes);
}
cudaError_t cudaFree(void* data) {
  MAY_FAIL("cudaFree");
  wait_for_all();
  return Memory::one().free(data);
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned int) {
  MAY_FAIL("cudaHostAlloc");
  if (is_elsewhere()) return cudaErrorInvalidValue;
  *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return *data == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
cudaError_t cudaFreeHost(void* data) {
  MAY_FAIL("cudaFreeHost");
  wait_for_all();
  std::free(data);  // NOLINT
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  MAY_FAIL("cudaDeviceGetStreamPriorityRange");
  *lowest = 0;
  *highest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int, int) {
  MAY_FAIL("cudaStreamCreateWithPriority");
  if (is_elsewhere()) return cudaErrorInvalidValue;
  static std::atomic<unsigned> number{0};
  *stream = new CUstream_st(++number);
  const std::lock_guard<std::mutex> lock(streams().mutex);
  streams().all.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  MAY_FAIL("cudaStreamDestroy");
  {
    const std::lock_guard<std::mutex> lock(streams().mutex);
    streams().all.erase(stream);
  }
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  MAY_FAIL("cudaStreamSynchronize");
  stream_of(stream).synchronize();
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  MAY_FAIL("cudaEventCreateWithFlags");
  auto* const made = new Event;
  made->state->has_time = (flags & cudaEventDisableTiming) == 0;
  *event = reinterpret_cast<cudaEvent_t>(made);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  MAY_FAIL("cudaEventDestroy");
  delete reinterpret_cast<Event*>(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  MAY_FAIL("cudaEventRecord");
  const std::shared_ptr<CUevent_st> state = state_of(event);
  long count = 0;
  {
    const std::lock_guard<std::mutex> lock(state->mutex);
    count = ++state->recorded;
  }
  submit(
      stream, [state, count] { reach(state, count); }, true);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  MAY_FAIL("cudaStreamWaitEvent");
  if (faults().drop_wait > 0 && --faults().drop_wait == 0) return cudaSuccess;
  const std::shared_ptr<CUevent_st> state = state_of(event);
  long count = 0;
  {
    const std::lock_guard<std::mutex> lock(state->mutex);
    count = state->recorded;
  }
  submit(
      stream, [state, count] { wait(state, count); }, true);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  MAY_FAIL("cudaEventSynchronize");
  const std::shared_ptr<CUevent_st> state = state_of(event);
  long count = 0;
  {
    const std::lock_guard<std::mutex> lock(state->mutex);
    count = state->recorded;
  }
  wait(state, count);
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  MAY_FAIL("cudaEventQuery");
  if (is_elsewhere()) return cudaErrorInvalidValue;
  const std::shared_ptr<CUevent_st>& state = state_of(event);
  const std::lock_guard<std::mutex> lock(state->mutex);
  return state->reached >= state->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  MAY_FAIL("cudaEventElapsedTime");
  std::chrono::steady_clock::time_point when[2];
  for (int i = 0; i < 2; ++i) {
    const std::shared_ptr<CUevent_st>& state = state_of(i == 0 ? begin : end);
    const std::lock_guard<std::mutex> lock(state->mutex);
    if (!state->has_time || state->recorded == 0) return cudaErrorInvalidValue;
    if (state->reached < state->recorded) return cudaErrorNotReady;
    when[i] = state->when;
  }
  *milliseconds = std::chrono::duration<float, std::milli>(when[1] - when[0]).count();
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  MAY_FAIL("cudaMemcpyAsync");
  if (bytes == 0) return cudaSuccess;
  char* const target = Memory::one().inside(to);
  const char* const source = Memory::one().inside(from);
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if ((target != nullptr) != to_device || (source != nullptr) != from_device)
    return cudaErrorInvalidValue;
  const double seconds = to_device && from_device ? 0.0 : static_cast<double>(bytes);
  submit(stream, [=, into = to_device ? target : static_cast<char*>(to),
                  out_of = from_device ? source : static_cast<const char*>(from)] {
    std::memmove(into, out_of, bytes);
    sleep_for(seconds * faults().copy_seconds);
  });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream) {
  MAY_FAIL("cudaMemsetAsync");
  if (bytes == 0) return cudaSuccess;
  char* const target = Memory::one().inside(data);
  if (target == nullptr) return cudaErrorInvalidValue;
  submit(stream, [=] { std::memset(target, value, bytes); });
  return cudaSuccess;
}

}  // extern "C"
