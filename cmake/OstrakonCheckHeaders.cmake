# SPDX-License-Identifier: Apache-2.0
# Every header must compile by itself. One whose own source includes it first does, where that source
# does; for each of the others there is a source here, with that single include.

file(GLOB_RECURSE headers RELATIVE ${PROJECT_SOURCE_DIR}/src CONFIGURE_DEPENDS
     ${PROJECT_SOURCE_DIR}/src/*.hpp)
set(sources "")
foreach(header IN LISTS headers)
  string(REGEX REPLACE "hpp$" "cpp" own ${PROJECT_SOURCE_DIR}/src/${header})
  if(EXISTS ${own})
    file(STRINGS ${own} first_include REGEX "^#include" LIMIT_COUNT 1)
    if(first_include STREQUAL "#include <${header}>")
      continue()
    endif()
  endif()
  string(REPLACE "/" "_" name ${header})
  set(source ${PROJECT_BINARY_DIR}/header_checks/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include <${header}>\n")
  list(APPEND sources ${source})
endforeach()

add_library(ostrakon_header_checks OBJECT ${sources})
ostrakon_set_flags(ostrakon_header_checks)
if(NOT OSTRAKON_ON_DEVICE)  # see ostrakon_set_flags
  target_compile_options(ostrakon_header_checks PRIVATE -O0)
endif()
target_link_libraries(ostrakon_header_checks PRIVATE
  Ostrakon::ostrakon Ostrakon::teuchos Ostrakon::hdf5 Ostrakon::xxhash nlohmann_json::nlohmann_json)
