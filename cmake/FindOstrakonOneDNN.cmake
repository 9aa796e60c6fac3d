# SPDX-License-Identifier: Apache-2.0
# Ostrakon::onednn: oneDNN. Found by header and library: the CMake config of Debian's package asks for
# OpenCL, which nothing here uses.

include(FindPackageHandleStandardArgs)

find_path(OSTRAKON_ONEDNN_INCLUDE_DIR oneapi/dnnl/dnnl.h)
find_library(OSTRAKON_ONEDNN_LIBRARY dnnl)
mark_as_advanced(OSTRAKON_ONEDNN_INCLUDE_DIR OSTRAKON_ONEDNN_LIBRARY)

find_package_handle_standard_args(OstrakonOneDNN REQUIRED_VARS OSTRAKON_ONEDNN_LIBRARY
                                                               OSTRAKON_ONEDNN_INCLUDE_DIR)

if(OstrakonOneDNN_FOUND AND NOT TARGET Ostrakon::onednn)
  add_library(Ostrakon::onednn INTERFACE IMPORTED)
  target_include_directories(Ostrakon::onednn SYSTEM INTERFACE ${OSTRAKON_ONEDNN_INCLUDE_DIR})
  target_link_libraries(Ostrakon::onednn INTERFACE ${OSTRAKON_ONEDNN_LIBRARY})
  target_compile_definitions(Ostrakon::onednn INTERFACE OSTRAKON_HAVE_ONEDNN)
endif()
