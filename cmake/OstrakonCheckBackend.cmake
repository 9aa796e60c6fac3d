# SPDX-License-Identifier: Apache-2.0
# ostrakon_check_backend(): an error where Ostrakon_REQUIRE_BACKEND names a backend that the Kokkos
# that was found does not have. Without this the presets would build for what is there, in silence.

function(ostrakon_check_backend)
  if(NOT Ostrakon_REQUIRE_BACKEND)
    return()
  endif()
  string(TOUPPER "${Ostrakon_REQUIRE_BACKEND}" required)
  set(found ${Kokkos_DEVICES})
  string(TOUPPER "${found}" found)
  if(required IN_LIST found)
    return()
  endif()
  string(JOIN ", " shown ${found})
  message(FATAL_ERROR
    "Ostrakon_REQUIRE_BACKEND=${Ostrakon_REQUIRE_BACKEND}: the Kokkos that was found is built "
    "without it. Found: Kokkos ${Kokkos_VERSION} with ${shown}, in ${Kokkos_DIR}. Name another "
    "one in Kokkos_ROOT or CMAKE_PREFIX_PATH, or take a preset that fits this one (debian, ci).")
endfunction()
