#include "nvrtc.h"

#include <tilewise/cuda/libraries.h>

#include <type_traits>

namespace tilewise::cuda {
namespace {

// From the NVRTC documentation; the interface has not changed since CUDA 11. Declared here because slim toolkits have
// no nvrtc.h.
using Handle = struct NvrtcProgram*;
using Code = int;
constexpr Code kSuccess = 0;

}  // namespace

struct Nvrtc::Functions {
  const char* (*error_text)(Code);
  Code (*version)(int*, int*);
  Code (*create)(Handle*, const char* source, const char* name, int headers, const char* const*,
                 const char* const*);
  Code (*compile)(Handle, int count, const char* const* options);
  Code (*destroy)(Handle*);
  Code (*cubin_size)(Handle, std::size_t*);
  Code (*cubin)(Handle, char*);
  Code (*log_size)(Handle, std::size_t*);
  Code (*log)(Handle, char*);
};

Result<std::unique_ptr<Nvrtc>> Nvrtc::open(int preferred_major) {
  TW_ASSIGN(const Library library, open_library(nvrtc_library(preferred_major)));
  auto functions = std::make_shared<Functions>();
  Symbols symbols(library);
  symbols.get(functions->error_text, "nvrtcGetErrorString");
  symbols.get(functions->version, "nvrtcVersion");
  symbols.get(functions->create, "nvrtcCreateProgram");
  symbols.get(functions->compile, "nvrtcCompileProgram");
  symbols.get(functions->destroy, "nvrtcDestroyProgram");
  symbols.get(functions->cubin_size, "nvrtcGetCUBINSize");
  symbols.get(functions->cubin, "nvrtcGetCUBIN");
  symbols.get(functions->log_size, "nvrtcGetProgramLogSize");
  symbols.get(functions->log, "nvrtcGetProgramLog");
  TW_TRY(symbols.all_found());
  int major = 0, minor = 0;
  functions->version(&major, &minor);
  std::unique_ptr<Nvrtc> nvrtc(new Nvrtc);
  nvrtc->functions_ = std::move(functions);
  nvrtc->version_ = std::to_string(major) + "." + std::to_string(minor);
  nvrtc->path_ = library.path;
  return nvrtc;
}

Result<std::string> Nvrtc::compile(const std::string& source, int architecture) const {
  const Functions& f = *functions_;
  Handle program = nullptr;
  if (const Code code = f.create(&program, source.c_str(), "tilewise.cu", 0, nullptr, nullptr);
      code != kSuccess)
    return error(Errc::kInternal, std::string("nvrtcCreateProgram: ") + f.error_text(code));
  const std::string arch = "--gpu-architecture=sm_" + std::to_string(architecture);
  // No contraction: a fused program must round as its operations one by one do (D9).
  const char* const options[] = {arch.c_str(), "--std=c++20", "--fmad=false"};
  const Code compiled = f.compile(program, 3, options);
  std::string result;
  std::size_t size = 0;
  if (compiled != kSuccess) {
    if (f.log_size(program, &size) == kSuccess && size > 1) {
      result.resize(size);
      f.log(program, result.data());
    }
  } else if (f.cubin_size(program, &size) == kSuccess) {
    result.resize(size);
    f.cubin(program, result.data());
  }
  f.destroy(&program);
  if (compiled != kSuccess)
    return error(Errc::kInternal, std::string("generated CUDA source does not compile: ") +
                                      f.error_text(compiled) + "\n" + result.substr(0, 8000));
  if (result.empty()) return error(Errc::kInternal, "NVRTC returned no machine code");
  return result;
}

}  // namespace tilewise::cuda
