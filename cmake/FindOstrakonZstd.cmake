# SPDX-License-Identifier: Apache-2.0
# Ostrakon::zstd: text that is compressed by zstd.

include(FindPackageHandleStandardArgs)

find_path(OSTRAKON_ZSTD_INCLUDE_DIR zstd.h)
find_library(OSTRAKON_ZSTD_LIBRARY zstd)
mark_as_advanced(OSTRAKON_ZSTD_INCLUDE_DIR OSTRAKON_ZSTD_LIBRARY)

find_package_handle_standard_args(OstrakonZstd REQUIRED_VARS OSTRAKON_ZSTD_LIBRARY
                                                             OSTRAKON_ZSTD_INCLUDE_DIR)

if(OstrakonZstd_FOUND AND NOT TARGET Ostrakon::zstd)
  add_library(Ostrakon::zstd INTERFACE IMPORTED)
  target_include_directories(Ostrakon::zstd SYSTEM INTERFACE ${OSTRAKON_ZSTD_INCLUDE_DIR})
  target_link_libraries(Ostrakon::zstd INTERFACE ${OSTRAKON_ZSTD_LIBRARY})
endif()
