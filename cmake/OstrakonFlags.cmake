# SPDX-License-Identifier: Apache-2.0
# ostrakon_set_flags(<target> [O0|O1]): the compiler flags of this project's own sources.
#
# No -ffast-math: sums keep the order they are written in, and a NaN stays visible. What is given up
# is errno and floating-point traps, which nothing here reads and which stand in the way of
# vectorised loops.
#
# O1: programs, tests and the library of the fake device. What takes time is in the library of the
# host, so they are compiled with -O1: in two thirds of the time. Inline functions of headers may come from
# there, too: their bits are the same.
# O0: tests that start programs and compute nothing.
#
# -ffp-contract=off: compilers choose by what they inline which products they fuse with a sum. Kernels
# say it instead, by multiply_add (math/portability.hpp): bits are the same in all sources that see a
# kernel, of this project and of users. On a device this is so as well: a kernel that does at once what
# others do one after the other has their bits. For nvcc's device code the flag is --fmad=false.
#
# Compilers take the last of several levels. nvcc takes one alone, and its wrapper warns of each file
# that is given more: with a device all sources have the level of the build type.

set(OSTRAKON_FUSES_NOTHING -ffp-contract=off)
if(Kokkos_ENABLE_CUDA)
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(--fmad=false OSTRAKON_COMPILER_IS_NVCC)
  if(OSTRAKON_COMPILER_IS_NVCC)
    list(APPEND OSTRAKON_FUSES_NOTHING --fmad=false)
  endif()
endif()

# Whether the processor that is compiled for fuses a product with a sum in one instruction: asked each
# time, as flags may have changed.
include(CheckCXXSourceCompiles)
unset(OSTRAKON_HAVE_FMA CACHE)
if(Ostrakon_ENABLE_NATIVE)
  set(CMAKE_REQUIRED_FLAGS -march=native)
endif()
if(TARGET Kokkos::kokkos)  # which may say a processor, too
  set(CMAKE_REQUIRED_LIBRARIES Kokkos::kokkos)
endif()
check_cxx_source_compiles("
#if !defined(__FMA__) && !defined(__ARM_FEATURE_FMA) && !defined(__FP_FAST_FMAF)
#error
#endif
int main() {}" OSTRAKON_HAVE_FMA)
unset(CMAKE_REQUIRED_FLAGS)
unset(CMAKE_REQUIRED_LIBRARIES)

function(ostrakon_set_flags target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "O0;O1" "" "")
  target_compile_features(${target} PUBLIC cxx_std_17)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow ${OSTRAKON_FUSES_NOTHING})
  if(Kokkos_ENABLE_CUDA)  # nvcc itself writes the parentheses of `double (T::*member)`
    target_compile_options(${target} PRIVATE -Wno-parentheses)
  endif()
  if(Ostrakon_ENABLE_SANITIZERS)
    set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=undefined
                 -fno-omit-frame-pointer)
    # -Og -g1 compile in half the time of -O1 -g.
    target_compile_options(${target} PRIVATE -Og -g1 ${sanitize})
    target_link_options(${target} PRIVATE ${sanitize})
  else()
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:-O3>
                                             -fno-math-errno -fno-trapping-math)
    foreach(level IN ITEMS O0 O1)
      if(arg_${level} AND NOT OSTRAKON_ON_DEVICE)
        target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-${level}>)
      endif()
    endforeach()
  endif()
  if(Ostrakon_ENABLE_NATIVE)
    target_compile_options(${target} PRIVATE -march=native)
  endif()
  if(Ostrakon_ENABLE_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()
