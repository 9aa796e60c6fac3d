# SPDX-License-Identifier: Apache-2.0
# Run by CTest, with the command to run after `--`: it exits with status 1, and one rank says why, in
# a line that begins with EXPECTED, a regular expression.
cmake_minimum_required(VERSION 3.22)

set(command)
set(is_command FALSE)
foreach(i RANGE ${CMAKE_ARGC})
  if(is_command AND i LESS CMAKE_ARGC)
    list(APPEND command "${CMAKE_ARGV${i}}")
  elseif("${CMAKE_ARGV${i}}" STREQUAL "--")
    set(is_command TRUE)
  endif()
endforeach()

execute_process(COMMAND ${command} TIMEOUT 50
  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
string(REGEX MATCHALL "failing_program: error" errors "${output}")
list(LENGTH errors count)
if(NOT status EQUAL 1)
  message(FATAL_ERROR "exit status '${status}', expected 1:\n${output}")
endif()
if(NOT count EQUAL 1)
  message(FATAL_ERROR "${count} errors, expected 1:\n${output}")
endif()
if(NOT output MATCHES "failing_program: ${EXPECTED}")
  message(FATAL_ERROR "expected: ${EXPECTED}\nfound: ${output}")
endif()
