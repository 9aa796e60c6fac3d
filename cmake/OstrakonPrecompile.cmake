# SPDX-License-Identifier: Apache-2.0
# ostrakon_precompile_headers(<target> [<header>...] [REUSE_FROM <other>])
#
# Half of the compile time of a source are the headers of the standard library, of Kokkos and of
# GoogleTest: these are precompiled once for a target, or taken from another one with the same flags.
# Compiler wrappers of devices know no such headers. The preset `asan` has none, so that a missing
# include is found.
function(ostrakon_precompile_headers target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "REUSE_FROM" "")
  if(OSTRAKON_ON_DEVICE)
    return()
  endif()
  if(arg_REUSE_FROM)
    target_precompile_headers(${target} REUSE_FROM ${arg_REUSE_FROM})
  else()
    target_precompile_headers(${target} PRIVATE
      <Kokkos_Core.hpp> <algorithm> <filesystem> <fstream> <functional> <map> <memory> <optional>
      <sstream> <string> <vector> ${arg_UNPARSED_ARGUMENTS})
  endif()
endfunction()
