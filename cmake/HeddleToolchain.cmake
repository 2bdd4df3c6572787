# SPDX-License-Identifier: Apache-2.0
# Language level, warnings, sanitizers, linker, compiler cache.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_INSTALL_RPATH "$ORIGIN/lib")
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG --compress-mode=size -Xptxas=-v")

# ccache takes what a file includes from the compiler's own list (depend mode) instead of preprocessing it
# first, and trusts precompiled headers. Paths below the root count as relative ones: so build/cuda takes what its
# host code shares with build/release from the cache, and one clone what another one has compiled.
find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_DEPEND=1
    CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()
set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CURRENT_LIST_DIR}/keep_log.sh)
if(CCACHE)
  list(APPEND CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

find_program(MOLD mold)
if(MOLD)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12.1)
    message(STATUS "mold needs g++ 12.1; using the default linker")
  else()
    add_link_options(-fuse-ld=mold)
  endif()
endif()

if(HEDDLE_CUDA)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(HEDDLE_NVCC nvcc PATHS /usr/local/cuda/bin)
    if(NOT HEDDLE_NVCC)
      message(FATAL_ERROR "HEDDLE_CUDA is ON, but there is no nvcc on PATH or in /usr/local/cuda/bin: "
        "install CUDA 13, set CUDACXX, or build with -DHEDDLE_CUDA=OFF")
    endif()
    set(CMAKE_CUDA_COMPILER ${HEDDLE_NVCC})
  endif()
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 90a-real)  # plain 90a would embed PTX as well
  endif()
  enable_language(CUDA)
  # CMake 3.25 does not know how nvcc 13 spells C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA_STANDARD 20)
  find_package(CUDAToolkit REQUIRED)
endif()

add_library(heddle_flags INTERFACE)
target_compile_options(heddle_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wconversion -Wno-missing-field-initializers
    -fno-math-errno -ffp-contract=off>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # g++ 12 sees overlaps and overflows in std::string that are not there (GCC bug 105651).
  target_compile_options(heddle_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict -Wno-array-bounds -Wno-stringop-overflow>)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # The stable algorithms of libstdc++ 12 call a function that C++20 deprecates; clang tells the caller.
  target_compile_options(heddle_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety -Werror=thread-safety -Wno-deprecated-declarations>)
endif()
target_include_directories(heddle_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)

# Sanitized builds carry line numbers only (-g1): enough for a report, half the build time of -g.
if(HEDDLE_SANITIZE)
  add_compile_options(-fsanitize=${HEDDLE_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${HEDDLE_SANITIZE})
  if(HEDDLE_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()
if(HEDDLE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "HEDDLE_FUZZ needs clang (libFuzzer), but the compiler is ${CMAKE_CXX_COMPILER_ID}: "
      "configure with -DCMAKE_CXX_COMPILER=clang++-19")
  endif()
  add_compile_options(-fsanitize=fuzzer-no-link)  # coverage for the fuzzers; harmless to the tests
endif()

# For sampled sanitizer runs, without what clang takes longest for: undefined behaviour is not looked for in headers
# of libraries nor in kernels, and Highway's kernels are compiled for AVX2 alone, where the machine has it.
# asan-full and tsan-full have everything.
if(HEDDLE_SANITIZE AND HEDDLE_QUICK_SANITIZE)
  if(HEDDLE_SANITIZE MATCHES "undefined" AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")  # g++ has no such lists
    add_compile_options(-fsanitize-ignorelist=${CMAKE_CURRENT_LIST_DIR}/quick_sanitize_ignored.txt)
  endif()
  include(CheckCXXSourceRuns)
  check_cxx_source_runs(
    "int main() { return __builtin_cpu_supports(\"avx2\") && __builtin_cpu_supports(\"fma\") ? 0 : 1; }"
    HEDDLE_HOST_HAS_AVX2)
  if(HEDDLE_HOST_HAS_AVX2)
    set(HEDDLE_QUICK_KERNELS ON)
    add_compile_options(-march=haswell -maes -mpclmul)
  endif()
endif()
