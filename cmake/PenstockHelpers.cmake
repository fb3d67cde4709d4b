# The verbs that the rooms' build files use: each room's CMakeLists.txt is a list of its files.

include(GNUInstallDirs)
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(ZMQ REQUIRED IMPORTED_TARGET libzmq)
pkg_check_modules(MSGPACK REQUIRED IMPORTED_TARGET msgpack)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
# Debian's libzmq asks for `-isystem DIR` of what it links with, which CMake reads in one way when it asks
# pkg-config and in another from its cache: the second configure would compile everything anew.
set_target_properties(PkgConfig::ZMQ PROPERTIES
  INTERFACE_COMPILE_OPTIONS "" INTERFACE_INCLUDE_DIRECTORIES "${ZMQ_INCLUDEDIR}")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_C_COMPILER_LAUNCHER)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(penstock_flags INTERFACE)
target_include_directories(penstock_flags INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
target_compile_options(penstock_flags INTERFACE
  -std=c11 -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wconversion -Wvla
  -ffp-contract=off -fno-strict-aliasing -pthread
  $<$<C_COMPILER_ID:Clang>:-Wthread-safety;-Wno-pass-failed>
  $<$<BOOL:${PENSTOCK_WERROR}>:-Werror>)
target_compile_definitions(penstock_flags INTERFACE
  PENSTOCK_VERSION="${PROJECT_VERSION}"
  $<$<BOOL:${PENSTOCK_FUZZ}>:PENSTOCK_FUZZING=1>)
target_link_libraries(penstock_flags INTERFACE Threads::Threads m ${CMAKE_DL_LIBS})
if(PENSTOCK_SANITIZE)
  target_compile_options(penstock_flags INTERFACE
    -fsanitize=${PENSTOCK_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(penstock_flags INTERFACE -fsanitize=${PENSTOCK_SANITIZE})
endif()
if(PENSTOCK_FUZZ)
  target_compile_options(penstock_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

# penstock_room(NAME SOURCES a.c b_linux.c ... [DEPS room ...] [LIBS target ...])
# A static library ps_NAME of the room's files; *_linux.c get _GNU_SOURCE, the rest plain POSIX.
function(penstock_room name)
  cmake_parse_arguments(R "" "" "SOURCES;DEPS;LIBS" ${ARGN})
  add_library(ps_${name} STATIC ${R_SOURCES})
  foreach(source ${R_SOURCES})
    if(source MATCHES "_linux\\.c$")
      set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS _GNU_SOURCE)
    else()
      set_source_files_properties(${source} PROPERTIES COMPILE_DEFINITIONS
        "_POSIX_C_SOURCE=200809L;_DEFAULT_SOURCE")
    endif()
  endforeach()
  list(TRANSFORM R_DEPS PREPEND ps_)
  target_link_libraries(ps_${name} PUBLIC penstock_flags ${R_DEPS} ${R_LIBS})
  set_property(GLOBAL APPEND PROPERTY PENSTOCK_ROOMS ps_${name})
endfunction()

# penstock_test(NAME SOURCES a.c ... ROOMS room ... [ARGS ...] [LABELS ...] [TIMEOUT s])
# A cmocka program run by ctest; exit code 77 means skipped.  Those below tests/unit/ have the label unit too.
function(penstock_test name)
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;ROOMS;ARGS;LABELS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "/tests/unit/")
    list(APPEND T_LABELS unit)
    list(REMOVE_DUPLICATES T_LABELS)
  endif()
  pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
  add_executable(${name} ${T_SOURCES})
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
  list(TRANSFORM T_ROOMS PREPEND ps_)
  target_link_libraries(${name} PRIVATE ${T_ROOMS} penstock_flags PkgConfig::CMOCKA)
  add_test(NAME ${name} COMMAND ${name} ${T_ARGS})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT ${T_TIMEOUT}
    LABELS "${T_LABELS}")
endfunction()

# penstock_fuzz(NAME SOURCES a.c ROOMS room ... [CORPUS dir])
# A libFuzzer target; without PENSTOCK_FUZZ the same file is built with tests/fuzz/replay_main.c, which
# runs the committed corpus once, as a test.
function(penstock_fuzz name)
  cmake_parse_arguments(F "" "CORPUS" "SOURCES;ROOMS" ${ARGN})
  list(TRANSFORM F_ROOMS PREPEND ps_)
  if(PENSTOCK_FUZZ)
    add_executable(${name} ${F_SOURCES})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${name} ${F_SOURCES} ${CMAKE_SOURCE_DIR}/tests/fuzz/replay_main.c)
    add_test(NAME ${name} COMMAND ${name} ${F_CORPUS})
    set_tests_properties(${name} PROPERTIES LABELS fuzz TIMEOUT 120)
  endif()
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
  target_link_libraries(${name} PRIVATE ${F_ROOMS} penstock_flags)
endfunction()
