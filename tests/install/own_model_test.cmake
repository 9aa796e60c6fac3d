# SPDX-License-Identifier: Apache-2.0
# Included by install_test.cmake: builds the programs of examples/ against the installed copy, and
# runs them on several ranks; own_model also resumed, killed, and with a wrong backward.

foreach(example IN ITEMS own_model gpt)
  run(${CMAKE_COMMAND} -S ${EXAMPLES}/${example} -B ${WORK}/${example} ${settings}
      -D CMAKE_PREFIX_PATH=${WORK}/prefix)
  run(${CMAKE_COMMAND} --build ${WORK}/${example})
endforeach()
set(own_model ${WORK}/own_model/own_model)
set(folders ${WORK}/own_model_runs)
file(MAKE_DIRECTORY ${folders})

# Runs it on `ranks` ranks; sets `result` to the digest that it ends with.
function(run_own_model result ranks)
  execute_process(COMMAND $ENV{OSTRAKON_MPIEXEC} -n ${ranks} ${own_model} ${ARGN}
                  WORKING_DIRECTORY ${folders} RESULT_VARIABLE status OUTPUT_VARIABLE output)
  if(NOT status EQUAL 0 OR NOT output MATCHES "step [0-9]+, digest ([0-9a-f]+)\n$")
    message(FATAL_ERROR "status ${status} from own_model ${ARGN} on ${ranks} ranks:\n${output}")
  endif()
  set(${result} ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()

function(expect_digest found expected what)
  if(NOT found STREQUAL expected)
    message(FATAL_ERROR "own_model, ${what}: digest ${found}, expected ${expected}")
  endif()
endfunction()

# The same bits on any number of ranks.
run_own_model(expected 1 one 40)
foreach(ranks IN ITEMS 2 4)
  run_own_model(found ${ranks} on_${ranks} 40)
  expect_digest(${found} ${expected} "${ranks} ranks")
endforeach()

# And where two ranks compute each leaf together.
foreach(ranks IN ITEMS 2 4)
  run_own_model(found ${ranks} tensor_on_${ranks} 40 --tensor)
  expect_digest(${found} ${expected} "${ranks} ranks, two of them to a leaf")
endforeach()

# Resumed on others.
run_own_model(found 2 resumed 20)
if(found STREQUAL expected)
  message(FATAL_ERROR "own_model: digest ${found} after 20 steps and after 40")
endif()
run_own_model(found 4 resumed 40 --resume --tensor)
expect_digest(${found} ${expected} "resumed")

# Killed, whatever it is doing, and resumed from the newest checkpoint.
run(${CMAKE_CURRENT_LIST_DIR}/kill_own_model ${own_model} ${folders}/killed)
file(READ_SYMLINK ${folders}/killed/latest newest)
if(NOT newest MATCHES "^step-0*([1-9][0-9]*)$")
  message(FATAL_ERROR "own_model, killed: the newest checkpoint is ${newest}")
endif()
math(EXPR steps "${CMAKE_MATCH_1} + 20")
run_own_model(found 2 killed ${steps} --resume)
run_own_model(expected 1 whole ${steps})
expect_digest(${found} ${expected} "killed after step ${CMAKE_MATCH_1}, and resumed")

# Begun anew in a used folder: the older checkpoints are set aside.
run_own_model(found 2 resumed 20)
if(NOT EXISTS ${folders}/resumed/step-00000020 OR NOT EXISTS ${folders}/resumed.previous/step-00000040)
  message(FATAL_ERROR "own_model: older checkpoints are not in resumed.previous")
endif()

# What can't be is refused, once for all ranks.
function(expect_refusal pattern)
  execute_process(COMMAND $ENV{OSTRAKON_MPIEXEC} -n 2 ${own_model} ${ARGN}
                  WORKING_DIRECTORY ${folders} RESULT_VARIABLE status OUTPUT_QUIET
                  ERROR_VARIABLE output)
  if(NOT status EQUAL 1 OR NOT output MATCHES "${pattern}" OR output MATCHES "error:.*error:")
    message(FATAL_ERROR "status ${status} from own_model ${ARGN}:\n${output}")
  endif()
endfunction()
expect_refusal("own_model: error: usage: own_model FOLDER STEPS" unknown 20 --resum)
expect_refusal("own_model: error: usage: own_model FOLDER STEPS" unknown 20 --resume more)
expect_refusal("own_model: error: steps is 0; expected an integer >= 1" unknown twenty)

# What is wrong with backward is named.
execute_process(COMMAND $ENV{OSTRAKON_MPIEXEC} -n 2 ${own_model} wrong 20 --wrong-gradient
                WORKING_DIRECTORY ${folders} RESULT_VARIABLE status OUTPUT_QUIET
                ERROR_VARIABLE output)
if(NOT status EQUAL 1 OR NOT output MATCHES "own_model: error: unit residual\\.2: input.*unit residual\\.2: up\\.weight\\[[0-9]+\\]: the gradient is "
   OR output MATCHES "unit residual\\.[013]" OR EXISTS ${folders}/wrong)
  message(FATAL_ERROR "status ${status} from own_model with a wrong gradient:\n${output}")
endif()

# Every setting can be written with public names.
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/own_settings -B ${WORK}/own_settings ${settings}
    -D CMAKE_PREFIX_PATH=${WORK}/prefix)
run(${CMAKE_COMMAND} --build ${WORK}/own_settings)
run(${WORK}/own_settings/own_settings)
file(READ ${CMAKE_CURRENT_LIST_DIR}/own_settings/main.cpp text)
string(REGEX MATCH "#include <ostrakon/[^>]*/[^>]*>|(os|ostrakon)::[a-z]+::" not_public "${text}")
if(not_public)
  message(FATAL_ERROR "tests/install/own_settings/main.cpp: ${not_public} is not public")
endif()

# A small GPT, of its own source as the text.
foreach(arguments IN ITEMS "1;20" "2;20" "4;20" "2;20;2" "4;20;2")
  list(POP_FRONT arguments ranks)
  execute_process(COMMAND $ENV{OSTRAKON_MPIEXEC} -n ${ranks} ${WORK}/gpt/gpt ${EXAMPLES}/gpt/gpt.cpp
                          ${arguments}
                  RESULT_VARIABLE status OUTPUT_VARIABLE output)
  if(NOT status EQUAL 0 OR NOT output MATCHES "^step 20, loss ([0-9.]+)\ndigest ([0-9a-f]+)\n$")
    message(FATAL_ERROR "status ${status} from gpt on ${ranks} ranks, ${arguments}:\n${output}")
  endif()
  if(ranks EQUAL 1)
    set(expected ${CMAKE_MATCH_2})
    if(NOT CMAKE_MATCH_1 LESS 5)  # that of a guess among 256 bytes is 5.5
      message(FATAL_ERROR "gpt: loss ${CMAKE_MATCH_1} after 20 steps; expected less than 5")
    endif()
  elseif(NOT CMAKE_MATCH_2 STREQUAL expected)
    message(FATAL_ERROR "gpt on ${ranks} ranks, ${arguments}: digest ${CMAKE_MATCH_2}, expected ${expected}")
  endif()
endforeach()

# Short enough to be read, and of public headers alone.
foreach(example IN ITEMS own_model gpt)
  file(READ ${EXAMPLES}/${example}/${example}.cpp text)
  string(REGEX MATCH "#include <ostrakon/[^>]*/[^>]*>" not_public "${text}")
  if(not_public)
    message(FATAL_ERROR "examples/${example}/${example}.cpp: ${not_public} is not a public header")
  endif()
  string(REGEX MATCHALL "\n" ends "${text}")
  list(LENGTH ends lines)
  if(lines GREATER_EQUAL 200)
    message(FATAL_ERROR "examples/${example}/${example}.cpp has ${lines} lines; expected less than 200")
  endif()
endforeach()
