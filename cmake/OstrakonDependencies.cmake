# SPDX-License-Identifier: Apache-2.0
# Finds what Ostrakon stands on, and says once, for all of it, what is missing and how to get it.
# The installed package config asks for the same, in a list of its own: OstrakonConfig.cmake.in.

include(OstrakonCheckBackend)

set(OSTRAKON_MISSING "")

# ostrakon_find(<package> DEBIAN <names> SPACK <names> [OPTIONAL] [ARGS ...])
macro(ostrakon_find package)
  cmake_parse_arguments(_find "OPTIONAL" "DEBIAN;SPACK" "ARGS" ${ARGN})
  find_package(${package} QUIET ${_find_ARGS})
  if(NOT ${package}_FOUND AND NOT _find_OPTIONAL)
    string(REPLACE "Ostrakon" "" _name ${package})
    string(APPEND OSTRAKON_MISSING
           "\n  ${_name}: Debian package ${_find_DEBIAN}, Spack package ${_find_SPACK}")
  endif()
endmacro()

# Open MPI's retired C++ bindings would only add warnings and a library.
set(MPI_CXX_SKIP_MPICXX TRUE)

# Kokkos first: where Teuchos comes from a Trilinos with another Kokkos, these headers win.
ostrakon_find(OstrakonKokkos DEBIAN libtrilinos-kokkos-dev SPACK kokkos)
if(OstrakonKokkos_FOUND)
  ostrakon_check_backend()
endif()
ostrakon_find(MPI DEBIAN libopenmpi-dev SPACK openmpi ARGS COMPONENTS CXX)
ostrakon_find(OstrakonTeuchos DEBIAN libtrilinos-teuchos-dev SPACK trilinos)
ostrakon_find(OstrakonYaml DEBIAN libyaml-dev SPACK libyaml)
ostrakon_find(OstrakonHDF5 DEBIAN libhdf5-openmpi-dev SPACK hdf5)
ostrakon_find(OstrakonXxHash DEBIAN libxxhash-dev SPACK xxhash)
ostrakon_find(nlohmann_json DEBIAN nlohmann-json3-dev SPACK nlohmann-json)
# What text stands on; the library itself, and what is installed of it, knows none of it.
ostrakon_find(OstrakonPCRE2 DEBIAN libpcre2-dev SPACK pcre2)
ostrakon_find(OstrakonUtf8proc DEBIAN libutf8proc-dev SPACK utf8proc)
ostrakon_find(ZLIB DEBIAN zlib1g-dev SPACK zlib)
ostrakon_find(OstrakonZstd DEBIAN libzstd-dev SPACK zstd)
find_package(Threads QUIET REQUIRED)

set(OSTRAKON_ON_DEVICE OFF)
if(Kokkos_ENABLE_CUDA OR Kokkos_ENABLE_HIP OR Kokkos_ENABLE_SYCL)
  set(OSTRAKON_ON_DEVICE ON)
  # One level, that of ostrakon_set_flags.
  string(REPLACE "-O2" "-O3" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
endif()
if(OSTRAKON_ON_DEVICE AND Ostrakon_DEVICE_KERNELS)
  message(FATAL_ERROR "Ostrakon_DEVICE_KERNELS is for a Kokkos without a device; this one has "
                      "${Kokkos_DEVICES}.")
endif()

# A device of host threads, for tests.
set(OSTRAKON_HAVE_FAKE_DEVICE OFF)
if(Ostrakon_ENABLE_TESTS AND NOT OSTRAKON_ON_DEVICE AND NOT Ostrakon_ENABLE_SANITIZERS)
  set(OSTRAKON_HAVE_FAKE_DEVICE ON)
endif()

# Threads of matrix products on the host.
set(OSTRAKON_HAVE_OPENMP OFF)
if(NOT OSTRAKON_ON_DEVICE)
  find_package(OpenMP QUIET COMPONENTS CXX)
  set(OSTRAKON_HAVE_OPENMP ${OpenMP_CXX_FOUND})
endif()

set(OSTRAKON_HAVE_CUBLAS OFF)
set(OSTRAKON_HAVE_CUPTI OFF)
if(Kokkos_ENABLE_CUDA)
  ostrakon_find(CUDAToolkit DEBIAN nvidia-cuda-toolkit SPACK cuda)
  set(OSTRAKON_HAVE_CUBLAS ${CUDAToolkit_FOUND})
  # Times of kernels, for ostrakon-bench step --kernels.
  if(TARGET CUDA::cupti)
    set(OSTRAKON_HAVE_CUPTI ON)
  endif()
endif()

set(OSTRAKON_HAVE_CUDNN OFF)
if(OSTRAKON_HAVE_CUBLAS AND Ostrakon_ENABLE_CUDNN)
  ostrakon_find(OstrakonCUDNN OPTIONAL)
  set(OSTRAKON_HAVE_CUDNN ${OstrakonCUDNN_FOUND})
endif()

set(OSTRAKON_HAVE_HIPBLASLT OFF)
if(Kokkos_ENABLE_HIP AND Ostrakon_ENABLE_HIPBLASLT)
  ostrakon_find(OstrakonHipBLASLt OPTIONAL)
  set(OSTRAKON_HAVE_HIPBLASLT ${OstrakonHipBLASLt_FOUND})
endif()

set(OSTRAKON_HAVE_NCCL OFF)
if(OSTRAKON_ON_DEVICE AND Ostrakon_ENABLE_NCCL)
  ostrakon_find(OstrakonNCCL OPTIONAL)
  set(OSTRAKON_HAVE_NCCL ${OstrakonNCCL_FOUND})
endif()

set(OSTRAKON_HAVE_ONEDNN OFF)
if(Ostrakon_ENABLE_ONEDNN)
  ostrakon_find(OstrakonOneDNN OPTIONAL)
  set(OSTRAKON_HAVE_ONEDNN ${OstrakonOneDNN_FOUND})
endif()

set(OSTRAKON_HAVE_CBLAS OFF)
if(Ostrakon_ENABLE_CBLAS)
  ostrakon_find(OstrakonCBLAS OPTIONAL)
  set(OSTRAKON_HAVE_CBLAS ${OstrakonCBLAS_FOUND})
endif()

set(OSTRAKON_HAVE_SENTENCEPIECE OFF)
if(Ostrakon_ENABLE_SENTENCEPIECE)
  ostrakon_find(OstrakonSentencePiece OPTIONAL)
  set(OSTRAKON_HAVE_SENTENCEPIECE ${OstrakonSentencePiece_FOUND})
endif()

# Arrow with Parquet, by their own packages. Older versions than 15 have not all types of strings.
set(OSTRAKON_HAVE_PARQUET OFF)
if(Ostrakon_ENABLE_PARQUET)
  ostrakon_find(Arrow OPTIONAL ARGS CONFIG)
  ostrakon_find(Parquet OPTIONAL ARGS CONFIG)
  if(Arrow_FOUND AND Parquet_FOUND AND NOT Arrow_VERSION VERSION_LESS 15)
    foreach(_kind IN ITEMS shared static)
      if(TARGET Arrow::arrow_${_kind} AND TARGET Parquet::parquet_${_kind})
        set(OSTRAKON_HAVE_PARQUET ON)
        set(OSTRAKON_PARQUET_TARGETS Parquet::parquet_${_kind} Arrow::arrow_${_kind})
        break()
      endif()
    endforeach()
  endif()
  set(OSTRAKON_PARQUET_STANDARD cxx_std_17)
  if(Arrow_VERSION VERSION_GREATER_EQUAL 22)
    set(OSTRAKON_PARQUET_STANDARD cxx_std_20)
  endif()
endif()

if(OSTRAKON_MISSING)
  string(JOIN "" _message
         "Ostrakon can't be built: not found:" "${OSTRAKON_MISSING}" "\n"
         "On Debian or Ubuntu, scripts/setup installs all of it. Elsewhere install these packages "
         "with Spack (spack/README.md) and `spack load` them, or name their folders in "
         "CMAKE_PREFIX_PATH.")
  message(FATAL_ERROR "${_message}")
endif()
