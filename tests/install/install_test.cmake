# Installs, then builds and runs the outside project twice. A step that fails ends the script, and so the test.
function(run)
  list(JOIN ARGN " " line)
  message(STATUS "${line}")
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${PREFIX} ${SCRATCH})
file(MAKE_DIRECTORY ${SCRATCH})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX})
foreach(program tilewise tilewise-scheduler tilewise-worker)
  run(${PREFIX}/bin/${program} --help)
endforeach()
run(${PREFIX}/bin/tilewise demo --size 512)

run(${CMAKE_COMMAND} -S ${OUTSIDE} -B ${SCRATCH}/cmake -G Ninja -D CMAKE_CXX_COMPILER=${CXX}
  -D CMAKE_PREFIX_PATH=${PREFIX} "-D CMAKE_EXE_LINKER_FLAGS=${LINKER_FLAGS}")
run(${CMAKE_COMMAND} --build ${SCRATCH}/cmake)
run(${SCRATCH}/cmake/outside)

set(ENV{PKG_CONFIG_PATH} ${PREFIX}/lib/pkgconfig)
execute_process(COMMAND pkg-config --cflags --libs tilewise OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags} ${LINKER_FLAGS}")
run(${CXX} -std=c++20 ${OUTSIDE}/outside.cc -o ${SCRATCH}/outside ${flags})
run(${SCRATCH}/outside)
