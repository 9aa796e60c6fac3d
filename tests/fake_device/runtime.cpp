// SPDX-License-Identifier: Apache-2.0
#include <fake_device/runtime.h>

#include <cstdio>
#include <new>
#include <set>
#include <vector>

#include "faults.hpp"
#include "memory.hpp"
#include "streams.hpp"

using namespace fake;

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): returns from the function
#define MAY_FAIL(function) \
  if (is_lost || (fake_fails(function) != 0 && lose())) return cudaErrorUnknown

namespace {

/// Every submission holds it briefly; loading a kernel holds it for long.
std::mutex& driver_lock() { return only<std::mutex>(); }
void pass_driver_lock() { const std::lock_guard<std::mutex> lock(driver_lock()); }

/// Whether a stream captures what the calling thread submits.
thread_local bool thread_captures = false;

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
Loaded& loaded() { return only<Loaded>(); }

CUstream_st& stream_of(cudaStream_t stream) {
  static CUstream_st* const standard = new CUstream_st(0);
  return stream != nullptr ? *stream : *standard;
}

/// All streams except the default one.
struct Streams {
  std::mutex mutex;
  std::set<cudaStream_t> all;
};
Streams& streams() { return only<Streams>(); }

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
template <class Do>
void submit(cudaStream_t stream, Do work, bool is_event = false) {
  static_assert(sizeof(Do) <= FAKE_CLOSURE_BYTES, "does not fit");
  pass_driver_lock();
  stream_of(stream).submit(
      false,
      {[](void* at) { (*static_cast<Do*>(at))(); }, [](void* at) { static_cast<Do*>(at)->~Do(); }},
      [&](void* at) { new (at) Do(std::move(work)); }, is_event);
}

/// Returns true.
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

}  // namespace

extern "C" {

int fake_fails(const char* function) {
  Calls& all = calls();
  const std::lock_guard<std::mutex> lock(all.mutex);
  auto found = all.count.find(function);
  if (found == all.count.end()) found = all.count.emplace(function, 0).first;
  ++found->second;
  return faults().failing_call == found->second && faults().failing == function ? 1 : 0;
}

long fake_calls(const char* function) {
  Calls& all = calls();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.count.find(function);
  return found == all.count.end() ? 0 : found->second;
}

void fake_shake(unsigned long seed, double microseconds) {
  faults().seed = seed;
  faults().microseconds = microseconds;
}
void fake_copy_seconds(double per_byte) { faults().copy_seconds = per_byte; }
void fake_load_seconds(double seconds) { faults().load_seconds = seconds; }
void fake_drop_wait(long n) { faults().drop_wait = n; }

int fake_lost(void) { return is_lost ? 1 : 0; }
void* fake_address(const void* data) {
  char* const inside = Memory::one().inside(data);
  return inside != nullptr ? inside : const_cast<void*>(data);  // NOLINT
}

void fake_launch(cudaStream_t stream, size_t bytes, void (*make)(void*, void*), void* from,
                 const fake_kernel* kernel) {
  fit(bytes);
  if (!stream_of(stream).captures) ++kernels_given;
  if (loaded().add(*kernel)) {
    sleep_for(faults().load_seconds);
    const std::lock_guard<std::mutex> lock(driver_lock());
    wait_for_all();
  } else {
    pass_driver_lock();
  }
  stream_of(stream).submit(true, {kernel->run, kernel->destroy}, [&](void* at) { make(at, from); });
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
  stream_of(stream).submit(false, {run, nullptr}, [&](void* at) { make(at, from); });
}

const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaSuccess ? "no error"
         : error == cudaErrorStreamCaptureUnsupported
             ? "operation not permitted when stream is capturing"
         : error == cudaErrorInvalidValue     ? "invalid argument"
         : error == cudaErrorMemoryAllocation ? "out of memory"
         : error == cudaErrorNotReady         ? "device not ready"
                                              : "unknown error";
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

cudaError_t cudaGetLastError(void) { return cudaSuccess; }  // none is kept

cudaError_t cudaMalloc(void** data, size_t bytes) {
  MAY_FAIL("cudaMalloc");
  if (thread_captures) return cudaErrorStreamCaptureUnsupported;
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
  if (stream_of(stream).captures) return cudaErrorStreamCaptureUnsupported;
  stream_of(stream).synchronize();
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags) {
  MAY_FAIL("cudaEventCreateWithFlags");
  *event = new CUevent_st{std::make_shared<Event>((flags & cudaEventDisableTiming) == 0)};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  MAY_FAIL("cudaEventDestroy");
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  MAY_FAIL("cudaEventRecord");
  if (stream_of(stream).captures) return cudaErrorStreamCaptureUnsupported;
  const long count = event->state->record();
  submit(
      stream, [state = event->state, count] { state->reach(count); }, true);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int) {
  MAY_FAIL("cudaStreamWaitEvent");
  if (stream_of(stream).captures) return cudaErrorStreamCaptureUnsupported;
  if (faults().drop_wait > 0 && --faults().drop_wait == 0) return cudaSuccess;
  const long count = event->state->recorded();
  submit(
      stream, [state = event->state, count] { state->wait(count); }, true);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  MAY_FAIL("cudaEventSynchronize");
  event->state->wait(event->state->recorded());
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  MAY_FAIL("cudaEventQuery");
  if (is_elsewhere()) return cudaErrorInvalidValue;
  return event->state->is_reached() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  MAY_FAIL("cudaEventElapsedTime");
  std::chrono::steady_clock::time_point when[2];
  for (int i = 0; i < 2; ++i) {
    const cudaError_t error = (i == 0 ? begin : end)->state->time(when[i]);
    if (error != cudaSuccess) return error;
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

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  MAY_FAIL("cudaStreamBeginCapture");
  if (stream == nullptr || stream->captures) return cudaErrorStreamCaptureUnsupported;
  stream->captures = thread_captures = true;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  MAY_FAIL("cudaStreamEndCapture");
  if (stream == nullptr || !stream->captures) return cudaErrorInvalidValue;
  stream->captures = thread_captures = false;
  *graph = new CUgraph_st{
      std::make_shared<const CapturedWork>(std::exchange(stream->capture, CapturedWork()))};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* graph, cudaGraph_t captured,
                                          unsigned long long) {
  MAY_FAIL("cudaGraphInstantiateWithFlags");
  *graph = new CUgraphExec_st{captured->work};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  MAY_FAIL("cudaGraphLaunch");
  pass_driver_lock();
  for (std::size_t i = 0; i < graph->work->size(); ++i) {
    const bool is_kernel = (*graph->work)[i].is_kernel();
    ++kernels_given;
    const auto one = [work = graph->work, i] { (*work)[i].run(); };
    using One = decltype(one);
    stream_of(stream).submit(is_kernel,
                             {[](void* at) { (*static_cast<One*>(at))(); },
                              [](void* at) { static_cast<One*>(at)->~One(); }},
                             [&](void* at) { new (at) One(one); });
  }
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  MAY_FAIL("cudaGraphDestroy");
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  MAY_FAIL("cudaGraphExecDestroy");
  delete graph;
  return cudaSuccess;
}

}  // extern "C"
