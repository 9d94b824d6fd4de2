#include <dlfcn.h>
#include <tilewise/cuda/driver.h>

namespace tilewise::cuda {
namespace {

#define TW_STRING_OF(x) #x
#define TW_SYMBOL(name) TW_STRING_OF(name)  // expands cuda.h's renaming first

Result<const Driver*> open_driver() {
  // RTLD_GLOBAL: cuBLAS and the run-time API look the driver up by its soname.
  void* handle = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) return error(Errc::kUnavailable, "no CUDA driver: libcuda.so.1 cannot be opened");
  static Driver table;
#define TW_CUDA_LOOKUP(name) \
  table.name##_ = reinterpret_cast<decltype(table.name##_)>(::dlsym(handle, TW_SYMBOL(name))); \
  if (table.name##_ == nullptr) \
    return error(Errc::kUnavailable, "the CUDA driver is too old: it has no " TW_SYMBOL(name));
  TW_CUDA_FUNCTIONS(TW_CUDA_LOOKUP)
#undef TW_CUDA_LOOKUP
  if (const CUresult code = table.cuInit_(0); code != CUDA_SUCCESS)
    return error(Errc::kUnavailable, cuda_error(table, code, "cuInit").message);
  if (table.cuDriverGetVersion_(&table.version) != CUDA_SUCCESS) table.version = 0;
  return &table;
}

}  // namespace

Result<const Driver*> driver() {
  static const Result<const Driver*> opened = open_driver();
  return opened;
}

Error cuda_error(const Driver& driver, CUresult code, std::string_view doing) {
  const char *name = nullptr, *text = nullptr;
  driver.cuGetErrorName_(code, &name);
  driver.cuGetErrorString_(code, &text);
  std::string message(doing);
  message += ": ";
  message += name ? name : "CUDA error " + std::to_string(static_cast<int>(code));
  if (text) message += std::string(" (") + text + ")";
  return error(code == CUDA_ERROR_OUT_OF_MEMORY ? Errc::kOutOfMemory : Errc::kDeviceError,
               std::move(message));
}

Status Context::make_current() const {
  TW_CUDA_TRY(*driver, cuCtxSetCurrent, "cuCtxSetCurrent on cuda:" + std::to_string(ordinal), context);
  return {};
}

}  // namespace tilewise::cuda
