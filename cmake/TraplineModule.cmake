# trapline_module(NAME DEPENDS other... LINK libs...)
#
# One folder of src/ is one static library `trapline_NAME`, made of every x.cc in it. Tests (x_test.cc)
# become the binary NAME_test; fuzz targets (x_fuzz.cc) become NAME_x_fuzz each: with libFuzzer where
# TRAPLINE_FUZZ is on, else with a main that replays files, so that they cannot rot.
# A folder without sources of its own is an interface library (headers only).

add_library(trapline_options INTERFACE)
target_compile_options(trapline_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;-Wshadow>
  # g++ 12 finds overlaps in std::string's operator+ that are not there (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${TRAPLINE_WERROR}>>:-Werror>)
target_include_directories(trapline_options INTERFACE
  ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/generated)

function(trapline_module name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  set(fuzzers ${sources})
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  list(TRANSFORM ARG_DEPENDS PREPEND trapline_)

  if(sources)
    add_library(trapline_${name} STATIC ${sources})
    target_link_libraries(trapline_${name} PUBLIC trapline_options ${ARG_DEPENDS} PRIVATE ${ARG_LINK})
  else()
    add_library(trapline_${name} INTERFACE)
    target_link_libraries(trapline_${name} INTERFACE trapline_options ${ARG_DEPENDS})
  endif()

  if(TRAPLINE_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE trapline_${name} ${ARG_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
    gtest_discover_tests(${name}_test PREFIX "${name}." DISCOVERY_TIMEOUT 60
                         PROPERTIES TIMEOUT 300)
  endif()

  if(TRAPLINE_TESTS OR TRAPLINE_FUZZ)
    foreach(file ${fuzzers})
      get_filename_component(stem ${file} NAME_WE)
      set(target ${name}_${stem})
      add_executable(${target} ${file})
      target_link_libraries(${target} PRIVATE trapline_${name} ${ARG_LINK})
      if(TRAPLINE_FUZZ)
        target_link_options(${target} PRIVATE -fsanitize=fuzzer)
      else()
        target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/fuzz/replay_main.cc)
      endif()
      set_property(GLOBAL APPEND PROPERTY TRAPLINE_FUZZ_TARGETS ${target})
      if(NOT TARGET fuzzers)
        add_custom_target(fuzzers COMMENT "All fuzz targets")
      endif()
      add_dependencies(fuzzers ${target})
    endforeach()
  endif()
endfunction()
