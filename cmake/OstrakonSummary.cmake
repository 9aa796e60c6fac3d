# SPDX-License-Identifier: Apache-2.0
# What was found, in a few lines.

# The same choice as in src/ostrakon/math/products/gemm.cpp: the host's libraries serve the host only.
if(OSTRAKON_HAVE_CUBLAS)
  set(_gemm "cuBLAS")
elseif(OSTRAKON_ON_DEVICE)
  set(_gemm "a plain kernel: slow")
  message(WARNING "Matrix products by a plain kernel: slow; Ostrakon calls no BLAS of this device yet.")
else()
  set(_gemm "own kernels (fp32)")
  if(OSTRAKON_HAVE_ONEDNN)
    string(APPEND _gemm ", oneDNN (16 bits: ${OSTRAKON_ONEDNN_LIBRARY})")
  endif()
  if(OSTRAKON_HAVE_CBLAS)
    string(APPEND _gemm ", CBLAS (double: ${OSTRAKON_CBLAS_LIBRARY})")
  endif()
  if(NOT OSTRAKON_HAVE_OPENMP)
    string(APPEND _gemm "; no OpenMP, so one thread")
  endif()
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    message(WARNING "Matrix products by plain loops: Ostrakon has no kernels for "
                    "${CMAKE_SYSTEM_PROCESSOR} yet.")
  endif()
endif()

message(STATUS "Ostrakon ${PROJECT_VERSION}")
message(STATUS "  compiler    ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, ${CMAKE_BUILD_TYPE}")
message(STATUS "  Kokkos      ${Kokkos_VERSION} ${Kokkos_DEVICES} (${Kokkos_DIR})")
message(STATUS "  MPI         ${MPI_CXX_VERSION} (${MPIEXEC_EXECUTABLE})")
message(STATUS "  HDF5        ${OSTRAKON_HDF5_LIBRARY}")
message(STATUS "  GEMM        ${_gemm}")
if(OSTRAKON_HAVE_SENTENCEPIECE)
  message(STATUS "  tokenizers  SentencePiece (${OSTRAKON_SENTENCEPIECE_LIBRARY})")
endif()
if(OSTRAKON_HAVE_NCCL)
  message(STATUS "  devices     NCCL (${OSTRAKON_NCCL_LIBRARY})")
elseif(OSTRAKON_ON_DEVICE)
  message(STATUS "  devices     by MPI, as NCCL was not found: slow")
endif()
message(STATUS "  tests ${Ostrakon_ENABLE_TESTS}, programs ${Ostrakon_ENABLE_APPS}, "
               "native ${Ostrakon_ENABLE_NATIVE}, sanitizers ${Ostrakon_ENABLE_SANITIZERS}, "
               "view checks ${Ostrakon_ENABLE_VIEW_CHECKS}")
