# UCX, from the first of these places that has it:
#   -DTILEWISE_UCX_ROOT=PREFIX   an installation, or the folder libucx/ of a RAPIDS wheel (libucx-cu12, libucx-cu13);
#                                $TILEWISE_UCX_PATH, where that is not given
#   pkg-config                   the system's
#   the wheel in the Python environment that is active (python3 on PATH)
# Sets TILEWISE_UCX, what to link, and TILEWISE_UCX_INCLUDE, which is empty for the system's. One that is not the system's is found at
# run time by a runpath; LD_LIBRARY_PATH goes before that (docs/operation.md).
include_guard()
set(TILEWISE_UCX_ROOT "$ENV{TILEWISE_UCX_PATH}" CACHE PATH
  "Prefix of UCX, or the folder libucx of a wheel; empty: the system's, else the Python environment's")

# Headers and the four libraries in a prefix; packages without development files have libucp.so.0 alone.
function(tilewise_find_ucx root)
  set(libraries)
  foreach(name ucp uct ucs ucm)
    set(found)
    foreach(folder lib lib64)
      foreach(suffix .so .so.0)
        if(NOT found AND EXISTS ${root}/${folder}/lib${name}${suffix})
          set(found ${root}/${folder}/lib${name}${suffix})
        endif()
      endforeach()
    endforeach()
    if(NOT found OR NOT EXISTS ${root}/include/ucp/api/ucp.h)
      message(FATAL_ERROR "No UCX in '${root}': include/ucp/api/ucp.h and lib/lib{ucp,uct,ucs,ucm}.so are looked for")
    endif()
    list(APPEND libraries ${found})
  endforeach()
  list(GET libraries 0 first)
  get_filename_component(folder ${first} DIRECTORY)
  message(STATUS "UCX: ${folder}")
  set(TILEWISE_UCX ${libraries} "-Wl,-rpath,${folder}" PARENT_SCOPE)
  set(TILEWISE_UCX_INCLUDE ${root}/include PARENT_SCOPE)
endfunction()

set(TILEWISE_UCX_INCLUDE)
if(TILEWISE_UCX_ROOT)
  tilewise_find_ucx(${TILEWISE_UCX_ROOT})
else()
  pkg_check_modules(ucx QUIET IMPORTED_TARGET ucx)
  if(TARGET PkgConfig::ucx)
    set(TILEWISE_UCX PkgConfig::ucx)
  else()
    find_program(TILEWISE_PYTHON python3)
    set(wheel)
    if(TILEWISE_PYTHON)
      execute_process(COMMAND ${TILEWISE_PYTHON} -c
        "import importlib.util as u; s = u.find_spec('libucx'); print(list(s.submodule_search_locations)[0] if s else '')"
        OUTPUT_VARIABLE wheel OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endif()
    if(NOT wheel)
      message(FATAL_ERROR "UCX is not here: install libucx-dev, or give -DTILEWISE_UCX_ROOT=PREFIX "
        "(an installation, or the folder libucx of a RAPIDS wheel)")
    endif()
    tilewise_find_ucx(${wheel})
  endif()
endif()
