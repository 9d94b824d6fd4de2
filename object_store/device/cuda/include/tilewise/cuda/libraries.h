// Finds NVIDIA's run-time libraries (NVRTC, cuBLAS, cuSOLVER, cuFFT) where toolkits, distributions and Python wheels put them. They are
// opened by soname when first needed and never linked or carried: cuBLAS alone is half a gigabyte.
#pragma once
#include <tilewise/base/result.h>

#include <string>
#include <vector>

namespace tilewise::cuda {

struct LibrarySpec {
  std::string name;         // "nvrtc": libnvrtc.so.<major>
  std::string environment;  // "TILEWISE_NVRTC_PATH": a folder (or several, ':'), or the file itself
  std::vector<std::string>
      companions;           // opened first from the same folder, as far as they are there: file name
                            // patterns; wheels do not always set a run path
  std::vector<int> majors;  // acceptable versions, best first
};
LibrarySpec nvrtc_library(int preferred_major);
LibrarySpec cublas_library(int preferred_major);
LibrarySpec cusolver_library(int preferred_major);
LibrarySpec cufft_library(int preferred_major);

// Folders that are looked at, in order: the environment variable, CUDA_HOME and CUDA_PATH, the usual toolkit folder,
// `nvidia/*/lib` beside the site-packages of each python3 on PATH and of VIRTUAL_ENV. The loader's own path is tried
// between toolkit and Python.
std::vector<std::string> library_folders(const LibrarySpec& spec);

struct Library {
  void* handle = nullptr;  // of dlopen; never closed
  std::string path;        // where it was found, for people
};
// kUnavailable lists what was tried.
Result<Library> open_library(const LibrarySpec& spec);
// A symbol of it, or null.
void* symbol(const Library& library, const char* name);

// Fills function pointers from a library and remembers what it lacks.
class Symbols {
 public:
  explicit Symbols(const Library& library) : library_(library) {}
  template <class Function> void get(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(symbol(library_, name));
    if (function == nullptr) missing_ = name;
  }
  Status all_found() const {  // kUnavailable names library and symbol
    if (missing_.empty()) return {};
    return error(Errc::kUnavailable, library_.path + " has no " + missing_);
  }

 private:
  const Library& library_;
  std::string missing_;
};

// "nvrtc 13.0, cublas 13.1.0, cusolver ...": part of a device's numeric class. Missing libraries are left out.
std::string library_versions(int preferred_major);

}  // namespace tilewise::cuda
