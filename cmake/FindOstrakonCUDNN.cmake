# SPDX-License-Identifier: Apache-2.0
# Ostrakon::cudnn: cuDNN 9 and the headers of its frontend, which have a release of their own.
# CUDNN_ROOT and CUDNN_FRONTEND_ROOT, or CMAKE_PREFIX_PATH, name their folders. The frontend is in
# the Python package nvidia-cudnn-frontend, whose headers are in the folder `include` beside it.

include(FindPackageHandleStandardArgs)

find_path(OSTRAKON_CUDNN_INCLUDE_DIR cudnn.h
          HINTS ${CUDNN_ROOT} ENV CUDNN_ROOT ENV CUDNN_HOME ${CUDAToolkit_INCLUDE_DIRS}
          PATH_SUFFIXES include)
find_library(OSTRAKON_CUDNN_LIBRARY cudnn
             HINTS ${CUDNN_ROOT} ENV CUDNN_ROOT ENV CUDNN_HOME ${CUDAToolkit_LIBRARY_DIR}
             PATH_SUFFIXES lib lib64)
find_path(OSTRAKON_CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h
          HINTS ${CUDNN_FRONTEND_ROOT} ENV CUDNN_FRONTEND_ROOT
          PATH_SUFFIXES include)
mark_as_advanced(OSTRAKON_CUDNN_INCLUDE_DIR OSTRAKON_CUDNN_LIBRARY
                 OSTRAKON_CUDNN_FRONTEND_INCLUDE_DIR)

# Sets <variable> to the numbers of these macros in a header, with points between them.
function(ostrakon_read_version header variable)
  set(_numbers "")
  if(EXISTS ${header})
    file(READ ${header} _text)
    foreach(_macro IN LISTS ARGN)
      if(_text MATCHES "#define ${_macro} +([0-9]+)")
        list(APPEND _numbers ${CMAKE_MATCH_1})
      endif()
    endforeach()
  endif()
  string(REPLACE ";" "." _version "${_numbers}")
  set(${variable} "${_version}" PARENT_SCOPE)
endfunction()
ostrakon_read_version("${OSTRAKON_CUDNN_INCLUDE_DIR}/cudnn_version.h" OSTRAKON_CUDNN_VERSION
                      CUDNN_MAJOR CUDNN_MINOR CUDNN_PATCHLEVEL)
# Newer packages have versioned headers that the plain one includes.
if(NOT OSTRAKON_CUDNN_VERSION)
  ostrakon_read_version("${OSTRAKON_CUDNN_INCLUDE_DIR}/cudnn_version_v9.h" OSTRAKON_CUDNN_VERSION
                        CUDNN_MAJOR CUDNN_MINOR CUDNN_PATCHLEVEL)
endif()
ostrakon_read_version("${OSTRAKON_CUDNN_FRONTEND_INCLUDE_DIR}/cudnn_frontend_version.h"
                      OSTRAKON_CUDNN_FRONTEND_VERSION CUDNN_FRONTEND_MAJOR_VERSION
                      CUDNN_FRONTEND_MINOR_VERSION CUDNN_FRONTEND_PATCH_VERSION)

# Older versions of either have defects with strides and masks that newer ones refuse.
set(_cudnn_is_new_enough "")
if(OSTRAKON_CUDNN_VERSION VERSION_GREATER_EQUAL 9.19
   AND OSTRAKON_CUDNN_FRONTEND_VERSION VERSION_GREATER_EQUAL 1.32)
  set(_cudnn_is_new_enough ON)
endif()
find_package_handle_standard_args(
  OstrakonCUDNN REQUIRED_VARS OSTRAKON_CUDNN_LIBRARY OSTRAKON_CUDNN_INCLUDE_DIR
                              OSTRAKON_CUDNN_FRONTEND_INCLUDE_DIR _cudnn_is_new_enough)

if(OstrakonCUDNN_FOUND AND NOT TARGET Ostrakon::cudnn)
  add_library(Ostrakon::cudnn INTERFACE IMPORTED)
  target_include_directories(Ostrakon::cudnn SYSTEM INTERFACE ${OSTRAKON_CUDNN_FRONTEND_INCLUDE_DIR}
                                                              ${OSTRAKON_CUDNN_INCLUDE_DIR})
  # The frontend's headers call the driver and NVRTC.
  target_link_libraries(Ostrakon::cudnn INTERFACE ${OSTRAKON_CUDNN_LIBRARY} CUDA::nvrtc
                                                  CUDA::cuda_driver)
endif()
