# SPDX-License-Identifier: Apache-2.0
# The libraries Heddle stands on, all from Debian 12.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED)
find_package(OpenSSL 3 REQUIRED)
# fmt is linked, not header-only: its definitions would cost three seconds in each of 150 files.
foreach(package hwy nlohmann_json simdjson CLI11 fmt spdlog prometheus-cpp yaml-cpp)
  find_package(${package} REQUIRED)
endforeach()
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(EDIT REQUIRED IMPORTED_TARGET libedit)
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(JPEG REQUIRED IMPORTED_TARGET libjpeg)
pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng>=1.6.37)
pkg_check_modules(WEBP REQUIRED IMPORTED_TARGET libwebp>=1.2.4)
# CVE-2023-4863 is mended in 1.3.2 and in Debian 12's 1.2.4-0.2+deb12u1. pkg-config does not say which 1.2.4 it is.
if(WEBP_VERSION VERSION_LESS 1.3.2)
  execute_process(COMMAND dpkg-query -W -f "\${Version}" libwebp7
    OUTPUT_VARIABLE webp_package RESULT_VARIABLE webp_unknown ERROR_QUIET)
  if(NOT webp_unknown EQUAL 0)
    message(WARNING "libwebp ${WEBP_VERSION}: dpkg does not know it, so check that it has the fix of CVE-2023-4863")
  else()
    execute_process(COMMAND dpkg --compare-versions "${webp_package}" ge 1.2.4-0.2+deb12u1 RESULT_VARIABLE webp_old)
    if(NOT webp_old EQUAL 0)
      message(FATAL_ERROR "libwebp7 is ${webp_package}, which lacks the fix of CVE-2023-4863: "
        "install 1.2.4-0.2+deb12u1 or later")
    endif()
  endif()
endif()
# The dashboard's Markdown lexer (MIT) becomes a part of the program.
find_file(MARKED_JS javascript/marked/marked.min.js PATHS /usr/share /usr/local/share)
if(NOT MARKED_JS)
  message(FATAL_ERROR "javascript/marked/marked.min.js is not below /usr/share: install libjs-marked, "
    "or name the file with -DMARKED_JS=FILE")
endif()
if(HEDDLE_TESTS OR HEDDLE_BENCHMARKS OR HEDDLE_FUZZ)
  find_package(GTest REQUIRED)
  find_package(ZLIB REQUIRED)  # writes PNG files
endif()
if(HEDDLE_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()

# oneDNN is found by hand: its CMake package asks for OpenCL headers nobody needs here. It runs one
# thread inside each of our workers, so OpenMP's own pool must be told to stay at one (gomp).
if(HEDDLE_ONEDNN)
  find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.hpp REQUIRED)
  find_library(DNNL_LIBRARY dnnl REQUIRED)
  file(GLOB GOMP_HINTS /usr/lib/gcc/*/*)
  find_library(GOMP_LIBRARY gomp REQUIRED PATHS ${GOMP_HINTS})
  add_library(heddle_onednn INTERFACE)
  target_include_directories(heddle_onednn SYSTEM INTERFACE ${DNNL_INCLUDE})
  target_link_libraries(heddle_onednn INTERFACE ${DNNL_LIBRARY} ${GOMP_LIBRARY})
endif()
