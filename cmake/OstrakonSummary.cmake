# SPDX-License-Identifier: Apache-2.0
# What was found, in a few lines.

# The same choice as in src/ostrakon/math/gemm.cpp: the host's libraries serve the host only.
set(_plain "")
if(OSTRAKON_HAVE_CUBLAS)
  set(_gemm "cuBLAS")
elseif(Kokkos_ENABLE_HIP OR Kokkos_ENABLE_SYCL)
  set(_plain "Ostrakon calls no BLAS of this device yet")
elseif(OSTRAKON_HAVE_ONEDNN)
  set(_gemm "oneDNN (${OSTRAKON_ONEDNN_LIBRARY})")
elseif(OSTRAKON_HAVE_CBLAS)
  set(_gemm "CBLAS (${OSTRAKON_CBLAS_LIBRARY})")
else()
  string(JOIN "" _plain "for speed install oneDNN (Debian: libdnnl-dev, Spack: onednn) or OpenBLAS "
                        "(Debian: libopenblas-dev, Spack: openblas)")
endif()
if(_plain)
  set(_gemm "a plain kernel: slow")
  message(WARNING "Matrix products by a plain kernel: slow; ${_plain}.")
endif()

message(STATUS "Ostrakon ${PROJECT_VERSION}")
message(STATUS "  compiler    ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, ${CMAKE_BUILD_TYPE}")
message(STATUS "  Kokkos      ${Kokkos_VERSION} ${Kokkos_DEVICES} (${Kokkos_DIR})")
message(STATUS "  MPI         ${MPI_CXX_VERSION} (${MPIEXEC_EXECUTABLE})")
message(STATUS "  HDF5        ${OSTRAKON_HDF5_LIBRARY}")
message(STATUS "  GEMM        ${_gemm}")
message(STATUS "  tests ${Ostrakon_ENABLE_TESTS}, programs ${Ostrakon_ENABLE_APPS}, "
               "native ${Ostrakon_ENABLE_NATIVE}, sanitizers ${Ostrakon_ENABLE_SANITIZERS}, "
               "view checks ${Ostrakon_ENABLE_VIEW_CHECKS}")
