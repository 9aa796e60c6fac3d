# SPDX-License-Identifier: Apache-2.0
# What a user may choose. Device support is not among it: it follows from the Kokkos that is found.
# Ostrakon_REQUIRE_BACKEND chooses nothing either: it refuses a Kokkos that has not what was meant.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, RelWithDebInfo or Debug" FORCE)
endif()

# A package manager chooses the target processor itself; a cross-compiler knows no native one.
set(_native ON)
if(CMAKE_CROSSCOMPILING OR DEFINED ENV{SPACK_CXX} OR DEFINED ENV{SPACK_ENV_PATH})
  set(_native OFF)
endif()

option(Ostrakon_ENABLE_APPS "Build the programs" ON)
option(Ostrakon_ENABLE_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(Ostrakon_ENABLE_NATIVE "Compile for the processor of this machine (-march=native)" ${_native})
option(Ostrakon_ENABLE_ONEDNN "Multiply 16-bit matrices with oneDNN where it is found" ON)
option(Ostrakon_ENABLE_HIPBLASLT "Multiply matrices on devices with hipBLASLt where it is found" ON)
option(Ostrakon_ENABLE_NCCL "Communicate between devices by NCCL or RCCL where it is found" ON)
option(Ostrakon_ENABLE_CUDNN "Compute attention on NVIDIA devices by cuDNN where it is found" ON)
option(Ostrakon_ENABLE_CBLAS "Multiply matrices of double with a CBLAS where it is found" ON)
option(Ostrakon_ENABLE_SENTENCEPIECE "Read tokenizer.model with SentencePiece where it is found" ON)
option(Ostrakon_ENABLE_PARQUET "Read Parquet with Arrow where it is found" ON)
option(Ostrakon_ENABLE_WARNINGS_AS_ERRORS "Treat compiler warnings as errors" OFF)
option(Ostrakon_ENABLE_SANITIZERS "Build with the address and undefined-behaviour sanitizers" OFF)
option(Ostrakon_DEVICE_KERNELS
       "Kernels take the form that they have on a device, on Kokkos' host backend: for tests" OFF)
option(Ostrakon_ENABLE_HEADER_CHECKS "Compile every public header by itself" OFF)
set(_check_views OFF)
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(_check_views ON)
endif()
option(Ostrakon_ENABLE_VIEW_CHECKS "Check each index into a view" ${_check_views})
set(Ostrakon_REQUIRE_BACKEND "" CACHE STRING
    "Refuse a Kokkos without this backend: OPENMP, CUDA, HIP, ...; empty: take any")
option(BUILD_SHARED_LIBS "Build a shared library" OFF)

# Kokkos asks for plain ISO C++. The standard is a feature of the library (C++17 at least), never a
# fixed CMAKE_CXX_STANDARD, so that a newer Kokkos can raise it.
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
