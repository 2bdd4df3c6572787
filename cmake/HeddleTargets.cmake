# SPDX-License-Identifier: Apache-2.0
# heddle_unity(TARGET BATCH [file...]): compiles so many of the target's files together as one, which takes half
# as long (tests two thirds): all of them read the same headers. Their anonymous namespaces share no name. The
# files named are compiled alone, as are kernels that Highway compiles anew for every target, and those with
# functions for one target: compilers take two of a name for versions of one. With HEDDLE_UNITY off, all are.
# CMake's own UNITY_BUILD writes absolute paths into the files it makes, so that every checkout would compile them
# anew; these are the same everywhere, for one compiler cache.
function(heddle_unity target batch)
  if(NOT HEDDLE_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE separate)
  foreach(source ${sources})
    get_filename_component(file ${source} ABSOLUTE)
    if(EXISTS ${file})
      file(STRINGS ${file} found LIMIT_COUNT 1 REGEX "<hwy/foreach_target.h>|attribute__..target")
      if(found)
        list(APPEND separate ${source})
      endif()
    endif()
  endforeach()
  list(REMOVE_ITEM sources ${separate})
  set(others ${sources})
  list(FILTER sources INCLUDE REGEX "\\.cpp$")
  list(FILTER others EXCLUDE REGEX "\\.cpp$")
  set(directory ${CMAKE_CURRENT_BINARY_DIR}/unity/${target})
  set(index 0)
  set(together "")
  while(sources)
    list(LENGTH sources left)
    if(left GREATER batch)
      list(SUBLIST sources 0 ${batch} part)
      list(SUBLIST sources ${batch} -1 sources)
    else()
      set(part ${sources})
      set(sources "")
    endif()
    set(content "")
    foreach(source ${part})
      get_filename_component(source ${source} ABSOLUTE)
      file(RELATIVE_PATH source ${directory} ${source})
      string(APPEND content "#include \"${source}\"\n")
    endforeach()
    set(file ${directory}/${index}.cpp)
    file(CONFIGURE OUTPUT ${file} CONTENT "${content}" @ONLY)  # untouched where it has not changed
    list(APPEND together ${file})
    math(EXPR index "${index} + 1")
  endwhile()
  set_property(TARGET ${target} PROPERTY SOURCES ${together} ${separate} ${others})
endfunction()

# heddle_optimise(TARGET): at -O1 in debug builds, too.
function(heddle_optimise target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Debug>:-O1>)
endfunction()

# heddle_lighten(TARGET): at -Os in release builds. Such code is full of JSON and of templates; it compiles in two
# thirds of the time that -O2 takes, as at -O1, and is a third smaller than at -O1.
function(heddle_lighten target)
  target_compile_options(${target} PRIVATE
    $<$<CONFIG:Release>:-Os> $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endfunction()

# heddle_library(FOLDER [OPTIMISED|LIGHT] [OWN_BENCHES] [TESTS_APART] [APART file...] [DEPENDS folder...]
#                [LINK target...] [TEST_LINK target...] [TEST_SHARDS count])
#   One library per folder of src/: every .cpp below it, less *_test, *_bench and *_fuzz; with HEDDLE_CUDA every
#   .cu in place of the files called without_cuda.cpp. Links only the folders named in DEPENDS, so that the
#   arrows of src/README.md also hold at link time. With OWN_BENCHES the *_bench.cpp belong to the library:
#   `heddle bench` runs them. Beside it:
#     heddle_FOLDER_test   all *_test.cpp, run by ctest
#     heddle_FOLDER_bench  all *_bench.cpp, with HEDDLE_BENCHMARKS (Google Benchmark)
#     NAME_fuzz            each *_fuzz.cpp, with HEDDLE_FUZZ (libFuzzer)
function(heddle_library folder)
  cmake_parse_arguments(ARG "OPTIMISED;LIGHT;OWN_BENCHES;TESTS_APART" "TEST_SHARDS" "APART;DEPENDS;LINK;TEST_LINK"
    ${ARGN})
  set(name heddle_${folder})
  set(root ${PROJECT_SOURCE_DIR}/src/${folder})

  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${root}/*.cpp)
  file(GLOB_RECURSE tests CONFIGURE_DEPENDS ${root}/*_test.cpp)
  file(GLOB_RECURSE benches CONFIGURE_DEPENDS ${root}/*_bench.cpp)
  if(ARG_OWN_BENCHES)
    set(benches "")
  endif()
  file(GLOB_RECURSE fuzzers CONFIGURE_DEPENDS ${root}/*_fuzz.cpp)
  if(sources AND (tests OR benches OR fuzzers))
    list(REMOVE_ITEM sources ${tests} ${benches} ${fuzzers})
  endif()
  if(HEDDLE_CUDA)
    file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${root}/*.cu)
    set(hopper_sources ${cuda_sources})
    list(FILTER hopper_sources INCLUDE REGEX "_sm90\\.cu$")
    list(FILTER cuda_sources EXCLUDE REGEX "_sm90\\.cu$")
    list(FILTER sources EXCLUDE REGEX "/without_cuda\\.cpp$")
    list(APPEND sources ${cuda_sources})
  endif()

  list(TRANSFORM ARG_DEPENDS PREPEND heddle_)
  if(sources)
    add_library(${name} STATIC ${sources})
    target_link_libraries(${name} PUBLIC heddle_flags ${ARG_DEPENDS} PRIVATE ${ARG_LINK})
    if(ARG_OPTIMISED)
      heddle_optimise(${name})
      heddle_precompile(${name} OPTIMISED_LIBRARY)
    elseif(ARG_LIGHT)
      heddle_lighten(${name})
      heddle_precompile(${name} LIGHT_LIBRARY)
    else()
      heddle_precompile(${name} LIBRARY)
    endif()
    heddle_unity(${name} 16 ${ARG_APART})
    if(HEDDLE_CUDA AND cuda_sources)
      # Linked only: C++ compiles as in a build without CUDA, and is taken from its cache.
      target_link_libraries(${name} PRIVATE $<LINK_ONLY:CUDA::cudart_static>)
    endif()
    if(HEDDLE_CUDA AND hopper_sources)  # with instructions that only this architecture has
      add_library(${name}_sm90 OBJECT ${hopper_sources})
      target_link_libraries(${name}_sm90 PRIVATE heddle_flags ${ARG_DEPENDS})
      set_target_properties(${name}_sm90 PROPERTIES CUDA_ARCHITECTURES 90a-real)
      target_sources(${name} PRIVATE $<TARGET_OBJECTS:${name}_sm90>)
    endif()
  else()  # headers only
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE heddle_flags ${ARG_DEPENDS})
  endif()

  if(HEDDLE_TESTS AND tests)
    heddle_test(${name}_test SHARDS ${ARG_TEST_SHARDS} SOURCES ${tests}
      LINK ${name} ${ARG_LINK} ${ARG_TEST_LINK})
    if(NOT ARG_TESTS_APART)
      heddle_unity(${name}_test 12)
    endif()
  endif()
  if(HEDDLE_BENCHMARKS AND benches)
    add_executable(${name}_bench ${benches})
    target_link_libraries(${name}_bench PRIVATE ${name} ${ARG_LINK} benchmark::benchmark_main)
    target_compile_definitions(${name}_bench PRIVATE HEDDLE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  endif()
  if(HEDDLE_FUZZ)
    foreach(fuzzer ${fuzzers})
      get_filename_component(fuzz_name ${fuzzer} NAME_WE)
      heddle_fuzzer(${fuzz_name} SOURCES ${fuzzer} LINK ${name} ${ARG_LINK} ${ARG_TEST_LINK})
    endforeach()
  endif()
endfunction()

# heddle_test_options(TARGET [LIGHT]): how test code compiles. At -O1, which takes a third off the build and is still
# quick; LIGHT suites, which mostly wait for what they test, at -O0, which takes off another third. At -O1 g++ takes a
# std::variant for uninitialised. No -fPIE, which an object library, as the one that precompiles for tests, could not
# have; g++ on Debian does it unasked.
function(heddle_test_options target)
  cmake_parse_arguments(ARG "LIGHT" "" "" ${ARGN})
  set(level -O1)
  if(ARG_LIGHT)
    set(level -O0)
  endif()
  target_compile_options(${target} PRIVATE
    $<$<CONFIG:Release>:${level}> $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
endfunction()

# heddle_test(heddle_FOLDER_test [LIGHT] [KIND kind] [SHARDS count] SOURCES file... LINK target...)
#   A GoogleTest program, known to ctest and to `./run test`. Its labels are FOLDER and its kind: unit (the
#   default), integration, oracle or server. With SHARDS its cases are dealt out to as many ctest tests, so that
#   the longest programs do not keep one core busy at the end while the others idle. Each test leaves the
#   report of GoogleTest in BUILD/test-results/NAME.json.
function(heddle_test name)
  cmake_parse_arguments(ARG "LIGHT" "KIND;SHARDS" "SOURCES;LINK" ${ARGN})
  set(light "")
  set(precompiled TEST)
  if(ARG_LIGHT)
    set(light LIGHT)
    set(precompiled LIGHT_TEST)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  heddle_test_options(${name} ${light})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} heddle_test_support GTest::gmock GTest::gtest_main)
  heddle_precompile(${name} ${precompiled})
  set_property(GLOBAL APPEND PROPERTY HEDDLE_TEST_PROGRAMS ${name})

  string(REGEX REPLACE "^heddle_(.*)_test$" "\\1" folder ${name})
  if(NOT ARG_KIND)
    set(ARG_KIND unit)
  endif()
  if(NOT ARG_SHARDS)
    set(ARG_SHARDS 1)
  endif()
  foreach(shard RANGE 1 ${ARG_SHARDS})
    set(test ${name})
    set(environment "")
    if(ARG_SHARDS GREATER 1)
      string(APPEND test -${shard}of${ARG_SHARDS})
      math(EXPR index "${shard} - 1")
      set(environment GTEST_TOTAL_SHARDS=${ARG_SHARDS} GTEST_SHARD_INDEX=${index})
    endif()
    add_test(NAME ${test} COMMAND ${HEDDLE_TEST_LAUNCHER} $<TARGET_FILE:${name}> --gtest_color=no)
    set_tests_properties(${test} PROPERTIES
      LABELS "${folder};${ARG_KIND}"
      COST ${ARG_SHARDS}  # the long ones first
      ENVIRONMENT "GTEST_OUTPUT=json:${CMAKE_BINARY_DIR}/test-results/${test}.json;${environment}")
  endforeach()
endfunction()

# heddle_fuzzer(NAME SOURCES file... LINK target...)
#   A libFuzzer program: one LLVMFuzzerTestOneInput(). Seeds may lie in tests/fuzz/corpus/NAME/.
function(heddle_fuzzer name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  heddle_optimise(${name})  # what it shares with the libraries, as of headers, is linked from here
  set_property(GLOBAL APPEND PROPERTY HEDDLE_FUZZERS ${name})
endfunction()

# Writes BUILD/test_programs.txt and BUILD/fuzz_programs.txt, one "NAME PATH" per line, for `./run test`.
function(heddle_write_program_lists)
  foreach(kind TEST_PROGRAMS FUZZERS)
    get_property(names GLOBAL PROPERTY HEDDLE_${kind})
    set(lines "")
    foreach(name ${names})
      string(APPEND lines "${name} $<TARGET_FILE:${name}>\n")
    endforeach()
    if(kind STREQUAL "FUZZERS")
      file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/fuzz_programs.txt CONTENT "${lines}")
    else()
      file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/test_programs.txt CONTENT "${lines}")
    endif()
  endforeach()
endfunction()
