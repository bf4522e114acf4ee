# The helpers that every folder's CMakeLists.txt uses, so that a new source file needs no edit.

find_package(GTest REQUIRED)
find_package(Threads REQUIRED)

# Every unit test program, for builds that want nothing else.
add_custom_target(caisson_unit_tests)

add_library(caisson_flags INTERFACE)
target_include_directories(caisson_flags INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include
                                                   ${CMAKE_BINARY_DIR}/generated)
target_compile_options(caisson_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
  -Wno-missing-field-initializers -fno-strict-aliasing)
target_compile_definitions(caisson_flags INTERFACE CAISSON_VERSION="${PROJECT_VERSION}" _GNU_SOURCE
  CAISSON_LIBEXECDIR="${CMAKE_INSTALL_FULL_LIBEXECDIR}/caisson")
# For what looks at switches and fault points. Everything else is compiled alike in both builds, so
# that the compiler's cache has it already.
add_library(caisson_switches INTERFACE)
if(CAISSON_TEST_SWITCHES)
  target_compile_definitions(caisson_switches INTERFACE CAISSON_TEST_SWITCHES=1)
endif()
# Test programs are compiled once for each run of theirs; what they test is optimized all the same.
add_library(caisson_test_flags INTERFACE)
target_compile_options(caisson_test_flags INTERFACE -O0)
if(CAISSON_SANITIZE)
  target_compile_options(caisson_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(caisson_flags INTERFACE -fsanitize=address,undefined)
endif()
if(CAISSON_FUZZ)
  target_compile_options(caisson_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# caisson_library(base DEPENDS …): a static library of every *.cpp of this folder (and of the named
# SUBFOLDERS) but tests and main files, and a test program caisson_<name>_test of its *_test.cpp.
# With SWITCHES both are compiled with the switches where the build has them; the files that are
# GUARDED, which include base/guards.h, are so in any case.
function(caisson_library name)
  cmake_parse_arguments(ARG "SWITCHES" "" "DEPENDS;SUBFOLDERS;TEST_DEPENDS;GUARDED" ${ARGN})
  set(patterns *.cpp)
  foreach(sub ${ARG_SUBFOLDERS})
    list(APPEND patterns ${sub}/*.cpp)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  set(guarded CAISSON_GUARDED=1)
  if(CAISSON_TEST_SWITCHES)
    list(APPEND guarded CAISSON_TEST_SWITCHES=1)
  endif()
  set_property(SOURCE ${ARG_GUARDED} APPEND PROPERTY COMPILE_DEFINITIONS ${guarded})
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "(_test|_main)\\.cpp$")
  if(sources)
    add_library(caisson_${name} STATIC ${sources})
    target_link_libraries(caisson_${name} PUBLIC caisson_flags ${ARG_DEPENDS})
  else()
    add_library(caisson_${name} INTERFACE)
    target_link_libraries(caisson_${name} INTERFACE caisson_flags ${ARG_DEPENDS})
  endif()
  if(sources AND ARG_SWITCHES)
    target_link_libraries(caisson_${name} PRIVATE caisson_switches)
  endif()
  if(tests)
    add_executable(caisson_${name}_test ${tests})
    target_link_libraries(caisson_${name}_test PRIVATE caisson_${name} ${ARG_TEST_DEPENDS} caisson_test_flags
      GTest::gtest_main GTest::gmock)
    if(ARG_SWITCHES)
      target_link_libraries(caisson_${name}_test PRIVATE caisson_switches)
    endif()
    set_target_properties(caisson_${name}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    add_dependencies(caisson_unit_tests caisson_${name}_test)
    add_test(NAME unit.${name} COMMAND caisson_${name}_test)
    set_tests_properties(unit.${name} PROPERTIES LABELS unit)
  endif()
endfunction()

# caisson_program(caisson SOURCE main.cpp DEPENDS …): a small static binary in the build folder itself.
function(caisson_program name)
  cmake_parse_arguments(ARG "DYNAMIC" "" "SOURCE;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCE})
  target_link_libraries(${name} PRIVATE ${ARG_DEPENDS})
  if(NOT ARG_DYNAMIC AND NOT CAISSON_SANITIZE)
    target_link_options(${name} PRIVATE -static -Wl,--gc-sections)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endfunction()
