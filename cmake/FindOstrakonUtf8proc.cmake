# SPDX-License-Identifier: Apache-2.0
# Ostrakon::utf8proc: normal forms of Unicode.

include(FindPackageHandleStandardArgs)

find_path(OSTRAKON_UTF8PROC_INCLUDE_DIR utf8proc.h)
find_library(OSTRAKON_UTF8PROC_LIBRARY utf8proc)
mark_as_advanced(OSTRAKON_UTF8PROC_INCLUDE_DIR OSTRAKON_UTF8PROC_LIBRARY)

find_package_handle_standard_args(OstrakonUtf8proc REQUIRED_VARS OSTRAKON_UTF8PROC_LIBRARY
                                                                 OSTRAKON_UTF8PROC_INCLUDE_DIR)

if(OstrakonUtf8proc_FOUND AND NOT TARGET Ostrakon::utf8proc)
  add_library(Ostrakon::utf8proc INTERFACE IMPORTED)
  target_include_directories(Ostrakon::utf8proc SYSTEM INTERFACE ${OSTRAKON_UTF8PROC_INCLUDE_DIR})
  target_link_libraries(Ostrakon::utf8proc INTERFACE ${OSTRAKON_UTF8PROC_LIBRARY})
endif()
