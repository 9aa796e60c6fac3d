# SPDX-License-Identifier: Apache-2.0
# Run by CTest: install, build the consumer, run it.

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    string(JOIN " " command ${ARGV})
    message(FATAL_ERROR "status ${status} from: ${command}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${WORK}/build -G ${GENERATOR}
    -D CMAKE_CXX_COMPILER=${COMPILER} "-DCMAKE_CXX_FLAGS=${FLAGS}"
    -D CMAKE_PREFIX_PATH=${WORK}/prefix -D CMAKE_FIND_PACKAGE_NO_PACKAGE_REGISTRY=ON)
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/consumer)
foreach(program IN ITEMS train data generate)
  if(NOT EXISTS ${WORK}/prefix/bin/ostrakon-${program})
    message(FATAL_ERROR "not installed: bin/ostrakon-${program}")
  endif()
endforeach()
if(NOT EXISTS ${WORK}/prefix/share/ostrakon/input_decks/quickstart.yaml)
  message(FATAL_ERROR "not installed: share/ostrakon/input_decks/quickstart.yaml")
endif()
