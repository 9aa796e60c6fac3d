# SPDX-License-Identifier: Apache-2.0
# Run by CTest: what each preset requires, and what becomes of that with Kokkos of other backends.
cmake_minimum_required(VERSION 3.22)

# expect(<backend> <devices of Kokkos> <error, as a regular expression; empty: none>)
function(expect required devices error)
  execute_process(
    COMMAND ${CMAKE_COMMAND} -D SOURCE=${SOURCE} -D "Ostrakon_REQUIRE_BACKEND=${required}"
            -D "Kokkos_DEVICES=${devices}" -P ${CMAKE_CURRENT_LIST_DIR}/check.cmake
    RESULT_VARIABLE status ERROR_VARIABLE message)
  string(REGEX REPLACE "[ \n]+" " " message "${message}")  # CMake folds lines
  if(error STREQUAL "")
    if(NOT status EQUAL 0)
      message(FATAL_ERROR "'${required}' with '${devices}': expected no error, found: ${message}")
    endif()
  elseif(status EQUAL 0 OR NOT message MATCHES "${error}")
    message(FATAL_ERROR "'${required}' with '${devices}': expected: ${error}\nfound: ${message}")
  endif()
endfunction()

expect("" "SERIAL" "")
expect("OPENMP" "OPENMP;SERIAL" "")
expect("OpenMP" "SERIAL;OPENMP" "")
expect("CUDA" "CUDA;OPENMP" "")
expect("OPENMP" "SERIAL"
  "OPENMP: the Kokkos that was found is built without it.*Kokkos 4.7.1 with SERIAL, in /opt/kokkos/")
expect("CUDA" "OPENMP;SERIAL" "REQUIRE_BACKEND=CUDA: .*with OPENMP, SERIAL, in")
expect("HIP" "CUDA" "REQUIRE_BACKEND=HIP: .*with CUDA, in")
expect("OPENMP" "" "REQUIRE_BACKEND=OPENMP: ")

file(READ ${SOURCE}/CMakePresets.json presets)
string(JSON count LENGTH "${presets}" configurePresets)
math(EXPR last "${count} - 1")
foreach(i RANGE ${last})
  string(JSON name GET "${presets}" configurePresets ${i} name)
  if(name MATCHES "^(openmp|cuda|hip)$")
    string(TOUPPER ${name} expected)
    string(JSON found ERROR_VARIABLE none GET "${presets}"
           configurePresets ${i} cacheVariables Ostrakon_REQUIRE_BACKEND)
    if(NOT found STREQUAL expected)
      message(FATAL_ERROR "preset ${name}: Ostrakon_REQUIRE_BACKEND is ${found}, not ${expected}")
    endif()
    list(APPEND seen ${name})
  endif()
endforeach()
list(LENGTH seen count)
if(NOT count EQUAL 3)
  message(FATAL_ERROR "presets for a backend: expected openmp, cuda and hip, found: ${seen}")
endif()
