# SPDX-License-Identifier: Apache-2.0
# cmake -DDEVICE=<ostrakon-train on the fake device> -DRUN=<mpiexec -n> -DFOLDER=<scratch>
#       -P failing_calls.cmake
# Each function of the device's runtime and of NCCL fails once, on rank 1 of two; with OSTRAKON_TEST_EVERY
# also at another of its calls. Whatever it is, the job ends soon, with one message that names a function:
# after an error of the runtime all others fail, too.

set(calls cudaGetDevice:1 cudaDeviceGetPCIBusId:1 cudaSetDevice:1 cudaMemGetInfo:1 cudaMalloc:1
    cudaHostAlloc:1 cudaStreamCreateWithPriority:4 cudaDeviceGetStreamPriorityRange:2
    cudaEventCreateWithFlags:300 cudaEventRecord:150 cudaEventElapsedTime:1 cudaStreamWaitEvent:60
    cudaEventSynchronize:1 cudaStreamSynchronize:40 cudaMemcpyAsync:30 cudaMemsetAsync:1
    cudaStreamBeginCapture:1 cudaStreamEndCapture:2 cudaGraphInstantiateWithFlags:1 cudaGraphLaunch:3
    ncclCommInitRankConfig:1 ncclCommSplit:2 ncclCommCount:1 ncclCommGetAsyncError:3 ncclAllGather:20
    ncclSend:1 ncclRecv:5 ncclGroupStart:2 ncclGroupEnd:3)
if(DEFINED ENV{OSTRAKON_TEST_EVERY})
  list(APPEND calls cudaStreamCreateWithPriority:1 cudaEventCreateWithFlags:1 cudaEventRecord:1
       cudaStreamWaitEvent:1 cudaStreamSynchronize:3 cudaMemcpyAsync:2 ncclCommSplit:1 ncclAllGather:1)
endif()
file(MAKE_DIRECTORY ${FOLDER})
file(WRITE ${FOLDER}/deck.yaml "ostrakon:
  model: {layers: 2, width: 32, heads: 4, vocabulary: 61}
  data: {dataset: synthetic}
  training: {steps: 3, global_batch_size: 4, micro_batch_size: 1, sequence_length: 16}
  parallel: {sharding: full}
  memory: {offload: optimizer}
  output: {directory: ${FOLDER}/out, every: 1}
")
separate_arguments(start UNIX_COMMAND "${RUN}")

# With `fault` in the environment the job ends with one message, which matches `expected`.
function(expect_failure what fault expected)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env ${fault} ${start} 2 ${DEVICE} ${FOLDER}/deck.yaml ${ARGN}
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE errors TIMEOUT 60)
  string(REGEX MATCHALL "error[^\n]*" messages "${errors}")
  list(LENGTH messages count)
  if(result EQUAL 0 OR NOT count EQUAL 1 OR NOT errors MATCHES "${expected}")
    message(FATAL_ERROR "${what}: status ${result}, ${count} messages:\n${errors}\n${output}")
  endif()
  message(STATUS "${what}: ${messages}")
endfunction()

foreach(call IN LISTS calls)
  string(REPLACE ":" "," fault ${call})
  expect_failure(${call} FAKE_DEVICE_FAIL=${fault},1
                 "error[^\n]*: (cuda|nccl)[A-Za-z]+ [^\n]*failed")
endforeach()

expect_failure(ncclReduceScatter:3 FAKE_DEVICE_FAIL=ncclReduceScatter,3,1
               "error[^\n]*: ncclReduceScatter [^\n]*failed" --set parallel.reduction=library)

set(stages --set parallel.pipeline=2 --set memory.offload=none)
expect_failure("a message" FAKE_DEVICE_FAIL=ncclSend,3,1
               "error[^\n]*: ncclSend [^\n]*failed" ${stages})
expect_failure("a message that never ends" FAKE_NCCL_STUCK=9,1 "has not ended within 1 s"
               ${stages} --set runtime.collective_timeout=1)

# By the thread that looks after collectives, while another calls, too.
expect_failure(cudaEventQuery:3 FAKE_DEVICE_FAIL=cudaEventQuery,3,1
               "error[^\n]*: (cuda|nccl)[A-Za-z]+ [^\n]*failed" --set training.steps=100000)
expect_failure("a collective that never ends" FAKE_NCCL_STUCK=9,1 "has not ended within 1 s"
               --set runtime.collective_timeout=1)
# So late that much of the step was submitted before it.
expect_failure("a late collective that never ends" FAKE_NCCL_STUCK=600,1 "has not ended within 1 s"
               --set runtime.collective_timeout=1 --set training.global_batch_size=256)
