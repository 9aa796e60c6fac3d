# SPDX-License-Identifier: Apache-2.0
# Run by presets_test.cmake: ostrakon_check_backend for a made-up Kokkos.
cmake_minimum_required(VERSION 3.22)
include(${SOURCE}/cmake/OstrakonCheckBackend.cmake)
set(Kokkos_VERSION 4.7.1)
set(Kokkos_DIR /opt/kokkos/lib/cmake/Kokkos)
ostrakon_check_backend()
