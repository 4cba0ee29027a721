# Flags for every target, and the functions that make layers out of folders.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET default)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
list(APPEND CMAKE_BUILD_RPATH ${PROJECT_BINARY_DIR})  # where a built program or library finds libqccl_http.so
# An installed program finds the installed library, wherever the prefix is moved.
set(CMAKE_INSTALL_RPATH $ORIGIN/../${CMAKE_INSTALL_LIBDIR})
set(CMAKE_CXX_FLAGS_RELEASE -O2)

if(CMAKE_CXX_BYTE_ORDER STREQUAL "BIG_ENDIAN")
  message(FATAL_ERROR "QCCL's formats are little-endian and this machine is not")
endif()

# Our build folders share objects: with BASEDIR ccache compares paths relative to the source folder, with NOHASHDIR it
# ignores the paths in debug information.
find_program(QCCL_CCACHE ccache)
if(QCCL_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
      CCACHE_SLOPPINESS=pch_defines,time_macros ${QCCL_CCACHE})  # needed to cache files that use precompiled headers
endif()

# Results are byte-identical across instruction sets, so the compiler must not fuse multiply and add.
add_library(qccl_flags INTERFACE)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(qccl_flags INTERFACE  # false ones in std::string: GCC's bugs 105329, 105651
    -Wno-array-bounds -Wno-restrict -Wno-stringop-overflow -Wno-stringop-overread)
endif()
target_compile_options(qccl_flags INTERFACE -Wall -Wextra -Wno-psabi -ffp-contract=off)
# Our own continuous integration sets CI; so may that of users, who build a wheel or a part of their project.
if("$ENV{CI}" STREQUAL "true" AND PROJECT_IS_TOP_LEVEL AND NOT SKBUILD)
  set(QCCL_WERROR_DEFAULT ON)
else()
  set(QCCL_WERROR_DEFAULT OFF)
endif()
option(QCCL_WERROR "Treat warnings in our own code as errors" ${QCCL_WERROR_DEFAULT})
if(QCCL_WERROR)
  target_compile_options(qccl_flags INTERFACE -Werror)
endif()
if(QCCL_SANITIZE)
  target_compile_options(qccl_flags INTERFACE -fsanitize=${QCCL_SANITIZE} -fno-omit-frame-pointer
                                              -fno-sanitize-recover=all)
  target_link_options(qccl_flags INTERFACE -fsanitize=${QCCL_SANITIZE})
endif()
if(QCCL_FUZZ)
  target_compile_options(qccl_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# The files of a folder, or of several, become one unit: parsing the headers that they share costs more than all else.
# The sanitizers' builds compile each file alone, so that each includes what it uses.
option(QCCL_UNITY "Compile each folder of the library and of its programs as one unit" ON)

# qccl_compile_by_folder(TARGET [UNIT NAME] sources...): all of them as the unit NAME, if there is a name.
function(qccl_compile_by_folder target)
  cmake_parse_arguments(ARG "" "UNIT" "" ${ARGN})
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${QCCL_UNITY} UNITY_BUILD_MODE GROUP)
  if(QCCL_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # it takes the files of a unit for headers
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
  foreach(source IN LISTS ARG_UNPARSED_ARGUMENTS)
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(MAKE_C_IDENTIFIER "${folder}" group)
    if(ARG_UNIT)
      set(group ${ARG_UNIT})
    endif()
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
  endforeach()
endfunction()

set_property(GLOBAL PROPERTY QCCL_LAYERS "")

# qccl_layer(FOLDER [SUBFOLDERS] [UNITS folders,... ...] [FILES_ALONE paths...] [LINK libraries...]): makes every *.cc
# of src/FOLDER (not *_test.cc), with SUBFOLDERS also of its subfolders, an object of the library. A folder is compiled
# as one unit; those that UNITS names together, "." the layer's own, are one; the files of FILES_ALONE, and those of its
# folders, are compiled one by one. Tests beside the source become one program, qccl_test_FOLDER.
function(qccl_layer folder)
  cmake_parse_arguments(ARG "SUBFOLDERS" "" "UNITS;FILES_ALONE;LINK" ${ARGN})
  string(REPLACE "/" "_" name ${folder})
  set(dir ${PROJECT_SOURCE_DIR}/src/${folder})
  set(places ${dir})
  if(ARG_SUBFOLDERS)
    list(APPEND places ${dir}/*)
  endif()
  list(TRANSFORM places APPEND /*.cc OUTPUT_VARIABLE patterns)
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  if(NOT sources)
    return()
  endif()
  add_library(qccl_${name} OBJECT ${sources})
  target_link_libraries(qccl_${name} PUBLIC qccl_flags fmt::fmt Threads::Threads ${ARG_LINK})
  target_include_directories(qccl_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_precompile_headers(qccl_${name} REUSE_FROM qccl_headers)
  foreach(alone IN LISTS ARG_FILES_ALONE)
    list(FILTER sources EXCLUDE REGEX "/src/${alone}(/|$)")
  endforeach()
  foreach(unit IN LISTS ARG_UNITS)
    string(REPLACE "," ";" folders ${unit})
    list(TRANSFORM folders PREPEND ${dir}/)
    list(TRANSFORM folders REPLACE "/\\.$" "")
    set(together ${sources})
    list(TRANSFORM folders APPEND "/[^/]+$" OUTPUT_VARIABLE files)
    list(JOIN files "|" files)
    list(FILTER together INCLUDE REGEX "${files}")
    list(REMOVE_ITEM sources ${together})
    string(MAKE_C_IDENTIFIER "${name}_${unit}" group)
    qccl_compile_by_folder(qccl_${name} UNIT ${group} ${together})
  endforeach()
  qccl_compile_by_folder(qccl_${name} ${sources})
  set_property(GLOBAL APPEND PROPERTY QCCL_LAYERS ${name})
  set_property(GLOBAL PROPERTY QCCL_FOLDERS_${name} ${places})
endfunction()

# Tests and benchmarks are not built by default: these targets build them.
add_custom_target(qccl_tests)
add_custom_target(qccl_benchmarks)

# qccl_build_with(GROUP targets...): GROUP, one of the two above, builds the targets; the default build does not.
function(qccl_build_with group)
  set_target_properties(${ARGN} PROPERTIES EXCLUDE_FROM_ALL ON)
  add_dependencies(${group} ${ARGN})
endfunction()

# qccl_discover_tests(TARGET PREFIX SECONDS): registers the tests of a GoogleTest program with ctest, each with that
# timeout, and adds the program to qccl_tests.
function(qccl_discover_tests target prefix timeout)
  qccl_build_with(qccl_tests ${target})
  target_link_libraries(${target} PRIVATE qccl_test_flags)
  target_precompile_headers(${target} REUSE_FROM qccl_test_headers)
  gtest_discover_tests(${target} TEST_PREFIX ${prefix}. DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT ${timeout})
endfunction()

# One test program per layer with tests, linked with the whole library.
function(qccl_layer_tests)
  get_property(layers GLOBAL PROPERTY QCCL_LAYERS)
  foreach(name IN LISTS layers)
    get_property(places GLOBAL PROPERTY QCCL_FOLDERS_${name})
    list(TRANSFORM places APPEND /*_test.cc)
    file(GLOB tests CONFIGURE_DEPENDS ${places})
    if(tests)
      add_executable(qccl_test_${name} ${tests})
      target_link_libraries(qccl_test_${name} PRIVATE qccl_internal GTest::gtest_main)
      qccl_compile_by_folder(qccl_test_${name} ${tests})
      qccl_discover_tests(qccl_test_${name} ${name} 300)
    endif()
  endforeach()
endfunction()
