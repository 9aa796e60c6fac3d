# SPDX-License-Identifier: Apache-2.0
# ostrakon_set_flags(<target>): the compiler flags of this project's own sources.
#
# No -ffast-math: sums keep the order they are written in, and a NaN stays visible. What is given up
# is errno and floating-point traps, which nothing here reads and which stand in the way of
# vectorised loops.

function(ostrakon_set_flags target)
  target_compile_features(${target} PUBLIC cxx_std_17)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow)
  if(Ostrakon_ENABLE_SANITIZERS)
    set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=undefined
                 -fno-omit-frame-pointer)
    target_compile_options(${target} PRIVATE -O1 -g ${sanitize})
    target_link_options(${target} PRIVATE ${sanitize})
  else()
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release,RelWithDebInfo>:-O3>
                                             -fno-math-errno -fno-trapping-math)
  endif()
  if(Ostrakon_ENABLE_NATIVE)
    target_compile_options(${target} PRIVATE -march=native)
  endif()
  if(Ostrakon_ENABLE_WARNINGS_AS_ERRORS)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
endfunction()
