# `cmake --install`: headers, library and the package that find_package(qccl) reads.
include(CMakePackageConfigHelpers)

set(QCCL_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/qccl)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/qccl DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS qccl qccl_extras EXPORT qcclTargets)
install(EXPORT qcclTargets NAMESPACE qccl:: DESTINATION ${QCCL_PACKAGE_DIR})
# In a separate file, because only projects that ask for the component need GoogleTest.
if(TARGET qccl_testing)
  install(TARGETS qccl_testing EXPORT qcclTestingTargets)
  install(EXPORT qcclTestingTargets NAMESPACE qccl:: DESTINATION ${QCCL_PACKAGE_DIR})
endif()

configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/qcclConfig.cmake.in ${PROJECT_BINARY_DIR}/qcclConfig.cmake
                              INSTALL_DESTINATION ${QCCL_PACKAGE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/qcclConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/qcclConfig.cmake ${PROJECT_BINARY_DIR}/qcclConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/QcclHighway.cmake
        DESTINATION ${QCCL_PACKAGE_DIR})
