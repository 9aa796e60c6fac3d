# SPDX-License-Identifier: Apache-2.0
# Compiles, and does not link, what a build with HIP calls of hipBLASLt and RCCL, against declarations
# of our own, so that it is compiled where they are not installed: the target declared_calls.
if(NOT Kokkos_ENABLE_HIP)
  return()
endif()

set(calls math/products/gemm.cpp math/products/hipblaslt_library.cpp math/products/pinned_products.cpp
          comm/nccl.cpp trainer/channels.cpp trainer/devices.cpp)
list(TRANSFORM calls PREPEND ${PROJECT_SOURCE_DIR}/src/ostrakon/)
add_library(declared_calls OBJECT EXCLUDE_FROM_ALL ${calls})
ostrakon_set_flags(declared_calls)
set_target_properties(declared_calls PROPERTIES UNITY_BUILD OFF)
target_include_directories(declared_calls BEFORE PRIVATE
  ${CMAKE_CURRENT_LIST_DIR} ${PROJECT_SOURCE_DIR}/tests)
target_compile_definitions(declared_calls PRIVATE OSTRAKON_HAVE_HIPBLASLT OSTRAKON_HAVE_NCCL)
target_link_libraries(declared_calls PRIVATE Ostrakon::ostrakon)
