# One extension, for the torch that QCCL_PYTHON has.
execute_process(
  COMMAND ${QCCL_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/describe_torch.py
  OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_VARIABLE problem RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${problem}Or name an interpreter that has torch with -DQCCL_PYTHON=")
endif()
list(GET answer 0 torch_version)
list(GET answer 1 torch_directory)
list(GET answer 2 cxx11_abi)
message(STATUS "Building qccl._C for torch ${torch_version} in ${torch_directory}")

string(REGEX MATCH "^[0-9]+\\.[0-9]+" release ${torch_version})
list(TRANSFORM torch_libraries REPLACE "(.+)" "${torch_directory}/lib/lib\\1.so" OUTPUT_VARIABLE installed_libraries)
qccl_add_packaged_extension(${release} ${torch_directory}/include qccl_extras ${installed_libraries})

# `make build` keeps one extension up to date. One for another release would be loaded as it was, from older sources.
file(GLOB others ${package}/torch_*)
list(REMOVE_ITEM others ${package}/torch_${release})
if(others)
  file(REMOVE_RECURSE ${others})
endif()
