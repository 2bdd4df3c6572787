# SPDX-License-Identifier: Apache-2.0
# Precompiled headers: what almost every file includes is read once for all libraries and once for all
# test programs. Every file still includes what it uses: the presets debug and tidy precompile nothing, and
# would tell.
set(HEDDLE_LIBRARY_HEADERS
  <algorithm> <array> <atomic> <chrono> <cmath> <cstdint> <cstring> <functional> <limits> <map>
  <memory> <mutex> <optional> <span> <string> <string_view> <unordered_map> <utility> <vector> <fmt/format.h>)
set(HEDDLE_TEST_HEADERS ${HEDDLE_LIBRARY_HEADERS} <random> <gmock/gmock.h> <gtest/gtest.h>)

# heddle_precompile(TARGET LIBRARY|OPTIMISED_LIBRARY|LIGHT_LIBRARY|TEST|LIGHT_TEST)
#   A compiler takes a precompiled header only where optimisation, position independence and the macros
#   it was compiled with are the same: so each kind has a target of its own that compiles it, with nothing else.
function(heddle_precompile target kind)
  if(NOT HEDDLE_PRECOMPILE)
    return()
  endif()
  string(TOLOWER heddle_precompiled_${kind} owner)
  if(NOT TARGET ${owner})
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${owner}.cpp CONTENT "")
    add_library(${owner} OBJECT ${PROJECT_BINARY_DIR}/${owner}.cpp)
    target_link_libraries(${owner} PRIVATE heddle_flags fmt::fmt)
    set(headers ${HEDDLE_LIBRARY_HEADERS})
    if(kind MATCHES "TEST$")
      set(headers ${HEDDLE_TEST_HEADERS})
      set(light "")
      if(kind STREQUAL "LIGHT_TEST")
        set(light LIGHT)
      endif()
      heddle_test_options(${owner} ${light})
      target_link_libraries(${owner} PRIVATE GTest::gmock)
    elseif(kind STREQUAL "OPTIMISED_LIBRARY")
      heddle_optimise(${owner})
    elseif(kind STREQUAL "LIGHT_LIBRARY")
      heddle_lighten(${owner})
    endif()
    if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      target_compile_options(${owner} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")  # ccache wants equal bytes
    endif()
    target_precompile_headers(${owner} PRIVATE ${headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()
