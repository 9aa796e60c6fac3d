# SPDX-License-Identifier: Apache-2.0
#
# ostrakon_add_test(<name>
#   SOURCES <file>...     test sources; the main program is tests/support/main.cpp
#   [RANKS <n>...]        one CTest entry <name>.np<n> for each; 1 where not given
#   [THREADS <t>...]      OpenMP threads of a rank, 1 where not given. For each number above 1 and
#                         each of RANKS there is an entry <name>.np<n>.threads<t>, where the Kokkos
#                         that was found runs kernels on OpenMP threads; elsewhere none
#   [LABELS <label>...]   unit or integration; `mpi` and `np_<n>` are added. `unit` where not given.
#                         `pure` for those of code that handles no memory by itself: sanitizers leave
#                         them out
#   [ARGS <argument>...]  handed to the program
#   [DEVICE_KERNELS <file>...] those of SOURCES that also test kernels in the form that they have on a
#                         device: entries device_kernels.<name>.np<n> of a program of their own
#   [LIBRARIES <target>...] linked besides Ostrakon::ostrakon and GoogleTest)
#
# Builds the program test_<name>. CTest runs it under mpiexec and knows how many processors it takes.
# The label `threads` is added to entries with more than one thread.
#
# ostrakon_add_command_test(<name>
#   COMMAND <command> [<argument>...]
#   [PROCESSORS <n>] [LABELS <label>...])
#
# A test that is a command by itself, for example a script that starts mpiexec. It runs in the same
# environment, with OSTRAKON_APPS, OSTRAKON_SOURCE, OSTRAKON_MPIEXEC set.
#
# ostrakon_add_every_case(<name> <configuration> [COMMAND <command> [<argument>...]])
#
# The test <name>.every: what test_<name>, or the command, samples elsewhere (OSTRAKON_TEST_EVERY), in
# full. Runs only on request: ctest -C <configuration> -L <configuration>.
#
# An argument that none of them knows is an error. Tests end when they hang, not when the machine is busy:
# OSTRAKON_TEST_TIMEOUT is ten times what the longest needs on two idle cores, sanitizers included.

include_guard(GLOBAL)

# Whether kernels run on OpenMP threads: a device comes first where there is one.
set(OSTRAKON_KERNELS_ON_OPENMP ${Kokkos_ENABLE_OPENMP})
if(Kokkos_ENABLE_CUDA OR Kokkos_ENABLE_HIP OR Kokkos_ENABLE_SYCL)
  set(OSTRAKON_KERNELS_ON_OPENMP OFF)
endif()

set(OSTRAKON_TEST_TIMEOUT 3600)  # seconds

# Ranks that outnumber the cores yield to each other, and no two ranks are bound to one core.
set(OSTRAKON_TEST_ENVIRONMENT
  OMP_NUM_THREADS=1
  OMPI_ALLOW_RUN_AS_ROOT=1
  OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  OMPI_MCA_rmaps_base_oversubscribe=1
  OMPI_MCA_mpi_yield_when_idle=1
  OMPI_MCA_hwloc_base_binding_policy=none
  GTEST_COLOR=no)
if(Ostrakon_ENABLE_SANITIZERS)
  # Open MPI keeps memory until the process ends, from plugins that are unloaded by then: the leak
  # checker could not tell it from ours.
  list(APPEND OSTRAKON_TEST_ENVIRONMENT ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1)
endif()

# Those that start programs know where these are.
set(OSTRAKON_COMMAND_ENVIRONMENT ${OSTRAKON_TEST_ENVIRONMENT}
  OSTRAKON_APPS=${PROJECT_BINARY_DIR}/apps
  OSTRAKON_SOURCE=${PROJECT_SOURCE_DIR}
  OSTRAKON_MPIEXEC=${MPIEXEC_EXECUTABLE})

function(ostrakon_refuse_unknown function unparsed missing_values)
  if(unparsed)
    message(FATAL_ERROR "${function}: unknown arguments: ${unparsed}")
  endif()
  if(missing_values)
    message(FATAL_ERROR "${function}: no value after ${missing_values}")
  endif()
endfunction()

# The executables of tests with the label `unit` and not `pure`: what sanitizers take.
if(NOT TARGET unit_tests)
  add_custom_target(unit_tests)
endif()

# An entry <name>.np<n> of the program for each of RANKS, and one for each number of THREADS.
function(ostrakon_add_entries target name)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "RANKS;THREADS;LABELS;ARGS")
  foreach(threads IN LISTS arg_THREADS)
    if(threads GREATER 1 AND NOT OSTRAKON_KERNELS_ON_OPENMP)
      continue()
    endif()
    foreach(ranks IN LISTS arg_RANKS)
      set(test ${name}.np${ranks})
      set(labels "${arg_LABELS};mpi;np_${ranks}")
      set(environment "${OSTRAKON_TEST_ENVIRONMENT}")
      if(threads GREATER 1)
        string(APPEND test .threads${threads})
        list(APPEND labels threads)
        # Later ones count. Threads may outnumber the cores: those that wait leave the core.
        list(APPEND environment OMP_NUM_THREADS=${threads} OMP_WAIT_POLICY=passive
             OMP_PROC_BIND=false)
      endif()
      math(EXPR processors "${ranks} * ${threads}")
      add_test(NAME ${test}
        COMMAND ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${MPIEXEC_PREFLAGS}
                $<TARGET_FILE:${target}> ${MPIEXEC_POSTFLAGS} ${arg_ARGS})
      set_tests_properties(${test} PROPERTIES
        PROCESSORS ${processors} TIMEOUT ${OSTRAKON_TEST_TIMEOUT}
        LABELS "${labels}" ENVIRONMENT "${environment}")
    endforeach()
  endforeach()
endfunction()

function(ostrakon_add_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;RANKS;THREADS;LABELS;ARGS;\
LIBRARIES;DEVICE_KERNELS")
  ostrakon_refuse_unknown("ostrakon_add_test(${name})" "${arg_UNPARSED_ARGUMENTS}"
                          "${arg_KEYWORDS_MISSING_VALUES}")
  if(NOT arg_SOURCES)
    message(FATAL_ERROR "ostrakon_add_test(${name}): no SOURCES")
  endif()
  if(NOT arg_RANKS)
    set(arg_RANKS 1)
  endif()
  if(NOT arg_THREADS)
    set(arg_THREADS 1)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()

  add_executable(test_${name} ${arg_SOURCES})
  # It replaces operator new: no compiler may look into it from elsewhere.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/tests/support/allocations.cpp PROPERTIES
    SKIP_UNITY_BUILD_INCLUSION ON)
  if("unit" IN_LIST arg_LABELS AND NOT "pure" IN_LIST arg_LABELS)
    add_dependencies(unit_tests test_${name})
  endif()
  ostrakon_set_flags(test_${name} O1)
  ostrakon_precompile_headers(test_${name} REUSE_FROM ostrakon_test_main)
  target_link_libraries(test_${name} PRIVATE ostrakon_test_main Ostrakon::ostrakon ${arg_LIBRARIES})
  target_include_directories(test_${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(test_${name} PRIVATE
    OSTRAKON_SOURCE_DIR="${PROJECT_SOURCE_DIR}" OSTRAKON_APPS_DIR="${PROJECT_BINARY_DIR}/apps")

  ostrakon_add_entries(test_${name} ${name} RANKS ${arg_RANKS} THREADS ${arg_THREADS}
                       LABELS ${arg_LABELS} ARGS ${arg_ARGS})

  if(arg_DEVICE_KERNELS AND TARGET ostrakon_device_kernels)
    set(target test_device_kernels_${name})
    add_executable(${target} ${arg_DEVICE_KERNELS})
    if("unit" IN_LIST arg_LABELS)
      add_dependencies(unit_tests ${target})
    endif()
    ostrakon_set_flags(${target} O1)
    ostrakon_precompile_headers(${target} REUSE_FROM ostrakon_device_kernels)
    target_link_libraries(${target} PRIVATE ostrakon_test_main ostrakon_device_kernels ${arg_LIBRARIES})
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    ostrakon_add_entries(${target} device_kernels.${name} RANKS ${arg_RANKS} THREADS ${arg_THREADS}
                         LABELS ${arg_LABELS} device_kernels ARGS ${arg_ARGS})
  endif()
endfunction()

function(ostrakon_add_command_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PROCESSORS" "COMMAND;LABELS")
  ostrakon_refuse_unknown("ostrakon_add_command_test(${name})" "${arg_UNPARSED_ARGUMENTS}"
                          "${arg_KEYWORDS_MISSING_VALUES}")
  if(NOT arg_COMMAND)
    message(FATAL_ERROR "ostrakon_add_command_test(${name}): no COMMAND")
  endif()
  if(NOT arg_PROCESSORS)
    set(arg_PROCESSORS 1)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS integration)
  endif()
  add_test(NAME ${name} COMMAND ${arg_COMMAND})
  set_tests_properties(${name} PROPERTIES
    PROCESSORS ${arg_PROCESSORS} TIMEOUT ${OSTRAKON_TEST_TIMEOUT} LABELS "${arg_LABELS}"
    ENVIRONMENT "${OSTRAKON_COMMAND_ENVIRONMENT}")
endfunction()

function(ostrakon_add_every_case name configuration)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "COMMAND")
  ostrakon_refuse_unknown("ostrakon_add_every_case(${name})" "${arg_UNPARSED_ARGUMENTS}"
                          "${arg_KEYWORDS_MISSING_VALUES}")
  if(NOT arg_COMMAND)
    set(arg_COMMAND test_${name})
  endif()
  add_test(NAME ${name}.every CONFIGURATIONS ${configuration} COMMAND ${arg_COMMAND})
  set_tests_properties(${name}.every PROPERTIES
    PROCESSORS 2 TIMEOUT 14400 LABELS "${configuration};mpi"
    ENVIRONMENT "${OSTRAKON_COMMAND_ENVIRONMENT};OSTRAKON_TEST_EVERY=1")
endfunction()
