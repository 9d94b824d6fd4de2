# CUDA as Tilewise needs it to build: the header <cuda.h>, nothing else. The module speaks the driver API through
# dlopen and compiles its kernels with NVRTC at run time, so it wants neither nvcc nor a library of the toolkit, and a
# binary built with it starts on a machine without a driver.
#
# Sets TILEWISE_CUDA_FOUND and, where true, the target tilewise_cuda_headers.
include_guard()

set(TILEWISE_CUDA_FOUND FALSE)
if(TILEWISE_CUDA)
  find_program(TILEWISE_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin)
  set(nvcc_root "")
  if(TILEWISE_NVCC)
    file(REAL_PATH ${TILEWISE_NVCC} nvcc_file)
    cmake_path(GET nvcc_file PARENT_PATH nvcc_root)
    cmake_path(GET nvcc_root PARENT_PATH nvcc_root)
  endif()
  find_path(TILEWISE_CUDA_INCLUDE cuda.h
    HINTS ${CUDAToolkit_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH} ${nvcc_root} /usr/local/cuda
    PATH_SUFFIXES include targets/x86_64-linux/include targets/sbsa-linux/include)
  if(TILEWISE_CUDA_INCLUDE)
    set(TILEWISE_CUDA_FOUND TRUE)
    if(NOT TARGET tilewise_cuda_headers)  # the guard above holds for one folder; several include this file
      add_library(tilewise_cuda_headers INTERFACE)
      target_include_directories(tilewise_cuda_headers SYSTEM INTERFACE $<BUILD_INTERFACE:${TILEWISE_CUDA_INCLUDE}>)
      message(STATUS "CUDA: ${TILEWISE_CUDA_INCLUDE}/cuda.h")
    endif()
  else()
    message(STATUS "CUDA: no cuda.h found, building without (set CUDA_HOME or CUDAToolkit_ROOT)")
  endif()
endif()
