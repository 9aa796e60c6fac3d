/* SPDX-License-Identifier: Apache-2.0 */
/* A device made of host threads, for tests: a stream is a thread, and device memory is memory that
   host code may not access. This header declares the functions of CUDA's runtime that Ostrakon
   calls, with their types and values, so that its object code runs as on a GPU; and functions of
   the fake device: a kernel is host code, which fake_launch() submits to a stream.

   The environment selects faults:
     FAKE_DEVICE_SHAKE=SEED,MICROSECONDS  delays each piece of work by up to so much
     FAKE_DEVICE_COPY=SECONDS_PER_BYTE    duration of copies between host and device
     FAKE_DEVICE_FAIL=FUNCTION,N[,RANK]   fails a function's N-th call (from 1), on one rank
                                             (functions of this file: all later calls, too)
     FAKE_DEVICE_DROP_WAIT=N              leaves out the N-th wait of a stream for an event
     FAKE_DEVICE_BYTES=N                  memory of the device; default 4 GiB
     FAKE_DEVICE_COUNT=N                  devices of this host; default 8 */
#ifndef OSTRAKON_FAKE_DEVICE_RUNTIME_H
#define OSTRAKON_FAKE_DEVICE_RUNTIME_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNotReady = 600,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorUnknown = 999
} cudaError_t;
typedef enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3
} cudaMemcpyKind;
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
typedef struct CUgraph_st* cudaGraph_t;
typedef struct CUgraphExec_st* cudaGraphExec_t;
typedef enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1
} cudaStreamCaptureMode;

#define cudaStreamNonBlocking 0x01
#define cudaEventBlockingSync 0x01
#define cudaEventDisableTiming 0x02

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError(void);

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetPCIBusId(char* name, int bytes, int device);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);

cudaError_t cudaMalloc(void** data, size_t bytes);
cudaError_t cudaFree(void* data);
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned int flags);
cudaError_t cudaFreeHost(void* data);

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned int flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags);

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t stream);

/* While a stream captures, its work is kept, not done: kernels, copies and clearing; whatever waits
   or uses events fails, as allocating does on the thread that captures. */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* graph, cudaGraph_t captured,
                                          unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);

/* ---- functions of the fake device */

/* Largest size of a kernel's closure. */
#define FAKE_CLOSURE_BYTES 1984

/* A kernel as a device loads it: its code, a number that distinguishes the kernels that a library
   chooses for the same code (the shape of a matrix product; else 0), and its name in lists. */
struct fake_kernel {
  void (*run)(void* at);
  void (*destroy)(void* at);
  unsigned long variant;
  const char* name;
};
/* Submits a kernel to `stream`: `make` moves `from` to a place of `bytes` bytes; kernel->run runs
   it there, with access to device memory, as often as it is submitted, and kernel->destroy destroys
   it.

   A kernel is loaded at its first launch, as CUDA loads modules and cuBLAS its kernels: the launch
   waits for all work of the device, and until then no thread can submit anything. So a rank whose
   device waits for another rank's message may deadlock. */
void fake_launch(cudaStream_t stream, size_t bytes, void (*make)(void* at, void* from), void* from,
                 const struct fake_kernel* kernel);
/* Sets how long loading a kernel takes, before it waits; 0 by default. */
void fake_load_seconds(double seconds);
/* Returns the number of loaded kernels; fake_forget_kernels() unloads all. */
long fake_loaded_kernels(void);
void fake_forget_kernels(void);
/* Calls take(name, variant, context) for each loaded kernel, in the order of loading. */
void fake_list_kernels(void (*take)(const char* name, unsigned long variant, void* context),
                       void* context);
/* Whether the calling thread runs a kernel. */
int fake_in_kernel(void);
/* Submits work that translates its addresses itself, and does not delay kernels. */
void fake_submit(cudaStream_t stream, size_t bytes, void (*make)(void* at, void* from), void* from,
                 void (*run)(void* at));
/* Returns the address by which host code of the fake device accesses a byte of device memory;
   other addresses are returned unchanged. */
void* fake_address(const void* data);
/* Reduces the free memory by `bytes`. */
void fake_take_memory(size_t bytes);
/* Returns the number of kernels submitted so far, and of pieces of work of graphs. */
long fake_kernels(void);
/* Returns the number of calls of a function so far. */
long fake_calls(const char* function);
/* Whether this call must fail; called at the beginning of each function that can fail on request.
 */
int fake_fails(const char* function);
/* Whether a call has failed on request: submitted work no longer runs. */
int fake_lost(void);
/* Set the same as the environment variables. */
void fake_shake(unsigned long seed, double microseconds);
void fake_copy_seconds(double per_byte);
/* Delays the next work, other than an event, that the calling thread submits to any stream. */
void fake_delay_next(double seconds);
/* From now on a kernel that accesses invalid memory is abandoned without an error. Returns the
   number of such kernels so far. */
long fake_give_up_kernels(void);
/* Leaves out the n-th wait of a stream for an event from now on; 0: none. */
void fake_drop_wait(long n);

#ifdef __cplusplus
}
#endif

#endif
