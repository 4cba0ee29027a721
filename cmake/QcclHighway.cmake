# Defines hwy::hwy from Highway's CMake package or, if the distribution ships none, from its header and library.
# Defines no target if Highway is missing.
find_package(hwy CONFIG QUIET)
if(NOT TARGET hwy::hwy)
  find_path(QCCL_HWY_INCLUDE hwy/highway.h)
  find_library(QCCL_HWY_LIBRARY hwy)
  if(QCCL_HWY_INCLUDE AND QCCL_HWY_LIBRARY)
    add_library(hwy::hwy UNKNOWN IMPORTED)
    set_target_properties(hwy::hwy PROPERTIES IMPORTED_LOCATION ${QCCL_HWY_LIBRARY}
                                              INTERFACE_INCLUDE_DIRECTORIES ${QCCL_HWY_INCLUDE})
  endif()
endif()
