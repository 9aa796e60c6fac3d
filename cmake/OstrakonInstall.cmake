# SPDX-License-Identifier: Apache-2.0
# Headers, library, package config, decks, job scripts, benchmarks, what draws, and documentation. The programs
# install themselves (apps/CMakeLists.txt).

include(CMakePackageConfigHelpers)

set(_package ${CMAKE_INSTALL_LIBDIR}/cmake/Ostrakon)

install(TARGETS ostrakon EXPORT OstrakonTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT OstrakonTargets NAMESPACE Ostrakon:: DESTINATION ${_package})

install(CODE "set(include_folder \"${CMAKE_INSTALL_INCLUDEDIR}\")")
install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/OstrakonInstallHeaders.cmake)
# Decks say paths_from: working_directory, so that nothing is written into the installation.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/input_decks ${PROJECT_SOURCE_DIR}/machines
        DESTINATION ${CMAKE_INSTALL_DATADIR}/ostrakon)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/benchmarks
        DESTINATION ${CMAKE_INSTALL_DATADIR}/ostrakon
        FILES_MATCHING PATTERN "*.py" PATTERN "*.yaml"
        PATTERN "__pycache__" EXCLUDE PATTERN "published" EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/python
        DESTINATION ${CMAKE_INSTALL_DATADIR}/ostrakon PATTERN "__pycache__" EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/jobs
        DESTINATION ${CMAKE_INSTALL_DATADIR}/ostrakon USE_SOURCE_PERMISSIONS)

# As in the sources, so that links between pages hold. GNUInstallDirs would take the project's name,
# in capitals; a folder that the user has chosen stays.
if("$CACHE{CMAKE_INSTALL_DOCDIR}" STREQUAL "")
  set(CMAKE_INSTALL_DOCDIR ${CMAKE_INSTALL_DATAROOTDIR}/doc/ostrakon)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/LICENSE
              ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_SOURCE_DIR}/CONTRIBUTING.md
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs DESTINATION ${CMAKE_INSTALL_DOCDIR}
        FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.csv" PATTERN "jobs" EXCLUDE)
# Pages beside the sources, where docs/ looks for them.
file(GLOB_RECURSE _pages RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
     ${PROJECT_SOURCE_DIR}/src/ostrakon/*README.md)
foreach(_page IN LISTS _pages)
  get_filename_component(_room ${_page} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${_page} DESTINATION ${CMAKE_INSTALL_DOCDIR}/${_room})
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES ${PROJECT_SOURCE_DIR}/spack/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}/spack)

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/OstrakonConfig.cmake.in
  ${PROJECT_BINARY_DIR}/OstrakonConfig.cmake INSTALL_DESTINATION ${_package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/OstrakonConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/OstrakonConfig.cmake
  ${PROJECT_BINARY_DIR}/OstrakonConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindOstrakonCBLAS.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindOstrakonHDF5.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindOstrakonHipBLASLt.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindOstrakonKokkos.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindOstrakonCUDNN.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindOstrakonNCCL.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindOstrakonOneDNN.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindOstrakonTeuchos.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindOstrakonXxHash.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindOstrakonYaml.cmake
  DESTINATION ${_package})
