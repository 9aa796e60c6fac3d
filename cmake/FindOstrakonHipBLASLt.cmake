# SPDX-License-Identifier: Apache-2.0
# Ostrakon::hipblaslt: AMD's hipBLASLt, which multiplies matrices. ROCM_PATH or CMAKE_PREFIX_PATH names
# its folder.

include(FindPackageHandleStandardArgs)

find_path(OSTRAKON_HIPBLASLT_INCLUDE_DIR hipblaslt/hipblaslt-ext.hpp
          HINTS ENV ROCM_PATH /opt/rocm PATH_SUFFIXES include)
find_library(OSTRAKON_HIPBLASLT_LIBRARY hipblaslt
             HINTS ENV ROCM_PATH /opt/rocm PATH_SUFFIXES lib)
mark_as_advanced(OSTRAKON_HIPBLASLT_INCLUDE_DIR OSTRAKON_HIPBLASLT_LIBRARY)

find_package_handle_standard_args(OstrakonHipBLASLt REQUIRED_VARS OSTRAKON_HIPBLASLT_LIBRARY
                                                                  OSTRAKON_HIPBLASLT_INCLUDE_DIR)

if(OstrakonHipBLASLt_FOUND AND NOT TARGET Ostrakon::hipblaslt)
  add_library(Ostrakon::hipblaslt INTERFACE IMPORTED)
  target_include_directories(Ostrakon::hipblaslt SYSTEM INTERFACE ${OSTRAKON_HIPBLASLT_INCLUDE_DIR})
  target_link_libraries(Ostrakon::hipblaslt INTERFACE ${OSTRAKON_HIPBLASLT_LIBRARY})
endif()
