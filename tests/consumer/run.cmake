# Installs QCCL, moves the installation, then configures, builds and runs against it: project/, with the program of
# docs/failures.md, and the project that docs/testing.md shows.
# Arguments: source, build (QCCL's), work (a folder to fill), shared, compiler, fake_cuda (the fake driver's folder).
# The shared library is built beside `build`, where ccache sees the same relative paths, and without kernels for GPUs.

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# CUDA's driver is loaded at run time, and nothing else of CUDA is needed.
function(refuse_links_to_cuda file)
  execute_process(COMMAND readelf --wide --dynamic --dyn-syms ${file} OUTPUT_VARIABLE links COMMAND_ERROR_IS_FATAL ANY)
  if(NOT links MATCHES "NEEDED.*UND ")
    message(FATAL_ERROR "${file} links nothing: ${links}")
  endif()
  if(links MATCHES "(NEEDED[^\n]*lib(cu|nv)|UND _*(cu[A-Z]|cuda|nv))[^\n]*")
    message(FATAL_ERROR "${file} links to CUDA: ${CMAKE_MATCH_0}")
  endif()
endfunction()

# The program of a build without kernels for GPUs moves their memory all the same.
function(run_without_kernels program)
  execute_process(COMMAND ${program} doctor OUTPUT_VARIABLE said)
  if(NOT said MATCHES "device kernels +none: built without CUDA's nvcc")
    message(FATAL_ERROR "kernels, although none were asked for: ${said}")
  endif()
  run(${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${fake_cuda} ${program} perf all_reduce -b 64K -e 1M -f 16 -g 2 -n 1
      --device cuda --compression none,minmax:bits=4)
endfunction()

# Everything between ```LANGUAGE and ``` on the page, as one file.
function(write_code_blocks page language file)
  file(READ ${page} rest)
  set(fence "```${language}\n")
  string(LENGTH "${fence}" fence_length)
  set(code "")
  string(FIND "${rest}" "${fence}" begin)
  while(NOT begin EQUAL -1)
    math(EXPR begin "${begin} + ${fence_length}")
    string(SUBSTRING "${rest}" ${begin} -1 rest)
    string(FIND "${rest}" "```" end)
    string(SUBSTRING "${rest}" 0 ${end} block)
    string(SUBSTRING "${rest}" ${end} -1 rest)
    string(APPEND code "${block}\n")
    string(FIND "${rest}" "${fence}" begin)
  endwhile()
  if(code STREQUAL "")
    message(FATAL_ERROR "${page} has no ${language}")
  endif()
  file(WRITE ${file} "${code}")
endfunction()

file(REMOVE_RECURSE ${work}/first_prefix ${work}/prefix ${work}/project ${work}/app ${work}/documented
     ${work}/refused)
if(shared)
  set(build ${build}-shared)
  run(${CMAKE_COMMAND} -S ${source} -B ${build} -G Ninja -D CMAKE_BUILD_TYPE=Release -D BUILD_SHARED_LIBS=ON
      -D CMAKE_CXX_COMPILER=${compiler} -D QCCL_TESTS=OFF -D QCCL_BENCHMARKS=OFF
      -D QCCL_DEVICE_KERNELS=OFF)
  run(${CMAKE_COMMAND} --build ${build})
  run_without_kernels(${build}/qccl)
endif()
run(${CMAKE_COMMAND} --install ${build} --prefix ${work}/first_prefix)
file(RENAME ${work}/first_prefix ${work}/prefix)

file(GLOB version_file ${work}/prefix/lib*/cmake/qccl/qcclConfigVersion.cmake)
include(${version_file})  # sets PACKAGE_VERSION
file(COPY ${CMAKE_CURRENT_LIST_DIR}/project DESTINATION ${work})
write_code_blocks(${source}/docs/failures.md cpp ${work}/project/failures.cc)
run(${CMAKE_COMMAND} -S ${work}/project -B ${work}/app -G Ninja -D CMAKE_CXX_COMPILER=${compiler}
    -D CMAKE_PREFIX_PATH=${work}/prefix -D qccl_prefix=${work}/prefix -D qccl_version=${PACKAGE_VERSION}
    -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF)
run(${CMAKE_COMMAND} --build ${work}/app)
file(GLOB libraries ${work}/prefix/lib*/libqccl*.so)
foreach(file IN ITEMS ${libraries} ${work}/app/app ${work}/app/training)
  refuse_links_to_cuda(${file})
endforeach()
run(${CMAKE_COMMAND} -E env --unset=RANK --unset=WORLD_SIZE ${work}/app/app)
run(${CMAKE_COMMAND} -E env --unset=RANK --unset=WORLD_SIZE ${work}/app/training)
run(${CMAKE_COMMAND} -E env --unset=RANK --unset=WORLD_SIZE ${work}/app/failures)

set(page ${source}/docs/testing.md)
write_code_blocks(${page} cmake ${work}/documented/CMakeLists.txt)
write_code_blocks(${page} cpp ${work}/documented/sum_test.cc)
write_code_blocks(${page} sh ${work}/documented/commands.sh)
run(${CMAKE_COMMAND} -E env PREFIX=${work}/prefix CXX=${compiler} CMAKE_GENERATOR=Ninja
    ${CMAKE_COMMAND} -E chdir ${work}/documented sh -ex commands.sh)

# Remove the component's targets, as in an installation built without GoogleTest.
file(GLOB_RECURSE targets ${work}/prefix/qcclTestingTargets*.cmake)
file(REMOVE ${targets})
execute_process(COMMAND ${CMAKE_COMMAND} -S ${work}/documented -B ${work}/refused -G Ninja
                        -D CMAKE_CXX_COMPILER=${compiler} -D CMAKE_PREFIX_PATH=${work}/prefix
                RESULT_VARIABLE code ERROR_VARIABLE message)
if(code EQUAL 0 OR NOT message MATCHES "QCCL_TESTING=ON")
  message(FATAL_ERROR "a missing component was not refused with what to do: ${message}")
endif()
