# The kernels for GPUs, compiled into the library as images (src/device/kernel_images.h). CUDA's compiler is called by
# custom commands, not as a language of CMake's: it needs no driver, no GPU and no CUDA runtime, and the library links
# nothing of CUDA. Without the compiler everything else is the same.
include(${CMAKE_CURRENT_LIST_DIR}/QcclNvcc.cmake)
set(QCCL_DEVICE_KERNELS AUTO CACHE STRING "Build kernels for GPUs: ON, OFF, or AUTO: where CUDA's nvcc is found")
set_property(CACHE QCCL_DEVICE_KERNELS PROPERTY STRINGS AUTO ON OFF)
set(QCCL_CUDA_ARCHITECTURES 90 CACHE STRING "Architectures with machine code, or all; PTX serves the others")

set(QCCL_EVERY_CUDA_ARCHITECTURE 75 80 86 89 90 100 120)

# Bit for bit what the host computes: no fused operations, every one rounded to nearest, denormals are numbers. Calls of
# functions that are not of the device, constexpr or not, are errors (20011 to 20015): with --expt-relaxed-constexpr the
# compiler takes the standard library's, and drops their branches for the host (std::gcd and std::countr_zero of
# libstdc++ then give wrong numbers).
set(QCCL_NVCC_FLAGS -std=c++20 -O3 -diag-error 20011,20012,20013,20014,20015
                    -fmad=false -ftz=false -prec-div=true -prec-sqrt=true
                    -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/src -ccbin ${CMAKE_CXX_COMPILER})

# Compiles the kernels with more flags to a file.
function(qccl_nvcc output)
  set(source ${PROJECT_SOURCE_DIR}/src/kernels/device/kernels.cu)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${QCCL_NVCC} ${QCCL_NVCC_FLAGS} ${ARGN} -MD -MF ${output}.d ${source} -o ${output}
    DEPENDS ${source}
    DEPFILE ${output}.d
    COMMENT "Building device kernels ${ARGN}"
    VERBATIM)
endfunction()

# qccl_add_device_kernels(TARGET): compiles the images into its kernel_images.cc, if QCCL_DEVICE_KERNELS asks for them.
# AUTO is not for builds with sanitizers, which cannot look into them.
function(qccl_add_device_kernels target)
  if(QCCL_DEVICE_KERNELS STREQUAL "OFF" OR (QCCL_DEVICE_KERNELS STREQUAL "AUTO" AND (QCCL_SANITIZE OR QCCL_FUZZ)))
    return()
  endif()
  qccl_find_nvcc()
  if(QCCL_NVCC)
    qccl_build_images(${target})
  elseif(QCCL_DEVICE_KERNELS STREQUAL "ON")
    message(FATAL_ERROR "QCCL_DEVICE_KERNELS is ON, but ${QCCL_NO_NVCC}")
  else()
    message(STATUS "Device kernels: none, because ${QCCL_NO_NVCC}")
  endif()
endfunction()

function(qccl_build_images target)
  set(folder ${PROJECT_BINARY_DIR}/device_kernels)
  file(MAKE_DIRECTORY ${folder})
  get_filename_component(tools ${QCCL_NVCC} REALPATH)
  get_filename_component(tools ${tools} DIRECTORY)
  find_program(fatbinary fatbinary HINTS ${tools} REQUIRED NO_CACHE)  # the compiler's, also where that is another
  find_program(ptxas ptxas HINTS ${tools} REQUIRED NO_CACHE)
  set(architectures ${QCCL_CUDA_ARCHITECTURES})
  if(architectures STREQUAL "all")
    set(architectures ${QCCL_EVERY_CUDA_ARCHITECTURE})
  endif()
  foreach(architecture IN LISTS architectures)
    set(cubin ${folder}/sm_${architecture}.cubin)
    qccl_nvcc(${cubin} -cubin -arch=sm_${architecture})
    list(APPEND cubins ${cubin})
    list(APPEND images --image3=kind=elf,sm=${architecture},file=${cubin})
  endforeach()
  add_custom_command(
    OUTPUT ${folder}/cubins.fatbin
    COMMAND ${fatbinary} --64 --compress-all --compress-mode=size --create=${folder}/cubins.fatbin ${images}
    DEPENDS ${cubins}
    VERBATIM)
  # Says that it is of PTX 7.0, of CUDA 11.0, so that old drivers take it; ptxas checks that it is. Which bytes of a load
  # are used is only a hint, of PTX 8.3.
  qccl_nvcc(${folder}/newest.ptx -ptx -arch=compute_75)
  add_custom_command(
    OUTPUT ${folder}/kernels.ptx
    COMMAND sed -e "s/^\\.version .*/.version 7.0/" -e "/used_bytes_mask/d" ${folder}/newest.ptx > ${folder}/kernels.ptx
    COMMAND ${ptxas} -O0 -arch=sm_75 ${folder}/kernels.ptx -o ${folder}/checked.cubin
    DEPENDS ${folder}/newest.ptx
    VERBATIM)
  list(JOIN architectures ", " architectures)
  set(definitions "QCCL_CUBINS_FILE=\"${folder}/cubins.fatbin\"" "QCCL_PTX_FILE=\"${folder}/kernels.ptx\""
                  "QCCL_CUBIN_ARCHITECTURES=\"${architectures}\"")
  set_source_files_properties(
    ${PROJECT_SOURCE_DIR}/src/device/kernel_images.cc TARGET_DIRECTORY ${target}
    PROPERTIES OBJECT_DEPENDS "${folder}/cubins.fatbin;${folder}/kernels.ptx" COMPILE_DEFINITIONS "${definitions}")
  message(STATUS "Device kernels: PTX and machine code for sm_${architectures}, by ${QCCL_NVCC}")
endfunction()
