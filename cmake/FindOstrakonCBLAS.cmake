# SPDX-License-Identifier: Apache-2.0
# Ostrakon::cblas: any BLAS with the C interface; OpenBLAS where it is there.

include(CheckCXXSourceCompiles)
include(CMakePushCheckState)
include(FindPackageHandleStandardArgs)

find_path(OSTRAKON_CBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES openblas)
find_library(OSTRAKON_CBLAS_LIBRARY NAMES openblas blis cblas)
mark_as_advanced(OSTRAKON_CBLAS_INCLUDE_DIR OSTRAKON_CBLAS_LIBRARY)

if(OSTRAKON_CBLAS_INCLUDE_DIR AND OSTRAKON_CBLAS_LIBRARY)
  cmake_push_check_state(RESET)
  set(CMAKE_REQUIRED_QUIET ON)
  set(CMAKE_REQUIRED_INCLUDES ${OSTRAKON_CBLAS_INCLUDE_DIR})
  set(CMAKE_REQUIRED_LIBRARIES ${OSTRAKON_CBLAS_LIBRARY})
  check_cxx_source_compiles("#include <cblas.h>
    int main() { float x = 1; cblas_sscal(1, 2, &x, 1); }" OSTRAKON_CBLAS_LINKS)
  check_cxx_source_compiles("extern \"C\" void openblas_set_num_threads(int);
    int main() { openblas_set_num_threads(1); }" OSTRAKON_OPENBLAS_LINKS)
  cmake_pop_check_state()
endif()

find_package_handle_standard_args(OstrakonCBLAS REQUIRED_VARS OSTRAKON_CBLAS_LIBRARY
                                  OSTRAKON_CBLAS_INCLUDE_DIR OSTRAKON_CBLAS_LINKS)

if(OstrakonCBLAS_FOUND AND NOT TARGET Ostrakon::cblas)
  add_library(Ostrakon::cblas INTERFACE IMPORTED)
  target_include_directories(Ostrakon::cblas SYSTEM INTERFACE ${OSTRAKON_CBLAS_INCLUDE_DIR})
  target_link_libraries(Ostrakon::cblas INTERFACE ${OSTRAKON_CBLAS_LIBRARY})
  target_compile_definitions(Ostrakon::cblas INTERFACE OSTRAKON_HAVE_CBLAS
    $<$<BOOL:${OSTRAKON_OPENBLAS_LINKS}>:OSTRAKON_HAVE_OPENBLAS>)
endif()
