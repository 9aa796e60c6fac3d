# SPDX-License-Identifier: Apache-2.0
# Ostrakon::teuchos: parameter lists, their YAML and XML parsers, and timers over ranks.
# One target over Debian's Teuchos (13.2, plain library names) and newer ones (namespaced targets).
# Only src/ostrakon/config includes its headers.

include(FindPackageHandleStandardArgs)

find_package(Teuchos CONFIG QUIET)

if(Teuchos_FOUND AND NOT TARGET Ostrakon::teuchos)
  add_library(Ostrakon::teuchos INTERFACE IMPORTED)
  if(TARGET TeuchosComm::all_libs)
    target_link_libraries(Ostrakon::teuchos INTERFACE TeuchosComm::all_libs
                                                      TeuchosParameterList::all_libs)
  else()
    # The four that are used, not ${Teuchos_LIBRARIES}, which drags in LAPACK.
    get_filename_component(_include "${Teuchos_INCLUDE_DIRS}" ABSOLUTE)
    target_include_directories(Ostrakon::teuchos SYSTEM INTERFACE "${_include}")
    foreach(_part comm parameterlist parser core)
      foreach(_library trilinos_teuchos${_part} teuchos${_part})
        if(TARGET ${_library})
          target_link_libraries(Ostrakon::teuchos INTERFACE ${_library})
          break()
        endif()
      endforeach()
    endforeach()
  endif()
endif()

find_package_handle_standard_args(OstrakonTeuchos REQUIRED_VARS Teuchos_DIR Teuchos_FOUND)
