# The kernels for GPUs, compiled into the library as images (src/device/kernel_images.h). CUDA's compiler is called by
# custom commands, not as a language of CMake's: it needs no driver, no GPU and no CUDA runtime, and the library links
# nothing of CUDA. Without the compiler everything else is the same.
include(${CMAKE_CURRENT_LIST_DIR}/QcclNvcc.cmake)
set(QCCL_DEVICE_KERNELS AUTO CACHE STRING "Build kernels for GPUs: ON, OFF, or AUTO: where CUDA's nvcc is found")
set_property(CACHE QCCL_DEVICE_KERNELS PROPERTY STRINGS AUTO ON OFF)
include(${CMAKE_CURRENT_LIST_DIR}/QcclArchitectures.cmake)
set(QCCL_CUDA_ARCHITECTURES 90 CACHE STRING
    "Architectures with machine code: a list, all, or native for those of the GPUs here; PTX serves the others")

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

# Compiles the kernels, if QCCL_DEVICE_KERNELS asks for them: the target qccl_device_images. AUTO is not for builds with
# sanitizers, which cannot look into them.
function(qccl_compile_device_kernels)
  if(NOT QCCL_DEVICES AND QCCL_DEVICE_KERNELS STREQUAL "ON")
    message(FATAL_ERROR "QCCL_DEVICE_KERNELS is ON, but QCCL_DEVICES is OFF")
  endif()
  if(NOT QCCL_DEVICES OR QCCL_DEVICE_KERNELS STREQUAL "OFF"
     OR (QCCL_DEVICE_KERNELS STREQUAL "AUTO" AND (QCCL_SANITIZE OR QCCL_FUZZ)))
    return()
  endif()
  qccl_find_nvcc()
  if(QCCL_NVCC)
    qccl_build_images(${PROJECT_BINARY_DIR}/device_kernels)
  elseif(QCCL_DEVICE_KERNELS STREQUAL "ON")
    message(FATAL_ERROR "QCCL_DEVICE_KERNELS is ON, but ${QCCL_NO_NVCC}")
  else()
    message(STATUS "Device kernels: none, because ${QCCL_NO_NVCC}")
  endif()
endfunction()

# qccl_add_device_kernels(TARGET): puts the images, if they are built, into its kernel_images.cc.
function(qccl_add_device_kernels target)
  if(NOT TARGET qccl_device_images)
    return()
  endif()
  set(folder ${PROJECT_BINARY_DIR}/device_kernels)
  get_property(architectures GLOBAL PROPERTY QCCL_CUBIN_ARCHITECTURES)
  set(definitions "QCCL_CUBINS_FILE=\"${folder}/cubins.fatbin\"" "QCCL_PTX_FILE=\"${folder}/kernels.ptx\""
                  "QCCL_CUBIN_ARCHITECTURES=\"${architectures}\"")
  set_source_files_properties(
    ${PROJECT_SOURCE_DIR}/src/device/kernel_images.cc TARGET_DIRECTORY ${target}
    PROPERTIES OBJECT_DEPENDS "${folder}/cubins.fatbin;${folder}/kernels.ptx" COMPILE_DEFINITIONS "${definitions}")
  add_dependencies(${target} qccl_device_images)
endfunction()

function(qccl_build_images folder)
  file(MAKE_DIRECTORY ${folder})
  get_filename_component(tools ${QCCL_NVCC} REALPATH)
  get_filename_component(tools ${tools} DIRECTORY)
  find_program(fatbinary fatbinary HINTS ${tools} REQUIRED NO_CACHE)  # the compiler's, also where that is another
  find_program(ptxas ptxas HINTS ${tools} REQUIRED NO_CACHE)
  qccl_architectures("${QCCL_CUDA_ARCHITECTURES}" architectures)
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
  # Tests run PTX on the CPU: the image's, and what the compiler makes for the newest architecture.
  list(GET QCCL_EVERY_CUDA_ARCHITECTURE -1 newest)
  set_property(GLOBAL PROPERTY QCCL_TESTED_PTX 75 ${newest})
  foreach(architecture IN ITEMS 75 ${newest})
    qccl_nvcc(${folder}/compute_${architecture}.ptx -ptx -arch=compute_${architecture})
    add_custom_target(qccl_compute_${architecture} DEPENDS ${folder}/compute_${architecture}.ptx)
  endforeach()
  # Says that it is of PTX 7.0, of CUDA 11.0, so that old drivers take it; ptxas checks that it is, for the tests. Which
  # bytes of a load are used is only a hint, of PTX 8.3.
  add_custom_command(
    OUTPUT ${folder}/kernels.ptx
    COMMAND sed -e "s/^\\.version .*/.version 7.0/" -e "/used_bytes_mask/d" ${folder}/compute_75.ptx
            > ${folder}/kernels.ptx
    DEPENDS ${folder}/compute_75.ptx
    VERBATIM)
  add_custom_command(
    OUTPUT ${folder}/checked.cubin
    COMMAND ${ptxas} -O0 -arch=sm_75 ${folder}/kernels.ptx -o ${folder}/checked.cubin
    DEPENDS ${folder}/kernels.ptx
    VERBATIM)
  add_custom_target(qccl_checked_ptx DEPENDS ${folder}/checked.cubin)
  add_dependencies(qccl_tests qccl_checked_ptx)
  add_custom_target(qccl_device_images DEPENDS ${folder}/cubins.fatbin ${folder}/kernels.ptx)
  list(JOIN architectures ", " architectures)
  set_property(GLOBAL PROPERTY QCCL_CUBIN_ARCHITECTURES "${architectures}")
  message(STATUS "Device kernels: PTX and machine code for sm_${architectures}, by ${QCCL_NVCC}")
endfunction()
