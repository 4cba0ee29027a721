# The extension for another machine's Python and torch, of which it takes only headers: target qccl_torch_packed, which
# scripts/pack_gpu.sh builds.
set(QCCL_PACKED_PYTHON "" CACHE FILEPATH "Python interpreter of the version to pack for")
set(QCCL_PACKED_TORCH "" CACHE PATH "Headers of the torch to pack for: .torch-headers/2.11")
if(NOT QCCL_PACKED_PYTHON OR NOT QCCL_PACKED_TORCH)
  return()
endif()
block()
  qccl_ask_python(${QCCL_PACKED_PYTHON})
  qccl_add_torch_stubs()
  set(cxx11_abi 1)  # torch's since 2.7
  set(package ${PROJECT_BINARY_DIR}/packed/qccl)
  file(REAL_PATH ${QCCL_PACKED_TORCH} headers)
  cmake_path(GET headers FILENAME release)
  qccl_add_extension(qccl_torch_packed ${release} ${headers}/include qccl_extras ${stubs})
  set_target_properties(qccl_torch_packed PROPERTIES EXCLUDE_FROM_ALL ON)
endblock()
