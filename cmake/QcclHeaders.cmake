# Headers that most files include, compiled once: parsing them takes half of a small file's compile time. Every file
# still includes the headers it uses; the sanitizers' builds precompile nothing and fail otherwise.
#
# A target uses the headers that were compiled with its flags:
# target_precompile_headers(TARGET REUSE_FROM qccl_headers | qccl_program_headers | qccl_test_headers).
set(QCCL_HEADERS
  <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <cstdint> <cstring> <functional> <limits> <map> <memory>
  <mutex> <optional> <span> <string> <string_view> <utility> <vector> <fmt/format.h>)

# qccl_precompiled(TARGET headers...)
function(qccl_precompiled target)
  target_link_libraries(${target} PRIVATE qccl_flags fmt::fmt Threads::Threads)
  target_precompile_headers(${target} PRIVATE ${QCCL_HEADERS} ${ARGN})
  set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
endfunction()

# The library is compiled with -fPIC and programs with -fPIE, so they need separate headers.
add_library(qccl_headers OBJECT ${CMAKE_CURRENT_LIST_DIR}/headers.cc)
qccl_precompiled(qccl_headers)
# Programs and tests are compiled with -O1: less compile time than -O2, but not unoptimized, because their references
# sum megabytes.
add_library(qccl_program_flags INTERFACE)
if(CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(qccl_program_flags INTERFACE -O1)
endif()
# GoogleTest's macros end in an if, and GCC warns of it once the header is precompiled. Stacks of tests show lines.
add_library(qccl_test_flags INTERFACE)
target_compile_options(qccl_test_flags INTERFACE -Wno-dangling-else -g1)
target_link_libraries(qccl_test_flags INTERFACE qccl_program_flags)
add_executable(qccl_program_headers ${CMAKE_CURRENT_LIST_DIR}/headers.cc)
target_link_libraries(qccl_program_headers PRIVATE qccl_program_flags)
qccl_precompiled(qccl_program_headers)

if(QCCL_TESTS)
  find_package(GTest REQUIRED)
  add_executable(qccl_test_headers ${CMAKE_CURRENT_LIST_DIR}/headers.cc)
  target_link_libraries(qccl_test_headers PRIVATE qccl_test_flags GTest::gtest)
  qccl_precompiled(qccl_test_headers <gtest/gtest.h>)
endif()
