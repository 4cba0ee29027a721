# Installs QCCL, moves the installation, then configures, builds and runs against it: project/, with the program of
# docs/failures.md, and the project that docs/testing.md shows.
# Arguments: source, build (QCCL's), work (a folder to fill), shared, compiler.
# The shared library is built beside `build`, where ccache sees the same relative paths.

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
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
      -D CMAKE_CXX_COMPILER=${compiler} -D QCCL_TESTS=OFF -D QCCL_BENCHMARKS=OFF -D QCCL_TOOLS=OFF)
  run(${CMAKE_COMMAND} --build ${build})
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
