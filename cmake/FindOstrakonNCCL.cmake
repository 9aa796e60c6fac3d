# SPDX-License-Identifier: Apache-2.0
# Ostrakon::nccl: NCCL, or RCCL, which has the same functions, for a Kokkos with HIP. NCCL_ROOT or
# CMAKE_PREFIX_PATH names its folder; NVIDIA's tool kit and HPC SDK have it beside CUDA.

include(FindPackageHandleStandardArgs)

if(Kokkos_ENABLE_HIP)
  find_path(OSTRAKON_NCCL_INCLUDE_DIR rccl/rccl.h
            HINTS ENV ROCM_PATH /opt/rocm PATH_SUFFIXES include)
  find_library(OSTRAKON_NCCL_LIBRARY rccl HINTS ENV ROCM_PATH /opt/rocm PATH_SUFFIXES lib)
else()
  find_path(OSTRAKON_NCCL_INCLUDE_DIR nccl.h
            HINTS ${NCCL_ROOT} ENV NCCL_ROOT ENV NCCL_HOME ${CUDAToolkit_INCLUDE_DIRS}
            PATH_SUFFIXES include)
  find_library(OSTRAKON_NCCL_LIBRARY nccl
               HINTS ${NCCL_ROOT} ENV NCCL_ROOT ENV NCCL_HOME ${CUDAToolkit_LIBRARY_DIR}
               PATH_SUFFIXES lib lib64)
endif()
mark_as_advanced(OSTRAKON_NCCL_INCLUDE_DIR OSTRAKON_NCCL_LIBRARY)

find_package_handle_standard_args(OstrakonNCCL REQUIRED_VARS OSTRAKON_NCCL_LIBRARY
                                                             OSTRAKON_NCCL_INCLUDE_DIR)

if(OstrakonNCCL_FOUND AND NOT TARGET Ostrakon::nccl)
  add_library(Ostrakon::nccl INTERFACE IMPORTED)
  target_include_directories(Ostrakon::nccl SYSTEM INTERFACE ${OSTRAKON_NCCL_INCLUDE_DIR})
  target_link_libraries(Ostrakon::nccl INTERFACE ${OSTRAKON_NCCL_LIBRARY})
endif()
