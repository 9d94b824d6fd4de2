# Every third-party component, found once. Debian 12 package names are listed in `./dev`.
include_guard()
find_package(Threads REQUIRED)
find_package(Boost 1.81 REQUIRED)          # headers only: Asio, Beast, System, Container, Unordered
# CapnProtoConfig looks for libatomic with a probe that only compiles as C; gcc always carries libatomic.
set(FOUND_LIBATOMIC TRUE)
find_package(CapnProto REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
include(${CMAKE_CURRENT_LIST_DIR}/TilewiseUcx.cmake)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(hwy_contrib REQUIRED IMPORTED_TARGET libhwy-contrib)
# Compressors of Zarr chunks, and HDF5 (Debian names its serial build).
pkg_check_modules(zlib REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(blosc REQUIRED IMPORTED_TARGET blosc)
# Allocators of the daemons, whose work is a million small records: a third less CPU time of the scheduler than with
# glibc's (docs/figures.md). Not under sanitizers, which bring their own.
if(NOT TILEWISE_SANITIZE)
  pkg_check_modules(jemalloc QUIET IMPORTED_TARGET jemalloc)
endif()
if(NOT TARGET PkgConfig::jemalloc)
  add_library(PkgConfig::jemalloc INTERFACE IMPORTED)
endif()
pkg_search_module(hdf5 REQUIRED IMPORTED_TARGET hdf5-serial hdf5)
