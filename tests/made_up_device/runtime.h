/* SPDX-License-Identifier: Apache-2.0 */
/* A device made of host threads, for tests: a stream is a thread, device memory is memory that host
   code may not touch. The functions of CUDA's runtime that Ostrakon calls, with their types and
   values, so that its object code runs as on a GPU; and what no runtime has: a kernel is host code,
   which made_up_launch() gives to a stream.

   The environment says what goes wrong:
     MADE_UP_DEVICE_SHAKE=SEED,MICROSECONDS     each piece of work begins up to so much later
     MADE_UP_DEVICE_COPY=SECONDS_PER_BYTE       copies between host and device take so long
     MADE_UP_DEVICE_FAIL=FUNCTION,N[,RANK]      the N-th call of a function fails (from 1), on one
   rank; of this file, also all later calls MADE_UP_DEVICE_DROP_WAIT=N                 the N-th wait
   of a stream for an event is left out MADE_UP_DEVICE_BYTES=N                     memory of the
   device; 4 GiB MADE_UP_DEVICE_COUNT=N                     devices of this host; 8 */
#ifndef OSTRAKON_MADE_UP_DEVICE_RUNTIME_H
#define OSTRAKON_MADE_UP_DEVICE_RUNTIME_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNotReady = 600,
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

#define cudaStreamNonBlocking 0x01
#define cudaEventBlockingSync 0x01
#define cudaEventDisableTiming 0x02

const char* cudaGetErrorString(cudaError_t error);

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

/* ---- what no runtime has */

/* The largest closure of a kernel. */
#define MADE_UP_CLOSURE_BYTES 1984

/* A kernel, as a device loads it: the code, a number that tells apart what one piece of code makes
   a library choose (the shape of a matrix product; else 0), and how it is called in lists. */
struct made_up_kernel {
  void (*run)(void* at);
  unsigned long variant;
  const char* name;
};
/* Gives `stream` a kernel: `make` moves `from` to the place that it gets, of `bytes` bytes;
   kernel->run runs it there, with access to device memory, and destroys it.

   A kernel is loaded when it is first launched, as CUDA does with its modules and cuBLAS with its
   own: the launch waits for all that runs on the device, and until then no thread can submit
   anything. A rank whose device waits for another rank's message may so wait for itself. */
void made_up_launch(cudaStream_t stream, size_t bytes, void (*make)(void* at, void* from),
                    void* from, const struct made_up_kernel* kernel);
/* To load a kernel takes so long, before it waits; 0 at first. */
void made_up_load_seconds(double seconds);
/* How many kernels have been loaded, and made_up_forget_kernels(): none are from now on. */
long made_up_loaded_kernels(void);
void made_up_forget_kernels(void);
/* Calls take(kernel's name, its variant, context) for each that is loaded, in the order in which
   they were. */
void made_up_list_kernels(void (*take)(const char* name, unsigned long variant, void* context),
                          void* context);
/* Whether the calling thread runs a kernel. */
int made_up_in_kernel(void);
/* The same for work that takes care of its addresses itself, and does not keep kernels waiting. */
void made_up_submit(cudaStream_t stream, size_t bytes, void (*make)(void* at, void* from),
                    void* from, void (*run)(void* at));
/* Where host code of the made-up device finds a byte of device memory; other addresses as they are.
 */
void* made_up_address(const void* data);
/* As much less memory is free from now on. */
void made_up_take_memory(size_t bytes);
/* Kernels that streams were given so far. */
long made_up_kernels(void);
/* Calls of a function so far; 0 for one that is never called. */
long made_up_calls(const char* function);
/* To be called at the start of each function that may be asked to fail: whether this call does. */
int made_up_fails(const char* function);
/* Whether a call has failed so: nothing that is submitted runs any more. */
int made_up_lost(void);
/* Sets what the environment else does, from now on. */
void made_up_shake(unsigned long seed, double microseconds);
void made_up_copy_seconds(double per_byte);
/* What the calling thread next gives to any stream, events apart, begins that much later. */
void made_up_delay_next(double seconds);
/* From now on a kernel that touches memory which is not there is given up, and nothing else
   happens. Returns the number of such kernels so far. */
long made_up_give_up_kernels(void);
/* The n-th wait of a stream for an event from now on is left out; 0: none. */
void made_up_drop_wait(long n);

#ifdef __cplusplus
}
#endif

#endif
