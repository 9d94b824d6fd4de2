# One part = one folder = one static library `tilewise_<part>` (alias `tilewise::<part>`).
#
#   tilewise_part(<part> [COLD] [DEPS <targets used by its headers>] [PRIVATE_DEPS <targets used by its sources only>]
#                 [ALONE <sources that are compiled by themselves>])
#
# COLD: no task and no byte of a block waits for its code, so it is compiled with -O1, in two thirds of the time.
# Sources are compiled several at a time, tests too: tilewise_together says what that asks of them, and which stay ALONE.
#
# Sources are the folder's *.cc; `<file>_test.cc` files become one doctest executable `<part>_test`,
# registered with ctest. Headers live in `<folder>/include/tilewise/<part>/`. A part sees the headers
# of the parts it names and no others, so a wrong arrow does not compile.
include_guard()

add_library(tilewise_flags INTERFACE)
target_compile_features(tilewise_flags INTERFACE cxx_std_20)
# For our own build alone: a project that links Tilewise chooses its own warnings.
target_compile_options(tilewise_flags INTERFACE "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;\
-Wno-missing-field-initializers;-Werror=switch;-Werror=return-type;-fno-math-errno;-ffp-contract=off>>")
if(TILEWISE_SANITIZE)
  target_compile_options(tilewise_flags INTERFACE -fsanitize=${TILEWISE_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  if(TILEWISE_SANITIZE_NOT)
    target_compile_options(tilewise_flags INTERFACE -fno-sanitize=${TILEWISE_SANITIZE_NOT})
  endif()
  target_link_options(tilewise_flags INTERFACE -fsanitize=${TILEWISE_SANITIZE})
endif()
include(TilewisePackage)  # what `cmake --install` installs, beside the headers

# Most of a source's time is its headers and the templates that its neighbours use too: six that are compiled as one take less than
# half, and all of a library two thirds of what they take six at a time (docs/figures.md). Names in them must differ, those in unnamed namespaces too; sources where they do not, or that set up
# headers by macros, are given as `alone`. Includes stay as they are: with -DTILEWISE_UNITY=OFF each source is compiled by itself, and
# with 4, say, less is compiled again after a change.
set(TILEWISE_UNITY 24 CACHE STRING "Sources of a target compiled at a time; OFF: one")
function(tilewise_together target)  # [source that stays alone]...
  if(TILEWISE_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${TILEWISE_UNITY})
    set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)  # it takes the sources for headers
  endif()
endfunction()

function(tilewise_cold target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

function(tilewise_part part)
  cmake_parse_arguments(ARG "COLD" "" "DEPS;PRIVATE_DEPS;ALONE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  set(scope PUBLIC)
  if(sources)
    add_library(tilewise_${part} STATIC ${sources})
    tilewise_together(tilewise_${part} ${ARG_ALONE})
    target_link_libraries(tilewise_${part} PRIVATE ${ARG_PRIVATE_DEPS})
    target_include_directories(tilewise_${part} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  else()
    add_library(tilewise_${part} INTERFACE)
    set(scope INTERFACE)
  endif()
  if(ARG_COLD)
    tilewise_cold(tilewise_${part})
  endif()
  add_library(tilewise::${part} ALIAS tilewise_${part})
  target_link_libraries(tilewise_${part} ${scope} tilewise_flags ${ARG_DEPS})
  target_include_directories(tilewise_${part} ${scope}
    $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
  set_target_properties(tilewise_${part} PROPERTIES EXPORT_NAME ${part})
  if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/include)
    install(DIRECTORY include/ DESTINATION include)
  endif()
  if(TILEWISE_TESTS AND tests)
    tilewise_test(${part}_test SOURCES ${tests} ALONE ${ARG_ALONE} DEPS tilewise_${part} ${ARG_PRIVATE_DEPS})
    target_include_directories(${part}_test PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  endif()
endfunction()

# tilewise_time_limit(<seconds> <test>...): after which ctest gives a test up; with sanitizers, which make it some ten times as slow, later.
function(tilewise_time_limit seconds)
  if(TILEWISE_SANITIZE)
    math(EXPR seconds "8 * ${seconds}")
  endif()
  set_tests_properties(${ARGN} PROPERTIES TIMEOUT ${seconds})
endfunction()

# tilewise_test_program(<name> SOURCES <files> DEPS <targets> [ALONE <files>]): a doctest executable.
function(tilewise_test_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;ALONE" ${ARGN})
  if(NOT TARGET tilewise_doctest_main)  # compiled once, not once a test
    add_library(tilewise_doctest_main OBJECT ${PROJECT_SOURCE_DIR}/tests/doctest_main.cc)
    target_link_libraries(tilewise_doctest_main PRIVATE tilewise_flags)
  endif()
  add_executable(${name} ${ARG_SOURCES} $<TARGET_OBJECTS:tilewise_doctest_main>)
  tilewise_together(${name} ${ARG_ALONE})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} tilewise_flags)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  # What is tested keeps its optimisation; the tests themselves compile in half the time without.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-Og> $<$<CONFIG:Debug>:-O0> -Wno-maybe-uninitialized)  # false alarms at -Og
endfunction()

# tilewise_add_test(<name> <program> [<source>]): what ctest runs, of one source the cases that are in it. Tests of a minute and more have
# a COST (seconds, about): ctest, which has never run in a new folder, then begins with them instead of ending with one core. Tests take
# three of ctest's seven processors (`run_ctest` in ./dev), so two run at a time; the seventh is for one that mostly waits (PROCESSORS 1 RESOURCE_LOCK waits).
function(tilewise_add_test name program)
  if(ARGN)
    list(APPEND filter "--source-file=*/${ARGN}")
  endif()
  add_test(NAME ${name} COMMAND ${program} ${filter})
  set_tests_properties(${name} PROPERTIES PROCESSORS 3 SKIP_RETURN_CODE 77 FAIL_REGULAR_EXPRESSION "test cases: +0 \\|")
  tilewise_time_limit(300 ${name})
endfunction()

# tilewise_test(<name> SOURCES <files> DEPS <targets> [ALONE <files>]): a program of its own, one entry of ctest.
function(tilewise_test name)
  tilewise_test_program(${name} ${ARGN})
  tilewise_add_test(${name} ${name})
endfunction()
