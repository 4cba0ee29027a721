# libqccl_http.so, the page's HTTP server (src/dashboard/http): a module, because only those who ask for the page need
# cpp-httplib. Without its headers, `qccl dash` says that they are missing.
find_path(QCCL_HTTPLIB_INCLUDE httplib.h)
find_library(QCCL_HTTPLIB cpp-httplib)
if(NOT QCCL_HTTPLIB_INCLUDE)
  message(STATUS "No cpp-httplib (libcpp-httplib-dev): built without the page of `qccl dash`")
  return()
endif()
add_library(qccl_http MODULE ${PROJECT_SOURCE_DIR}/src/dashboard/http/http_module.cc)
target_include_directories(qccl_http PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_include_directories(qccl_http SYSTEM PRIVATE ${QCCL_HTTPLIB_INCLUDE})
target_link_libraries(qccl_http PRIVATE qccl_flags Threads::Threads)
# Debian's header declares what its library has; elsewhere the header has it all.
if(QCCL_HTTPLIB)
  target_link_libraries(qccl_http PRIVATE ${QCCL_HTTPLIB})
  # As pkg-config says: the layouts of classes depend on them.
  target_compile_definitions(qccl_http PRIVATE CPPHTTPLIB_OPENSSL_SUPPORT CPPHTTPLIB_ZLIB_SUPPORT
                                               CPPHTTPLIB_BROTLI_SUPPORT)
endif()
set_target_properties(qccl_http PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR} CXX_VISIBILITY_PRESET hidden)

if(TARGET qccl_program)
  add_dependencies(qccl_program qccl_http)
endif()
install(TARGETS qccl_http LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
