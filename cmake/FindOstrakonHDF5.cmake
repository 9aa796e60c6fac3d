# SPDX-License-Identifier: Apache-2.0
# Ostrakon::hdf5: HDF5's C library, parallel or serial. Debian keeps several flavours side by side
# under names of their own; the one built with Open MPI comes first.

include(FindPackageHandleStandardArgs)

find_path(OSTRAKON_HDF5_INCLUDE_DIR hdf5.h
          HINTS ${HDF5_ROOT} ENV HDF5_ROOT ENV HDF5_DIR
          PATH_SUFFIXES include hdf5/openmpi hdf5/mpich hdf5/serial)
if(OSTRAKON_HDF5_INCLUDE_DIR MATCHES "/hdf5/(openmpi|mpich|serial)$")
  set(_name hdf5_${CMAKE_MATCH_1})
else()
  set(_name hdf5)
endif()
get_filename_component(_prefix "${OSTRAKON_HDF5_INCLUDE_DIR}" DIRECTORY)
find_library(OSTRAKON_HDF5_LIBRARY ${_name} HINTS ${_prefix} PATH_SUFFIXES lib lib64)
mark_as_advanced(OSTRAKON_HDF5_INCLUDE_DIR OSTRAKON_HDF5_LIBRARY)

find_package_handle_standard_args(OstrakonHDF5 REQUIRED_VARS OSTRAKON_HDF5_LIBRARY
                                                             OSTRAKON_HDF5_INCLUDE_DIR)

if(OstrakonHDF5_FOUND AND NOT TARGET Ostrakon::hdf5)
  add_library(Ostrakon::hdf5 INTERFACE IMPORTED)
  target_include_directories(Ostrakon::hdf5 SYSTEM INTERFACE ${OSTRAKON_HDF5_INCLUDE_DIR})
  target_link_libraries(Ostrakon::hdf5 INTERFACE ${OSTRAKON_HDF5_LIBRARY})
  # hdf5.h of a parallel HDF5 includes mpi.h.
  find_package(MPI QUIET COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    target_link_libraries(Ostrakon::hdf5 INTERFACE MPI::MPI_CXX)
  endif()
endif()
