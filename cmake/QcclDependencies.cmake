# Dependencies whose packages differ between distributions: Highway and xxHash (header) by hand
# where there is no CMake package.
if(NOT TARGET hwy::hwy)
  find_path(QCCL_HWY_INCLUDE hwy/highway.h REQUIRED)
  find_library(QCCL_HWY_LIBRARY hwy REQUIRED)
  add_library(hwy::hwy UNKNOWN IMPORTED)
  set_target_properties(hwy::hwy PROPERTIES IMPORTED_LOCATION ${QCCL_HWY_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${QCCL_HWY_INCLUDE})
endif()
find_path(QCCL_XXHASH_INCLUDE xxhash.h REQUIRED)
