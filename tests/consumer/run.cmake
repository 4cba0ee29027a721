# Installs QCCL, moves the installation, then configures, builds and runs project/ against it.
# Arguments: source, build (QCCL's), work (a folder to fill), shared, compiler.
# The shared library is built beside `build`, where ccache sees the same relative paths.

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${work}/first_prefix ${work}/prefix ${work}/project ${work}/app)
if(shared)
  set(build ${build}-shared)
  run(${CMAKE_COMMAND} -S ${source} -B ${build} -G Ninja -D CMAKE_BUILD_TYPE=Release -D BUILD_SHARED_LIBS=ON
      -D CMAKE_CXX_COMPILER=${compiler} -D QCCL_TESTS=OFF -D QCCL_BENCHMARKS=OFF -D QCCL_TOOLS=OFF)
  run(${CMAKE_COMMAND} --build ${build})
endif()
run(${CMAKE_COMMAND} --install ${build} --prefix ${work}/first_prefix)
file(RENAME ${work}/first_prefix ${work}/prefix)

file(COPY ${CMAKE_CURRENT_LIST_DIR}/project DESTINATION ${work})
run(${CMAKE_COMMAND} -S ${work}/project -B ${work}/app -G Ninja -D CMAKE_CXX_COMPILER=${compiler}
    -D CMAKE_PREFIX_PATH=${work}/prefix -D qccl_prefix=${work}/prefix -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF)
run(${CMAKE_COMMAND} --build ${work}/app)
run(${CMAKE_COMMAND} -E env --unset=RANK --unset=WORLD_SIZE ${work}/app/app)
