# Two executables: joinsum_plan_tests needs no torch; joinsum_runtime_tests links libjoinsum.so.
find_package(GTest QUIET)
if(NOT GTest_FOUND)
  message(FATAL_ERROR "joinsum: GoogleTest not found. Install it: apt-get install libgtest-dev")
endif()

add_custom_target(joinsum_tests)

# Adds the test program `name` from `sources`, linked to `library`; none when there is no source yet.
function(joinsum_test_program name library sources)
  if(NOT sources)
    message(STATUS "joinsum: no source for ${name} yet")
    return()
  endif()
  file(GLOB shared_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cpp/testing/*.cpp)
  add_executable(${name} ${sources} ${shared_sources})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests/cpp)
  target_compile_definitions(${name} PRIVATE JOINSUM_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${library} GTest::gtest_main)
  joinsum_strict(${name})
  joinsum_compile_together(${name})
  # Optimising tests takes longer than it saves them.
  target_compile_options(${name} PRIVATE -O1)
  add_test(NAME ${name} COMMAND ${name})
  add_dependencies(joinsum_tests ${name})
  # A wheel holds no tests; `make test` asks for joinsum_tests by name.
  if(SKBUILD)
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

joinsum_sources(plan_tests tests/cpp/base tests/cpp/kernels tests/cpp/relation tests/cpp/ia tests/cpp/tra tests/cpp/einsum
  tests/cpp/optimizer tests/cpp/sparse tests/paper)
joinsum_split_torch_kernels(plan_tests torch_kernel_tests)
joinsum_test_program(joinsum_plan_tests joinsum_plan "${plan_tests}")
if(TARGET joinsum_plan_tests)
  joinsum_precompile(joinsum_plan_tests <gtest/gtest.h>)
endif()

if(NOT JOINSUM_PLAN_ONLY)
  joinsum_sources(runtime_tests tests/cpp/runtime)
  # Kernels run on torch's threads, whose OpenMP the thread sanitizer does not know.
  if(NOT JOINSUM_SANITIZE STREQUAL "thread")
    list(APPEND runtime_tests ${torch_kernel_tests})
  endif()
  joinsum_test_program(joinsum_runtime_tests joinsum_core "${runtime_tests}")
  if(TARGET joinsum_runtime_tests)
    joinsum_precompile(joinsum_runtime_tests
      <gtest/gtest.h> <ATen/ATen.h> <torch/csrc/distributed/c10d/ProcessGroup.hpp>)
    # The leaks found there are torch's own, kept until the process ends.
    set_tests_properties(joinsum_runtime_tests PROPERTIES ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
  endif()
endif()
