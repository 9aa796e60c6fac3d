# SPDX-License-Identifier: Apache-2.0
# Ostrakon::yaml: libyaml, which reads YAML.

include(FindPackageHandleStandardArgs)

find_path(OSTRAKON_YAML_INCLUDE_DIR yaml.h)
find_library(OSTRAKON_YAML_LIBRARY yaml)
mark_as_advanced(OSTRAKON_YAML_INCLUDE_DIR OSTRAKON_YAML_LIBRARY)

find_package_handle_standard_args(OstrakonYaml REQUIRED_VARS OSTRAKON_YAML_LIBRARY
                                                             OSTRAKON_YAML_INCLUDE_DIR)

if(OstrakonYaml_FOUND AND NOT TARGET Ostrakon::yaml)
  add_library(Ostrakon::yaml INTERFACE IMPORTED)
  target_include_directories(Ostrakon::yaml SYSTEM INTERFACE ${OSTRAKON_YAML_INCLUDE_DIR})
  target_link_libraries(Ostrakon::yaml INTERFACE ${OSTRAKON_YAML_LIBRARY})
endif()
