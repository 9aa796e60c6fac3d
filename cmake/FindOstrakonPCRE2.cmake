# SPDX-License-Identifier: Apache-2.0
# Ostrakon::pcre2: regular expressions of tokenizers, with 8-bit code units.

include(FindPackageHandleStandardArgs)

find_path(OSTRAKON_PCRE2_INCLUDE_DIR pcre2.h)
find_library(OSTRAKON_PCRE2_LIBRARY pcre2-8)
mark_as_advanced(OSTRAKON_PCRE2_INCLUDE_DIR OSTRAKON_PCRE2_LIBRARY)

find_package_handle_standard_args(OstrakonPCRE2 REQUIRED_VARS OSTRAKON_PCRE2_LIBRARY
                                                              OSTRAKON_PCRE2_INCLUDE_DIR)

if(OstrakonPCRE2_FOUND AND NOT TARGET Ostrakon::pcre2)
  add_library(Ostrakon::pcre2 INTERFACE IMPORTED)
  target_include_directories(Ostrakon::pcre2 SYSTEM INTERFACE ${OSTRAKON_PCRE2_INCLUDE_DIR})
  target_link_libraries(Ostrakon::pcre2 INTERFACE ${OSTRAKON_PCRE2_LIBRARY})
endif()
