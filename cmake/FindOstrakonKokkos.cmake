# SPDX-License-Identifier: Apache-2.0
# Ostrakon::kokkos: Kokkos, from 3.4 (Debian's Trilinos) to 5.

include(FindPackageHandleStandardArgs)

# Kokkos' own config turns extensions off with a warning where they are on.
set(CMAKE_CXX_EXTENSIONS OFF)
find_package(Kokkos CONFIG QUIET)

if(Kokkos_FOUND AND TARGET Kokkos::kokkos)
  # Debian's target names /usr/lib/include, which does not exist.
  get_target_property(_include Kokkos::kokkos INTERFACE_INCLUDE_DIRECTORIES)
  foreach(_folder IN LISTS _include)
    if(NOT _folder MATCHES "^\\$<" AND NOT EXISTS "${_folder}")
      get_filename_component(_mended "${Kokkos_INCLUDE_DIRS}" ABSOLUTE)
      set_target_properties(Kokkos::kokkos PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${_mended}")
    endif()
  endforeach()

  if(NOT TARGET Ostrakon::kokkos)
    add_library(Ostrakon::kokkos INTERFACE IMPORTED)
    target_link_libraries(Ostrakon::kokkos INTERFACE Kokkos::kokkos)
    # Debian's Teuchos brings its own Kokkos library. A static Kokkos of ours must not be mixed up
    # with it: its symbols stay inside the program.
    if(TARGET Kokkos::kokkoscore AND CMAKE_SYSTEM_NAME STREQUAL "Linux")
      get_target_property(_type Kokkos::kokkoscore TYPE)
      if(_type STREQUAL "STATIC_LIBRARY")
        target_link_options(Ostrakon::kokkos INTERFACE LINKER:--exclude-libs,ALL)
      endif()
    endif()
  endif()
endif()

find_package_handle_standard_args(OstrakonKokkos REQUIRED_VARS Kokkos_DIR Kokkos_FOUND)
