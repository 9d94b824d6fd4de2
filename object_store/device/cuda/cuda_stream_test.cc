// Numbered steps on a driver that is a table of functions here: events that cannot be recorded, and failures that others read.
#include "cuda_stream.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <functional>
#include <map>

using namespace tilewise;
using namespace tilewise::cuda;

namespace {

// What the GPU has been given, and how far it has come. One stream of work for all, as long as there is one at a time.
struct FakeGpu {
  std::uint64_t given = 0, done = 0;
  std::map<CUevent, std::uint64_t> recorded;  // behind so much work
  std::map<CUstream, std::uint64_t> waits;    // for so much
  int events = 0;
  bool refuses_events = false;
  CUresult broken = CUDA_SUCCESS;  // else what every call returns
  std::function<void()> queried;   // after each query of an event
} gpu;

CUresult ok_context(CUcontext) { return CUDA_SUCCESS; }
CUresult make_stream(CUstream* stream, unsigned) {
  static int streams = 0;
  *stream = reinterpret_cast<CUstream>(static_cast<std::intptr_t>(++streams));
  return CUDA_SUCCESS;
}
CUresult end_stream(CUstream) { return CUDA_SUCCESS; }
CUresult allocate(void** memory, std::size_t bytes, unsigned) {
  *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  return CUDA_SUCCESS;
}
CUresult release(void* memory) {
  std::free(memory);
  return CUDA_SUCCESS;
}
CUresult known_memory(void*, CUpointer_attribute, CUdeviceptr) { return CUDA_SUCCESS; }
CUresult begin_copy(CUdeviceptr, CUdeviceptr, std::size_t, CUstream) {
  ++gpu.given;
  return CUDA_SUCCESS;
}
CUresult make_event(CUevent* event, unsigned) {
  *event = reinterpret_cast<CUevent>(static_cast<std::intptr_t>(++gpu.events));
  return CUDA_SUCCESS;
}
CUresult end_event(CUevent) { return CUDA_SUCCESS; }
CUresult record_event(CUevent event, CUstream) {
  if (gpu.broken != CUDA_SUCCESS) return gpu.broken;
  if (gpu.refuses_events) return CUDA_ERROR_OUT_OF_MEMORY;
  gpu.recorded[event] = gpu.given;
  return CUDA_SUCCESS;
}
CUresult query_event(CUevent event) {
  if (gpu.broken != CUDA_SUCCESS) return gpu.broken;
  const bool over = gpu.recorded.at(event) <= gpu.done;
  if (gpu.queried) gpu.queried();
  return over ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult query_stream(CUstream) {
  if (gpu.broken != CUDA_SUCCESS) return gpu.broken;
  return gpu.given <= gpu.done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult wait_for_event(CUstream stream, CUevent event, unsigned) {
  gpu.waits[stream] = gpu.recorded.at(event);
  return CUDA_SUCCESS;
}
CUresult no_text(CUresult, const char** text) {
  *text = "refused";
  return CUDA_SUCCESS;
}

struct StreamFixture {
  explicit StreamFixture(bool first = true) {  // `stream` is looked at before `other`
    gpu = {};
    driver.cuCtxSetCurrent_ = ok_context, driver.cuStreamCreate_ = make_stream;
    driver.cuStreamDestroy_ = end_stream, driver.cuMemHostAlloc_ = allocate, driver.cuMemFreeHost_ = release;
    driver.cuPointerGetAttribute_ = known_memory, driver.cuMemcpyAsync_ = begin_copy;
    driver.cuEventCreate_ = make_event, driver.cuEventDestroy_ = end_event;
    driver.cuEventRecord_ = record_event, driver.cuEventQuery_ = query_event;
    driver.cuStreamQuery_ = query_stream, driver.cuStreamWaitEvent_ = wait_for_event;
    driver.cuGetErrorName_ = no_text, driver.cuGetErrorString_ = no_text;
    context.driver = &driver;
    streams.push_back(make()), streams.push_back(make());
    stream = streams[!first].get(), other = streams[first].get();
  }
  std::unique_ptr<CudaStream> make() {
    auto made = CudaStream::make(context, {[] {}, [] {}, [this](const Status& why) { health = why; }});
    REQUIRE(made.has_value());
    return std::move(*made);
  }
  std::uint64_t copy() {
    REQUIRE(stream->copy(to, from, sizeof to).has_value());
    return stream->record();
  }
  // The step that is open now has found something wrong with its data.
  void spoil() {
    static constexpr char kText[] = "singular at %lld";
    DataFault* const fault = data_fault_of(*stream);
    fault->format = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(kText));
    fault->value[0] = 7, fault->code = static_cast<std::int32_t>(Errc::kTaskFailed);
  }
  bool poll() {
    CudaStream::poll(streams);
    return health.has_value();
  }
  std::vector<device::StepFailure> failures() {
    std::vector<device::StepFailure> out;
    stream->take_failures(out);
    return out;
  }
  Driver driver;
  Context context;
  Status health;                                     // as the device has been told
  std::vector<std::unique_ptr<CudaStream>> streams;  // by index, as the poller looks at them
  CudaStream *stream = nullptr, *other = nullptr;
  char to[64] = {}, from[64] = {};
};

}  // namespace

TEST_CASE("a step whose event cannot be recorded fails when its work is over, not before") {
  StreamFixture f;
  gpu.refuses_events = true;
  const std::uint64_t step = f.copy();
  REQUIRE(f.poll());
  CHECK(f.stream->completed() == step - 1);  // the copy still runs: its memory is in use
  CHECK(f.failures().empty());
  gpu.done = gpu.given;
  REQUIRE(f.poll());
  CHECK(f.stream->completed() == step);
  REQUIRE(f.failures().size() == 1);
}

TEST_CASE("a step without an event ends with the next one that has one, whatever comes behind") {
  StreamFixture f;
  gpu.refuses_events = true;
  const std::uint64_t step = f.copy();
  gpu.refuses_events = false;
  f.copy();
  f.copy();
  gpu.done = 1;
  REQUIRE(f.poll());
  CHECK(f.stream->completed() == step - 1);
  gpu.done = 2;
  REQUIRE(f.poll());
  CHECK(f.stream->completed() == step + 1);
  const auto failures = f.failures();
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].sequence == step);
}

TEST_CASE(
    "who waits for a step without an event waits for what is in its stream, or is told that it cannot") {
  StreamFixture f;
  gpu.refuses_events = true;
  const std::uint64_t step = f.copy();
  CHECK_FALSE(f.other->wait(*f.stream, step).has_value());
  gpu.refuses_events = false;
  REQUIRE(f.other->wait(*f.stream, step).has_value());
  CHECK(gpu.waits.at(static_cast<CUstream>(f.other->native())) == 1);
}

TEST_CASE("what is wrong with a step's data is told, also where its event could not be recorded") {
  StreamFixture f;
  f.spoil();
  gpu.refuses_events = true;
  f.copy();
  gpu.done = gpu.given;
  REQUIRE(f.poll());
  const auto failures = f.failures();
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].error.message == "singular at 7");
}

TEST_CASE("a step is not told complete before the failure of what it waited for on another stream") {
  for (const bool first : {true, false}) {
    CAPTURE(first);
    StreamFixture f(first);
    f.spoil();
    const std::uint64_t step = f.copy();
    REQUIRE(f.other->wait(*f.stream, step).has_value());
    const std::uint64_t reader = f.other->record();
    // Both end just behind the first look at the stream that comes first, or just before it.
    bool early = false;
    gpu.queried = [&] {
      early |= f.other->completed() != 0;
      gpu.done = gpu.given;
    };
    if (!first) gpu.done = gpu.given;
    REQUIRE(f.poll());
    CHECK_FALSE(early);
    CHECK(f.other->completed() == reader);
    CHECK(f.failures().size() == 1);
    REQUIRE(f.poll());
    CHECK(f.stream->completed() == step);
    CHECK(f.failures().empty());
    gpu.queried = nullptr;
  }
}

TEST_CASE("who waited for a step without an event is not told complete before that step has failed") {
  StreamFixture f;
  f.spoil();
  gpu.refuses_events = true;
  const std::uint64_t step = f.copy();
  gpu.refuses_events = false;
  REQUIRE(f.other->wait(*f.stream, step).has_value());
  const std::uint64_t reader = f.other->record();
  f.copy();      // and goes on for long
  gpu.done = 1;  // the first copy, and so what waited for it
  REQUIRE(f.poll());
  CHECK(f.other->completed() == reader);
  CHECK(f.stream->completed() == step);
  REQUIRE(f.failures().size() == 1);
}

TEST_CASE(
    "what one call is refused is its step's; what every call is refused is the device's, known before the "
    "step fails") {
  StreamFixture f;
  gpu.refuses_events = true;
  f.copy();
  CHECK(f.health.has_value());
  gpu.refuses_events = false;
  const std::uint64_t open = f.copy();
  // A code that no list of ours has, and an enumeration up to 999 can hold.
  gpu.broken = static_cast<CUresult>(1'001);
  const std::uint64_t refused = f.stream->record();
  REQUIRE_FALSE(f.health.has_value());
  CHECK(f.health.error().code == Errc::kDeviceError);
  CHECK(f.health.error().message.find("cuda:0 is broken") == 0);
  CHECK(f.failures().empty());
  f.poll();
  CHECK(f.stream->completed() == refused);
  CHECK(f.failures().size() == 3);
  CHECK(refused == open + 1);
}

TEST_CASE("a context found broken by the poller: the device is told before a step's failure can be taken") {
  StreamFixture f;
  f.copy();
  REQUIRE(f.poll());
  gpu.broken = CUDA_ERROR_ECC_UNCORRECTABLE;
  CHECK_FALSE(f.poll());
  CHECK(f.stream->completed() == 1);
  CHECK(f.failures().size() == 1);
}
