// libnvrtc for tests: "machine code" is the source, which the emulated driver compiles. What NVRTC says about sources is
// tested with the real one (kernels/cuda/cuda_source_test.cc).
#include <cstring>
#include <string>

namespace {
struct Program {
  std::string source;
};
constexpr int kSuccess = 0, kInvalidInput = 3;
}  // namespace

extern "C" {

const char* nvrtcGetErrorString(int code) { return code == kSuccess ? "success" : "refused"; }
int nvrtcVersion(int* major, int* minor) {
  *major = 0;  // no cubin of another compiler can be taken for one of this
  *minor = 1;
  return kSuccess;
}
int nvrtcCreateProgram(Program** program, const char* source, const char*, int headers, const char* const*,
                       const char* const*) {
  if (headers != 0) return kInvalidInput;
  *program = new Program{std::string("// Tilewise emulation\n") + source};
  return kSuccess;
}
int nvrtcCompileProgram(Program*, int, const char* const*) { return kSuccess; }
int nvrtcDestroyProgram(Program** program) {
  delete *program;
  *program = nullptr;
  return kSuccess;
}
int nvrtcGetCUBINSize(Program* program, std::size_t* size) {
  *size = program->source.size();
  return kSuccess;
}
int nvrtcGetCUBIN(Program* program, char* to) {
  std::memcpy(to, program->source.data(), program->source.size());
  return kSuccess;
}
int nvrtcGetProgramLogSize(Program*, std::size_t* size) {
  *size = 0;
  return kSuccess;
}
int nvrtcGetProgramLog(Program*, char*) { return kSuccess; }

}  // extern "C"
