// libcuda.so.1 for tests: the functions of the driver that Tilewise uses, on the host. Modules are source text (nvrtc.cc),
// device memory is mapped apart so that an access outside of it ends the process, streams are threads.
//
// TILEWISE_EMULATED_GPUS says how many GPUs there are (1), TILEWISE_EMULATED_FAULT names a file that breaks them when it comes,
// TILEWISE_EMULATED_BAD_KERNEL a word: kernels whose source has it break them.
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "programs.h"
#include "streams.h"
#include "threads.h"

using tilewise::emulated::Grid;
using tilewise::emulated::Mark;
using tilewise::emulated::Program;
using tilewise::emulated::Queue;

struct CUctx_st {
  int ordinal = 0;
};
struct CUstream_st {
  Queue queue;
};
struct CUevent_st {
  std::mutex mutex;
  std::shared_ptr<Mark> mark;
};
struct CUfunc_st {
  Program* program = nullptr;
  std::string name;
};
struct CUmod_st {
  Program* program = nullptr;
  std::vector<std::unique_ptr<CUfunc_st>> functions;
};

namespace {

// Those of a GPU that is broken are never unloaded: no leak of ours.
struct Modules {
  std::mutex mutex;
  std::set<CUmodule> all;
};
Modules& modules() {
  static Modules* const one = new Modules;
  return *one;
}

constexpr std::size_t kMemoryBytes = std::size_t{8} << 30;
constexpr int kMostGpus = 8;

bool has_dead_lender();

// A sticky error, as after a kernel's illegal access: the first process that finds the file while it launches or asks takes it.
void look_for_fault() {
  static const char* const file = std::getenv("TILEWISE_EMULATED_FAULT");
  if (file == nullptr || ::access(file, F_OK) != 0) return;
  std::string how;
  std::getline(std::ifstream(file), how);
  if (::unlink(file) != 0) return;
  tilewise::emulated::hangs = how == "hangs";
  tilewise::emulated::broken = true;
}

// A driver that takes the memory of a dead process away from those who have it open, who fail when they next do anything.
void look_for_dead_lenders() {
  static const bool wanted = std::getenv("TILEWISE_EMULATED_LENDERS_BREAK") != nullptr;
  if (wanted && has_dead_lender()) tilewise::emulated::broken = true;
}

// Whether the kernels of this source break the context when they run.
bool is_bad(const std::string& source) {
  static const char* const word = std::getenv("TILEWISE_EMULATED_BAD_KERNEL");
  return word != nullptr && source.find(word) != std::string::npos;
}

int gpu_count() {
  const char* const said = std::getenv("TILEWISE_EMULATED_GPUS");
  return said == nullptr ? 1 : std::clamp(std::atoi(said), 0, kMostGpus);
}
CUctx_st contexts[kMostGpus] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
thread_local CUcontext current_context = nullptr;

// What the driver knows about addresses.
struct Range {
  std::size_t bytes = 0, mapped = 0;
  bool device = false, registered = false;
  int file = -1;     // of device memory: shared with whoever opens it
  pid_t lender = 0;  // whose it is, if another process's
};
struct Memory {
  std::mutex mutex;
  std::map<std::uintptr_t, Range> ranges;
};
Memory& memory() {
  static Memory* const one = new Memory;
  return *one;
}
std::size_t page() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
std::size_t whole_pages(std::size_t bytes) { return (bytes + page() - 1) / page() * page(); }

// Between two pages that nobody may touch.
char* map_guarded(std::size_t bytes, int file) {
  const std::size_t inner = whole_pages(bytes);
  void* const all =
      ::mmap(nullptr, inner + 2 * page(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  char* const start = static_cast<char*>(all) + page();
  const int flags = MAP_FIXED | (file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
  if (::mmap(start, inner, PROT_READ | PROT_WRITE, flags, file, 0) == MAP_FAILED) return nullptr;
  return start;
}
void unmap_guarded(std::uintptr_t start, std::size_t bytes) {
  ::munmap(reinterpret_cast<void*>(start - page()), whole_pages(bytes) + 2 * page());
}

// A test may load allocators that refuse (tests/conformance/refusals.cc); else all is had.
bool refuses_pinned() {
  static const auto refuses = reinterpret_cast<bool (*)()>(::dlsym(RTLD_DEFAULT, "tilewise_refuses_pinned"));
  return refuses != nullptr && refuses();
}

CUresult allocate(bool device, std::size_t bytes, void** out) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > kMemoryBytes || (!device && refuses_pinned())) return CUDA_ERROR_OUT_OF_MEMORY;
  const int file = device ? ::memfd_create("emulated-gpu", MFD_CLOEXEC) : -1;
  if (device && (file < 0 || ::ftruncate(file, static_cast<off_t>(whole_pages(bytes))) != 0))
    return CUDA_ERROR_OUT_OF_MEMORY;
  char* const start = map_guarded(bytes, file);
  if (start == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(memory().mutex);
  memory().ranges[reinterpret_cast<std::uintptr_t>(start)] = {
      .bytes = bytes, .mapped = bytes, .device = device, .file = file};
  *out = start;
  return CUDA_SUCCESS;
}

CUresult release(std::uintptr_t start, bool device) {
  const std::lock_guard lock(memory().mutex);
  const auto it = memory().ranges.find(start);
  if (it == memory().ranges.end() || it->second.device != device || it->second.registered)
    return CUDA_ERROR_INVALID_VALUE;
  unmap_guarded(start, it->second.mapped);
  if (it->second.file >= 0) ::close(it->second.file);
  memory().ranges.erase(it);
  return CUDA_SUCCESS;
}

bool has_dead_lender() {
  const std::lock_guard lock(memory().mutex);
  return std::ranges::any_of(memory().ranges, [](const auto& entry) {
    const std::string program = "/proc/" + std::to_string(entry.second.lender) + "/exe";
    char text[1];
    return entry.second.lender != 0 &&
           ::readlink(program.c_str(), text, sizeof text) < 0;  // also before it is reaped
  });
}

// The range that an address lies in.
std::map<std::uintptr_t, Range>::const_iterator range_of(std::uintptr_t address) {
  auto it = memory().ranges.upper_bound(address);
  if (it == memory().ranges.begin()) return memory().ranges.end();
  --it;
  return address - it->first < it->second.bytes ? it : memory().ranges.end();
}

// As far as the driver knows the memory: is all of [address, + bytes) in it?
bool fits(CUdeviceptr address, std::size_t bytes) {
  const std::lock_guard lock(memory().mutex);
  const auto it = range_of(address);
  return it == memory().ranges.end() || address - it->first + bytes <= it->second.bytes;
}
bool is_device(CUdeviceptr address, std::size_t bytes) {
  const std::lock_guard lock(memory().mutex);
  const auto it = range_of(address);
  return it != memory().ranges.end() && it->second.device && address - it->first + bytes <= it->second.bytes;
}

struct IpcHandle {
  std::uintptr_t address;
  std::size_t bytes;
  pid_t process;
  int file;
};
static_assert(sizeof(IpcHandle) <= sizeof(CUipcMemHandle));

}  // namespace

#define TW_NEEDS(condition, code) \
  do { \
    if (!(condition)) return code; \
  } while (false)

#define TW_ALIVE() TW_NEEDS(!tilewise::emulated::broken, CUDA_ERROR_ILLEGAL_ADDRESS)

extern "C" {

CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION / 1000 * 1000;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult code, const char** name) {
  static const std::map<CUresult, const char*> names{
      {CUDA_SUCCESS, "CUDA_SUCCESS"},
      {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
      {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
      {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
      {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
      {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
      {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
      {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY"},
      {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"}};
  const auto it = names.find(code);
  *name = it == names.end() ? nullptr : it->second;
  return it == names.end() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "of the emulated driver";
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int* count) {
  *count = gpu_count();
  return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  TW_NEEDS(ordinal >= 0 && ordinal < gpu_count(), CUDA_ERROR_INVALID_DEVICE);
  *device = ordinal;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int size, CUdevice) {
  std::snprintf(name, static_cast<std::size_t>(size), "Emulated GPU");
  return CUDA_SUCCESS;
}
// The same in every process: GPU number n of this machine.
CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  std::memset(uuid->bytes, 0, sizeof uuid->bytes);
  std::memcpy(uuid->bytes, "emulated", 8);
  uuid->bytes[15] = static_cast<char>(device);
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 4; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  TW_NEEDS(device >= 0 && device < gpu_count(), CUDA_ERROR_INVALID_DEVICE);
  *context = &contexts[device];
  return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context) {
  current_context = context;
  return CUDA_SUCCESS;
}
CUresult cuDeviceCanAccessPeer(int* possible, CUdevice from, CUdevice to) {
  *possible = from != to;
  return CUDA_SUCCESS;
}
// All of them are linked, as if by NVLink.
CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to) {
  TW_NEEDS(from != to && from < gpu_count() && to < gpu_count(), CUDA_ERROR_INVALID_DEVICE);
  *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
  return CUDA_SUCCESS;
}
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned) {
  return peer == current_context ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

CUresult cuMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  TW_ALIVE();
  TW_NEEDS(current_context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  *free_bytes = *total_bytes = kMemoryBytes;
  return CUDA_SUCCESS;
}
CUresult cuMemAlloc(CUdeviceptr* address, std::size_t bytes) {
  TW_ALIVE();
  TW_NEEDS(current_context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  return allocate(true, bytes, reinterpret_cast<void**>(address));
}
CUresult cuMemFree(CUdeviceptr address) {
  TW_ALIVE();
  return release(address, true);
}
CUresult cuMemHostAlloc(void** address, std::size_t bytes, unsigned) {
  TW_ALIVE();
  TW_NEEDS(current_context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  return allocate(false, bytes, address);
}
CUresult cuMemFreeHost(void* address) {
  TW_ALIVE();
  return release(reinterpret_cast<std::uintptr_t>(address), false);
}
CUresult cuMemHostRegister(void* address, std::size_t bytes, unsigned) {
  TW_ALIVE();
  if (refuses_pinned()) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(memory().mutex);
  const auto key = reinterpret_cast<std::uintptr_t>(address);
  TW_NEEDS(range_of(key) == memory().ranges.end(), CUDA_ERROR_INVALID_VALUE);
  memory().ranges[key] = {.bytes = bytes, .registered = true};
  return CUDA_SUCCESS;
}
CUresult cuMemHostUnregister(void* address) {
  TW_ALIVE();
  const std::lock_guard lock(memory().mutex);
  const auto it = memory().ranges.find(reinterpret_cast<std::uintptr_t>(address));
  TW_NEEDS(it != memory().ranges.end() && it->second.registered, CUDA_ERROR_INVALID_VALUE);
  memory().ranges.erase(it);
  return CUDA_SUCCESS;
}
CUresult cuPointerGetAttribute(void* data, CUpointer_attribute which, CUdeviceptr address) {
  TW_ALIVE();
  TW_NEEDS(which == CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CUDA_ERROR_INVALID_VALUE);
  const std::lock_guard lock(memory().mutex);
  const auto it = range_of(address);
  TW_NEEDS(it != memory().ranges.end(), CUDA_ERROR_INVALID_VALUE);
  *static_cast<CUmemorytype*>(data) = it->second.device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr address) {
  TW_ALIVE();
  const std::lock_guard lock(memory().mutex);
  const auto it = range_of(address);
  TW_NEEDS(it != memory().ranges.end() && it->second.device, CUDA_ERROR_INVALID_VALUE);
  *base = it->first;
  *bytes = it->second.bytes;
  return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  TW_ALIVE();
  const std::lock_guard lock(memory().mutex);
  const auto it = memory().ranges.find(address);
  TW_NEEDS(it != memory().ranges.end() && it->second.device, CUDA_ERROR_INVALID_VALUE);
  const IpcHandle mine{it->first, it->second.bytes, ::getpid(), it->second.file};
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &mine, sizeof mine);
  return CUDA_SUCCESS;
}
CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned) {
  TW_ALIVE();
  IpcHandle theirs;
  std::memcpy(&theirs, &handle, sizeof theirs);
  TW_NEEDS(theirs.process != ::getpid(), CUDA_ERROR_INVALID_CONTEXT);
  const std::string path = "/proc/" + std::to_string(theirs.process) + "/fd/" + std::to_string(theirs.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  TW_NEEDS(file >= 0, CUDA_ERROR_INVALID_VALUE);
  char* const start = map_guarded(theirs.bytes, file);
  TW_NEEDS(start != nullptr, CUDA_ERROR_OUT_OF_MEMORY);
  *address = reinterpret_cast<CUdeviceptr>(start);
  const std::lock_guard lock(memory().mutex);
  memory().ranges[*address] = {
      .bytes = theirs.bytes, .mapped = theirs.bytes, .device = true, .file = file, .lender = theirs.process};
  return CUDA_SUCCESS;
}
CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  TW_ALIVE();
  return release(address, true);
}

CUresult cuStreamCreate(CUstream* stream, unsigned) {
  TW_ALIVE();
  TW_NEEDS(current_context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  *stream = new CUstream_st;
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream stream) {
  delete stream;
  return CUDA_SUCCESS;
}
CUresult cuStreamSynchronize(CUstream stream) {
  while (tilewise::emulated::hangs) ::pause();
  TW_ALIVE();
  stream->queue.synchronize();
  TW_ALIVE();
  return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream stream) {
  TW_ALIVE();
  const bool idle = stream->queue.idle();
  TW_ALIVE();
  return idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  TW_ALIVE();
  stream->queue.push([=] { function(data); });
  return CUDA_SUCCESS;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  TW_ALIVE();
  TW_NEEDS(current_context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  TW_NEEDS(fits(to, bytes) && fits(from, bytes), CUDA_ERROR_INVALID_VALUE);
  stream->queue.push(
      [=] { std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes); });
  return CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
  TW_ALIVE();
  TW_NEEDS(is_device(to, bytes), CUDA_ERROR_INVALID_VALUE);
  stream->queue.push([=] { std::memset(reinterpret_cast<void*>(to), value, bytes); });
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
  TW_ALIVE();
  TW_NEEDS(flags == CU_STREAM_WAIT_VALUE_GEQ, CUDA_ERROR_NOT_SUPPORTED);
  stream->queue.push([=] {
    const auto* const word = reinterpret_cast<const std::atomic<std::uint64_t>*>(address);
    while (!tilewise::emulated::broken &&
           static_cast<std::int64_t>(word->load(std::memory_order_acquire) - value) < 0)
      std::this_thread::sleep_for(std::chrono::microseconds(2));
  });
  return CUDA_SUCCESS;
}
CUresult cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned) {
  TW_ALIVE();
  stream->queue.push([=] {
    reinterpret_cast<std::atomic<std::uint64_t>*>(address)->store(value, std::memory_order_release);
  });
  return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent* event, unsigned) {
  TW_ALIVE();
  TW_NEEDS(current_context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  *event = new CUevent_st;
  return CUDA_SUCCESS;
}
CUresult cuEventDestroy(CUevent event) {
  delete event;
  return CUDA_SUCCESS;
}
CUresult cuEventRecord(CUevent event, CUstream stream) {
  TW_ALIVE();
  const auto mark = std::make_shared<Mark>();
  {
    const std::lock_guard lock(event->mutex);
    event->mark = mark;
  }
  stream->queue.push([mark] { mark->fire(); });
  return CUDA_SUCCESS;
}
static std::shared_ptr<Mark> mark_of(CUevent event) {
  const std::lock_guard lock(event->mutex);
  return event->mark;
}
CUresult cuEventQuery(CUevent event) {
  look_for_fault();
  look_for_dead_lenders();
  TW_ALIVE();
  const auto mark = mark_of(event);
  const bool passed = mark == nullptr || mark->set();
  TW_ALIVE();  // what broke the GPU has not succeeded
  return passed ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventSynchronize(CUevent event) {
  TW_ALIVE();
  if (const auto mark = mark_of(event)) mark->wait();
  TW_ALIVE();
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  TW_ALIVE();
  if (const auto mark = mark_of(event)) stream->queue.push([mark] { mark->wait(); });
  return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  TW_ALIVE();
  TW_NEEDS(current_context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  const char* const text = static_cast<const char*>(image);
  TW_NEEDS(std::strncmp(text, "// Tilewise emulation\n", 22) == 0, CUDA_ERROR_INVALID_IMAGE);
  *module = new CUmod_st{.program = &tilewise::emulated::program_of(text), .functions = {}};
  const std::lock_guard lock(modules().mutex);
  modules().all.insert(*module);
  return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
  TW_ALIVE();
  const std::lock_guard lock(modules().mutex);
  modules().all.erase(module);
  delete module;
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  TW_ALIVE();
  TW_NEEDS(tilewise::emulated::has_kernel(*module->program, name), CUDA_ERROR_NOT_FOUND);
  module->functions.push_back(std::make_unique<CUfunc_st>(CUfunc_st{module->program, name}));
  *function = module->functions.back().get();
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned bx, unsigned by, unsigned bz, unsigned tx, unsigned ty,
                        unsigned tz, unsigned shared_bytes, CUstream stream, void** parameters,
                        void** extra) {
  look_for_fault();
  look_for_dead_lenders();
  TW_ALIVE();
  TW_NEEDS(current_context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
  TW_NEEDS(bx >= 1 && bx <= 0x7fffffffu && by >= 1 && by <= 65535 && bz >= 1 && bz <= 65535,
           CUDA_ERROR_INVALID_VALUE);
  TW_NEEDS(tx >= 1 && ty >= 1 && tz >= 1 && tx * ty * tz <= tilewise::emulated::kMostThreads,
           CUDA_ERROR_INVALID_VALUE);
  TW_NEEDS(shared_bytes == 0 && extra == nullptr, CUDA_ERROR_NOT_SUPPORTED);
  Program& program = *function->program;
  const EmulatedEntry& entry = tilewise::emulated::compiled(program, function->name);
  // The driver takes the parameters now, whatever becomes of the caller's.
  std::shared_ptr<void> copy(std::aligned_alloc(64, (entry.parameter_bytes + 63) / 64 * 64), std::free);
  std::memcpy(copy.get(), parameters[0], entry.parameter_bytes);
  const Grid grid{{bx, by, bz}, {tx, ty, tz}};
  stream->queue.push([&entry, &program, copy, grid, bad = is_bad(program.source)] {
    if (bad) tilewise::emulated::broken = true;
    if (tilewise::emulated::broken) return;
    tilewise::emulated::run_grid(entry, program.has_barriers, copy.get(), grid);
  });
  return CUDA_SUCCESS;
}

}  // extern "C"
