# SPDX-License-Identifier: Apache-2.0
# Run by CTest: install, build the consumer, run it.

set(settings -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER} "-DCMAKE_CXX_FLAGS=${FLAGS}"
    -D CMAKE_FIND_PACKAGE_NO_PACKAGE_REGISTRY=ON)
set(configure ${CMAKE_COMMAND} -S ${CONSUMER} ${settings})

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    string(JOIN " " command ${ARGV})
    message(FATAL_ERROR "status ${status} from: ${command}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)

# Another Kokkos is where CMake looks first; that of the build is found all the same.
set(other ${WORK}/other/lib/cmake/Kokkos)
file(WRITE ${other}/KokkosConfig.cmake "set(Kokkos_DEVICES OTHER)
add_library(Kokkos::kokkos INTERFACE IMPORTED)\n")
file(WRITE ${other}/KokkosConfigVersion.cmake "set(PACKAGE_VERSION 1.2.3)\n")
run(${configure} -B ${WORK}/build "-DCMAKE_PREFIX_PATH=${WORK}/prefix\;${WORK}/other")
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/consumer)

# Where it is asked for, it is refused.
execute_process(COMMAND ${configure} -B ${WORK}/refused -D CMAKE_PREFIX_PATH=${WORK}/prefix
                        -D Kokkos_DIR=${other}
                RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE error)
string(REGEX REPLACE "[ \n]+" " " error "${error}")
if(status EQUAL 0 OR NOT error MATCHES "but Kokkos 1.2.3 for OTHER \\(${other}\\) was found")
  message(FATAL_ERROR "status ${status} with another Kokkos, and this error: ${error}")
endif()

function(expect_installed)
  foreach(file IN LISTS ARGV)
    if(NOT EXISTS ${WORK}/prefix/${file})
      message(FATAL_ERROR "not installed: ${file}")
    endif()
  endforeach()
endfunction()

# Public headers and what they include, and no others.
set(include ${WORK}/prefix/include)
file(GLOB_RECURSE headers RELATIVE ${include} ${include}/*.hpp)
set(included ostrakon/model.hpp ostrakon/training.hpp ostrakon/gradient_check.hpp)
foreach(header IN LISTS headers)
  file(STRINGS ${include}/${header} lines REGEX "^#include <ostrakon/")
  list(TRANSFORM lines REPLACE "^#include <(.*)>.*" "\\1")
  list(APPEND included ${lines})
endforeach()
list(REMOVE_DUPLICATES included)
list(SORT headers)
list(SORT included)
if(NOT headers STREQUAL included)
  message(FATAL_ERROR "installed are the headers\n${headers}\nand these are needed:\n${included}")
endif()

foreach(program IN ITEMS train plan data evaluate generate checkpoint bench scale report)
  expect_installed(bin/ostrakon-${program})
endforeach()
expect_installed(share/ostrakon/input_decks/quickstart.yaml share/ostrakon/input_decks/llama3-8b.yaml)
expect_installed(share/ostrakon/benchmarks/reframe/ostrakon.py
                 share/ostrakon/benchmarks/ramble/ostrakon/application.py
                 share/ostrakon/benchmarks/jube/ostrakon.yaml)
expect_installed(share/ostrakon/python/ostrakon_lm_eval/__main__.py
                 share/ostrakon/python/ostrakon_report/__main__.py
                 share/ostrakon/python/ostrakon_report/templates/page.html
                 share/ostrakon/python/ostrakon_report/templates/runs.html)
set(documents share/doc/ostrakon)
foreach(file IN ITEMS README.md LICENSE CHANGELOG.md CONTRIBUTING.md docs/jobs.md spack/README.md)
  expect_installed(${documents}/${file})
endforeach()

# Links between pages lead somewhere.
file(GLOB_RECURSE pages ${WORK}/prefix/${documents}/*.md)
set(links_seen 0)
foreach(page IN LISTS pages)
  file(READ ${page} text)
  # Brackets and semicolons mean something in CMake's lists.
  string(REPLACE "](" "<link>" text "${text}")
  string(REGEX REPLACE "[][;]" " " text "${text}")
  string(REGEX MATCHALL "<link>[^)#]+" links "${text}")
  get_filename_component(folder ${page} DIRECTORY)
  foreach(link IN LISTS links)
    string(REPLACE "<link>" "" link "${link}")
    if(link MATCHES "^https?:| ")  # or the arguments of a lambda
      continue()
    endif()
    math(EXPR links_seen "${links_seen} + 1")
    if(NOT EXISTS ${folder}/${link})
      message(FATAL_ERROR "${page}: there is no ${link}")
    endif()
  endforeach()
endforeach()
if(links_seen EQUAL 0)
  message(FATAL_ERROR "no link found in ${pages}")
endif()

foreach(script IN ITEMS slurm pbs flux)
  expect_installed(share/ostrakon/jobs/${script}.sh)
  run(bash -c "test -x ${WORK}/prefix/share/ostrakon/jobs/${script}.sh")
endforeach()

# An installed deck reads and writes where it is run, and nothing in the prefix.
function(list_prefix result)
  file(GLOB_RECURSE files LIST_DIRECTORIES true RELATIVE ${WORK}/prefix ${WORK}/prefix/*)
  set(${result} "${files}" PARENT_SCOPE)
endfunction()
list_prefix(before)
set(text "It is a small text, and it is said again. ")
foreach(i RANGE 6)
  string(APPEND text "${text}")
endforeach()
file(WRITE ${WORK}/run/text/a.txt "${text}")
file(WRITE ${WORK}/run/text/b.txt "${text}")
set(bin ${WORK}/prefix/bin)
run(${CMAKE_COMMAND} -E chdir ${WORK}/run ${bin}/ostrakon-data build --output data/fortunes text)
run(${CMAKE_COMMAND} -E chdir ${WORK}/run ${bin}/ostrakon-train
    ${WORK}/prefix/share/ostrakon/input_decks/quickstart.yaml --set training.steps=1
    --set schedule.warmup_steps=1 --set training.validate_every=0 --set training.global_batch_size=1
    --set training.micro_batch_size=1 --set training.sequence_length=32)
if(NOT EXISTS ${WORK}/run/output/quickstart/weights.h5)
  message(FATAL_ERROR "an installed deck wrote no output/quickstart/weights.h5 where it was run")
endif()
list_prefix(after)
if(NOT before STREQUAL after)
  message(FATAL_ERROR "an installed deck wrote into the prefix")
endif()

include(${CMAKE_CURRENT_LIST_DIR}/own_model_test.cmake)
