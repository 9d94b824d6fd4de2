#include "cuda_device.h"

#include <sys/prctl.h>
#include <tilewise/base/check.h>
#include <tilewise/cuda/libraries.h>

#include <algorithm>
#include <chrono>

namespace tilewise::cuda {
namespace {

constexpr std::int64_t kDriverBlock = 2 << 20;
constexpr int kCopyStreams = 3;  // transfers; spilling; and back

Result<int> attribute(const Driver& driver, CUdevice device, CUdevice_attribute which) {
  int value = 0;
  TW_CUDA_TRY(driver, cuDeviceGetAttribute, "cuDeviceGetAttribute", &value, which, device);
  return value;
}

Result<Context> retain_context(const Driver& driver, int ordinal) {
  Context context{.driver = &driver, .ordinal = ordinal};
  int count = 0;
  TW_CUDA_TRY(driver, cuDeviceGetCount, "cuDeviceGetCount", &count);
  if (ordinal < 0 || ordinal >= count)
    return error(Errc::kNotFound, "no cuda:" + std::to_string(ordinal) + "; this host has " +
                                      std::to_string(count) + " CUDA GPUs");
  TW_CUDA_TRY(driver, cuDeviceGet, "cuDeviceGet", &context.device, ordinal);
  TW_ASSIGN(context.compute_major,
            attribute(driver, context.device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
  TW_ASSIGN(context.compute_minor,
            attribute(driver, context.device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
  TW_ASSIGN(context.multiprocessors,
            attribute(driver, context.device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT));
  // The primary context: shared with cuBLAS, plug-ins and whatever else of the process uses the run-time API.
  TW_CUDA_TRY(driver, cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain of cuda:" + std::to_string(ordinal),
              &context.context, context.device);
  return context;
}

// As nvidia-smi writes it.
std::string text_of(const CUuuid& uuid) {
  std::string text = "GPU";
  char digits[3];
  for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += digits;
  }
  return text;
}

Result<device::Info> describe(const Context& context, const device::CudaOptions& options) {
  const Driver& driver = *context.driver;
  device::Info info{.kind = device::Kind::kCuda,
                    .ordinal = context.ordinal,
                    .name = "cuda:" + std::to_string(context.ordinal),
                    .compute_streams = std::clamp(options.compute_streams, 1, 16)};
  char model[256] = "";
  TW_CUDA_TRY(driver, cuDeviceGetName, "cuDeviceGetName", model, sizeof model, context.device);
  info.model = model;
  CUuuid uuid{};
  TW_CUDA_TRY(driver, cuDeviceGetUuid, "cuDeviceGetUuid", &uuid, context.device);
  info.gpu = text_of(uuid);
  std::size_t free_bytes = 0, total_bytes = 0;
  TW_CUDA_TRY(driver, cuMemGetInfo, "cuMemGetInfo", &free_bytes, &total_bytes);
  // The rest is for contexts, cuBLAS workspaces and other users of the GPU.
  info.memory_bytes = options.memory_bytes > 0
                          ? options.memory_bytes
                          : static_cast<std::int64_t>(0.85 * static_cast<double>(free_bytes));
  // cuBLAS may choose a kernel by the number of multiprocessors; everything generated depends on the compiler only.
  info.numeric_class = "cuda sm_" + std::to_string(context.compute_major) +
                       std::to_string(context.compute_minor) + " x" + std::to_string(context.multiprocessors);
  if (const std::string versions = library_versions(driver.version / 1000); !versions.empty())
    info.numeric_class += ", " + versions;
  return info;
}

}  // namespace

Result<std::unique_ptr<device::Device>> CudaDevice::make(const device::CudaOptions& options) {
  TW_ASSIGN(const Driver* const table, driver());
  TW_ASSIGN(const Context context, retain_context(*table, options.ordinal));
  TW_TRY(context.make_current());
  TW_ASSIGN(device::Info info, describe(context, options));
  std::unique_ptr<CudaDevice> made(new CudaDevice(context, std::move(info)));
  TW_TRY(made->open_streams());
  made->poller_ = std::thread([device = made.get()] { device->run_poller(); });
  return std::unique_ptr<device::Device>(std::move(made));
}

Status CudaDevice::open_streams() {
  const CudaStream::Wakes wakes{.poller =
                                    [this] {
                                      work_.fetch_add(1, std::memory_order_release);
                                      work_.notify_one();  // no system call unless the poller is parked
                                    },
                                .host_thread = [this] { host_thread_->wake(); },
                                .broken = [this](const Status& status) { report(status); }};
  std::vector<HostTasks*> tasks;
  for (int i = 0; i < info_.compute_streams + kCopyStreams; ++i) {
    TW_ASSIGN(auto stream, CudaStream::make(context_, wakes));
    tasks.push_back(&stream->host_tasks());
    streams_.push_back(std::move(stream));
  }
  host_thread_ = std::make_unique<HostThread>(std::move(tasks));
  return {};
}

CudaDevice::~CudaDevice() {
  synchronize();
  stopping_.store(true);
  work_.fetch_add(1, std::memory_order_release);
  work_.notify_one();
  if (poller_.joinable()) poller_.join();
  host_thread_.reset();
  streams_.clear();
  if (context_.make_current()) {
    for (const device::Slab& slab : slabs_)
      context_.driver->cuMemFree_(reinterpret_cast<CUdeviceptr>(slab.data));
    for (const CUdeviceptr address : beside_) context_.driver->cuMemFree_(address);
  }
  context_.driver->cuDevicePrimaryCtxRelease_(context_.device);
}

Result<device::Slab> CudaDevice::add_slab(std::int64_t bytes) {
  if (bytes <= 0) return error(Errc::kInvalidArgument, "a slab of " + std::to_string(bytes) + " bytes");
  const std::int64_t left = info_.memory_bytes - slab_bytes_;
  const auto no_memory = [&](std::int64_t there) {
    return error(Errc::kOutOfMemory, info_.name + ": a slab of " + std::to_string(bytes) +
                                         " bytes does not fit, " + std::to_string(there) + " of " +
                                         std::to_string(info_.memory_bytes) + " bytes are left");
  };
  if (bytes > left) return no_memory(left);
  TW_TRY(context_.make_current());
  const Driver& driver = *context_.driver;
  CUdeviceptr address = 0;
  // Who opens a slab's handle opens the driver's whole block: nothing else of ours is to be in it.
  const std::int64_t whole = (bytes + kDriverBlock - 1) / kDriverBlock * kDriverBlock;
  const CUresult code = driver.cuMemAlloc_(&address, static_cast<std::size_t>(whole));
  if (code == CUDA_ERROR_OUT_OF_MEMORY) {
    std::size_t free_bytes = 0, total_bytes = 0;
    driver.cuMemGetInfo_(&free_bytes, &total_bytes);
    return no_memory(std::min(left, static_cast<std::int64_t>(free_bytes)));
  }
  if (code != CUDA_SUCCESS) return own_error(code);
  device::Slab slab{.data = reinterpret_cast<std::byte*>(address), .bytes = bytes};
  slab.ipc_handle = handle_of(address);
  slab_bytes_ += bytes;
  slabs_.push_back(slab);
  return slab;
}

// Not every platform can share memory between processes: empty where it cannot.
std::string CudaDevice::handle_of(CUdeviceptr address) const {
  CUipcMemHandle handle{};
  if (context_.driver->cuIpcGetMemHandle_(&handle, address) != CUDA_SUCCESS) return {};
  return {reinterpret_cast<const char*>(&handle), sizeof handle};
}

Result<device::Slab> CudaDevice::add_beside(std::int64_t bytes) {
  if (bytes <= 0) return error(Errc::kInvalidArgument, std::to_string(bytes) + " bytes of " + info_.name);
  TW_TRY(context_.make_current());
  CUdeviceptr address = 0;
  const CUresult code = context_.driver->cuMemAlloc_(&address, static_cast<std::size_t>(bytes));
  if (code == CUDA_ERROR_OUT_OF_MEMORY)
    return error(Errc::kOutOfMemory, info_.name + " has no " + std::to_string(bytes) + " bytes left");
  if (code != CUDA_SUCCESS) return own_error(code);
  beside_.push_back(address);
  return device::Slab{
      .data = reinterpret_cast<std::byte*>(address), .bytes = bytes, .ipc_handle = handle_of(address)};
}

device::Stream& CudaDevice::compute_stream(int i) {
  TW_CHECK(i >= 0 && i < info_.compute_streams, info_.name + " has no compute stream " + std::to_string(i));
  return *streams_[static_cast<std::size_t>(i)];
}

void CudaDevice::on_progress(std::function<void()> notify) {
  const std::lock_guard lock(notify_mutex_);
  notify_ = std::move(notify);
}

Error CudaDevice::own_error(CUresult code) {
  report(streams_.front()->ask());
  return cuda_error(*context_.driver, code, "cuMemAlloc on " + info_.name);
}

Status CudaDevice::health() const {
  if (!broken_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(health_mutex_);
  return health_;
}

void CudaDevice::report(const Status& status) {
  if (status) return;
  {
    const std::lock_guard lock(health_mutex_);
    if (!health_) return;
    health_ = status;
    broken_.store(true, std::memory_order_release);
  }
  const std::lock_guard lock(notify_mutex_);
  if (notify_) notify_();
}

void CudaDevice::synchronize() {
  for (const auto& stream : streams_) report(stream->synchronize());
  poll_streams();
}

bool CudaDevice::poll_streams() {
  const std::lock_guard lock(poll_mutex_);
  return CudaStream::poll(streams_);
}

bool CudaDevice::poll_all() {
  poll_streams();
  std::uint64_t done = 0;
  for (const auto& stream : streams_) done += stream->completed();
  if (done == notified_) return false;
  notified_ = done;
  const std::lock_guard lock(notify_mutex_);
  if (notify_) notify_();
  return true;
}

void CudaDevice::run_poller() {
  using Clock = std::chrono::steady_clock;
  using std::chrono::microseconds;
  ::prctl(PR_SET_NAME, "tw-cuda-poll");
  ::prctl(PR_SET_TIMERSLACK, 1000);  // ns; the default adds 50 us to every sleep
  if (const Status current = context_.make_current(); !current) report(current);
  auto progress = Clock::now();
  while (true) {
    const std::uint32_t seen = work_.load(std::memory_order_acquire);
    if (poll_all()) progress = Clock::now();
    const bool idle = std::all_of(streams_.begin(), streams_.end(), [](const auto& s) { return s->idle(); });
    if (idle && stopping_.load()) return;
    if (idle) {
      work_.wait(seen, std::memory_order_acquire);
      progress = Clock::now();
      continue;
    }
    const auto waited = std::chrono::duration_cast<microseconds>(Clock::now() - progress);
    std::this_thread::sleep_for(std::clamp(waited / 8, microseconds(5), microseconds(200)));
  }
}

Result<const Context*> context_of(device::Device& device) {
  if (auto* cuda = dynamic_cast<CudaDevice*>(&device)) return &cuda->context();
  return error(Errc::kInvalidArgument, device.info().name + " is not a CUDA device");
}

}  // namespace tilewise::cuda

namespace tilewise::device {

int cuda_device_count() {
  int count = 0;
  const auto table = cuda::driver();
  if (!table || (*table)->cuDeviceGetCount_(&count) != CUDA_SUCCESS) return 0;
  return count;
}

std::string cuda_unavailable_reason() {
  const auto table = cuda::driver();
  if (!table) return table.error().message;
  return cuda_device_count() > 0 ? "" : "the CUDA driver sees no GPU";
}

Result<std::unique_ptr<Device>> make_cuda_device(const CudaOptions& options) {
  return cuda::CudaDevice::make(options);
}

Result<Slab> add_cuda_memory(Device& device, std::int64_t bytes) {
  auto* gpu = dynamic_cast<cuda::CudaDevice*>(&device);
  if (gpu == nullptr) return error(Errc::kInvalidArgument, device.info().name + " is no GPU");
  return gpu->add_beside(bytes);
}

}  // namespace tilewise::device
