# SPDX-License-Identifier: Apache-2.0
# cmake -DHOST=<ostrakon-train> -DDEVICE=<the same on the fake device> -DRUN=<mpiexec -n>
#       -DFOLDER=<scratch> -P compare.cmake
# Runs decks on the host with one rank, and on the fake device with 1, 2 and 4 (or RANKS), by each
# transport: losses, norms and digests of all steps have to be the same to the last bit.

set(model "model: {norm: rmsnorm, positions: rotary, activation: swiglu, layers: 3, width: 64, \
heads: 4, kv_heads: 2, ffn_width: 96, vocabulary: 64}")
set(gpt2 "model: {layers: 2, width: 32, heads: 4, vocabulary: 61, tie_embeddings: true}")
set(mixture "model: {norm: rmsnorm, positions: rotary, activation: swiglu, layers: 2, width: 32, \
heads: 4, ffn_width: 32, vocabulary: 64, experts: 4, experts_per_token: 2}")

function(run program ranks name deck)
  set(folder ${FOLDER}/${name})
  file(REMOVE_RECURSE ${folder})
  file(MAKE_DIRECTORY ${folder})
  file(WRITE ${folder}/deck.yaml "ostrakon:\n${deck}  output: {directory: ${folder}/out, every: 1, digest_every: 1}\n")
  separate_arguments(start UNIX_COMMAND "${RUN}")
  execute_process(COMMAND ${start} ${ranks} ${program} ${folder}/deck.yaml ${ARGN}
                  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${name}: status ${result}\n${output}")
  endif()
  file(STRINGS ${folder}/out/metrics.jsonl lines)
  set(seen "")
  foreach(line IN LISTS lines)
    foreach(key loss grad_norm state_digest)
      string(JSON value ERROR_VARIABLE missing GET "${line}" ${key})
      string(APPEND seen "${key} ${value}\n")
    endforeach()
  endforeach()
  set(seen "${seen}" PARENT_SCOPE)
endfunction()

# `deck` is that of the host, too; ON_DEVICE has further arguments of the runs on the device.
function(compare name deck)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "RANKS;ON_DEVICE")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "compare(${name}): ${arg_UNPARSED_ARGUMENTS}")
  endif()
  if(NOT arg_RANKS)
    set(arg_RANKS 1 2 4)
  endif()
  run(${HOST} 1 ${name}-host "${deck}" --set runtime.streams=inline)
  set(expected "${seen}")
  if(NOT expected MATCHES "state_digest [0-9a-f]+")
    message(FATAL_ERROR "${name}: no digests:\n${expected}")
  endif()
  foreach(ranks IN LISTS arg_RANKS)
    foreach(transport nccl mpi_staged)
      if(ranks EQUAL 1 AND transport STREQUAL mpi_staged)
        continue()
      endif()
      run(${DEVICE} ${ranks} ${name}-${transport}-${ranks} "${deck}"
          --set runtime.transport=${transport} ${arg_ON_DEVICE})
      if(NOT seen STREQUAL expected)
        message(FATAL_ERROR "${name} on ${ranks} ranks by ${transport}:\n${seen}expected:\n${expected}")
      endif()
    endforeach()
  endforeach()
  message(STATUS "${name}: the same")
endfunction()

set(training "  data: {dataset: synthetic}
  training: {steps: 4, global_batch_size: 8, micro_batch_size: 1, sequence_length: 16}\n")
compare(full "  ${model}\n${training}  parallel: {sharding: full}\n")
compare(none "  ${gpt2}\n${training}  parallel: {sharding: none}\n")
compare(sums "  ${model}\n${training}  parallel: {sharding: none}\n")
compare(offload "  ${model}\n${training}  parallel: {sharding: full}\n  memory: {offload: all, activations: host}\n")
compare(optimizer "  ${gpt2}\n${training}  parallel: {sharding: optimizer}\n  memory: {offload: optimizer}\n")
compare(half "  ${model}\n${training}  parallel: {sharding: full}\n  precision: {gather: bf16}\n")
# Products add up micro-batches also in stages with deferred gradients. In audited steps they do not,
# and in the steps between they do.
string(REPLACE "{norm" "{tie_embeddings: false, norm" untied "${model}")
compare(stages "  ${untied}\n${training}  parallel: {sharding: none}\n" RANKS 2 4
        ON_DEVICE --set parallel.pipeline=2 --set parallel.schedule=zero_bubble)
compare(audits "  ${model}\n${training}  parallel: {sharding: none}\n" RANKS 2
        ON_DEVICE --set runtime.audit=2)
