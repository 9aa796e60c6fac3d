# SPDX-License-Identifier: Apache-2.0
# Run by `cmake --install`: installs the public headers, src/ostrakon/*.hpp, and those that they include,
# into include_folder.

get_filename_component(source ${CMAKE_CURRENT_LIST_DIR}/../src ABSOLUTE)
get_filename_component(target "${include_folder}" ABSOLUTE BASE_DIR ${CMAKE_INSTALL_PREFIX})

file(GLOB headers RELATIVE ${source} ${source}/ostrakon/*.hpp)
set(seen ${headers})
while(headers)
  list(POP_FRONT headers header)
  get_filename_component(folder ${header} DIRECTORY)
  file(INSTALL ${source}/${header} DESTINATION ${target}/${folder})
  file(STRINGS ${source}/${header} includes REGEX "^#include <ostrakon/")
  list(TRANSFORM includes REPLACE "^#include <(.*)>.*" "\\1")
  list(REMOVE_ITEM includes ${seen} "")
  list(APPEND headers ${includes})
  list(APPEND seen ${includes})
endwhile()
