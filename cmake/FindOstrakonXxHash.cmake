# SPDX-License-Identifier: Apache-2.0
# Ostrakon::xxhash: checksums of files.

include(FindPackageHandleStandardArgs)

find_path(OSTRAKON_XXHASH_INCLUDE_DIR xxhash.h)
find_library(OSTRAKON_XXHASH_LIBRARY xxhash)
mark_as_advanced(OSTRAKON_XXHASH_INCLUDE_DIR OSTRAKON_XXHASH_LIBRARY)

find_package_handle_standard_args(OstrakonXxHash REQUIRED_VARS OSTRAKON_XXHASH_LIBRARY
                                                               OSTRAKON_XXHASH_INCLUDE_DIR)

if(OstrakonXxHash_FOUND AND NOT TARGET Ostrakon::xxhash)
  add_library(Ostrakon::xxhash INTERFACE IMPORTED)
  target_include_directories(Ostrakon::xxhash SYSTEM INTERFACE ${OSTRAKON_XXHASH_INCLUDE_DIR})
  target_link_libraries(Ostrakon::xxhash INTERFACE ${OSTRAKON_XXHASH_LIBRARY})
endif()
