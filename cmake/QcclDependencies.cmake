# The dependencies of the library itself. Tests, benchmarks and tools look for theirs in their own CMakeLists.txt.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
include(QcclHighway)
if(NOT TARGET hwy::hwy)
  message(FATAL_ERROR "Highway is missing: install libhwy-dev")
endif()
find_path(QCCL_XXHASH_INCLUDE xxhash.h REQUIRED)
