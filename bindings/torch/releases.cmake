# An extension for each torch release in QCCL_TORCH_HEADERS, with no torch installed.
set(cxx11_abi 1)  # torch's since 2.7
qccl_add_torch_stubs()

# QCCL itself, which all extensions of the wheel share.
add_library(qccl_shared SHARED ${CMAKE_CURRENT_BINARY_DIR}/stub.cc)
set_target_properties(qccl_shared PROPERTIES OUTPUT_NAME qccl LIBRARY_OUTPUT_DIRECTORY ${package}
                      LINK_LIBRARY_OVERRIDE WHOLE_ARCHIVE,qccl_extras,qccl)
target_link_libraries(qccl_shared PRIVATE qccl_extras)
install(TARGETS qccl_shared LIBRARY DESTINATION qccl COMPONENT python EXCLUDE_FROM_ALL)

file(GLOB folders ${QCCL_TORCH_HEADERS}/[0-9]*)
if(NOT folders)
  message(FATAL_ERROR "QCCL_TORCH_HEADERS=${QCCL_TORCH_HEADERS} has no headers of torch: run `make wheel`")
endif()
foreach(folder IN LISTS folders)
  cmake_path(GET folder FILENAME release)
  file(REAL_PATH ${folder}/include include)
  message(STATUS "Building qccl._C for torch ${release} with the headers in ${include}")
  qccl_add_packaged_extension(${release} ${include} qccl_shared ${stubs})
endforeach()
