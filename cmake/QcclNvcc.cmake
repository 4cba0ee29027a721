# CUDA's compiler, for the kernels for GPUs: from .venv-cuda (scripts/install_cuda.sh), CUDA_HOME, PATH or
# /usr/local/cuda, whichever is first. As a script, `cmake -P cmake/QcclNvcc.cmake`, it prints which one a build takes,
# or fails with the reason why it takes none.
set(QCCL_OLDEST_NVCC 12.8)  # knows all architectures of QcclDevice.cmake

# Sets QCCL_NVCC to a compiler that is new enough, or to nothing, with QCCL_NO_NVCC as the reason.
function(qccl_find_nvcc)
  if(QCCL_NVCC AND NOT EXISTS ${QCCL_NVCC})
    unset(QCCL_NVCC CACHE)
  endif()
  set(own ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../.venv-cuda/nvcc)
  find_program(QCCL_NVCC nvcc HINTS ${own} ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT QCCL_NVCC)
    set(QCCL_NO_NVCC "CUDA's nvcc is neither in PATH nor CUDA_HOME; scripts/install_cuda.sh installs it" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${QCCL_NVCC} --version OUTPUT_VARIABLE text ERROR_QUIET)
  string(REGEX MATCH "release ([0-9.]+)" found "${text}")
  if(NOT found OR CMAKE_MATCH_1 VERSION_LESS QCCL_OLDEST_NVCC)
    set(QCCL_NO_NVCC "${QCCL_NVCC} is no nvcc of ${QCCL_OLDEST_NVCC} or later; scripts/install_cuda.sh installs one"
        PARENT_SCOPE)
    unset(QCCL_NVCC CACHE)
  endif()
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  qccl_find_nvcc()
  if(NOT QCCL_NVCC)
    message(FATAL_ERROR "${QCCL_NO_NVCC}")
  endif()
  message(STATUS "${QCCL_NVCC}")
endif()
