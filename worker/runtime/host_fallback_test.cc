#include "host_fallback.h"

#include <doctest/doctest.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "../../tests/make_believe_gpu.h"

namespace tilewise::worker {
namespace {

struct World {
  testing::MakeBelieveGpu gpu;
  HostFallback fallback{gpu, kernels::make_host_kernels(nullptr)};
  Meter busy;
  std::atomic<std::int64_t> stream_ns{0};
  std::vector<device::StepFailure> failures;

  // One step of a single-step op over blocks at these addresses; its number on the stream.
  std::uint64_t run(const OpEntry& entry, std::int64_t point, std::vector<std::byte*> inputs,
                    std::byte* output, std::uint8_t stream = 0) {
    Launch launch;
    launch.stream = stream;
    launch.sequence = next[stream]++;
    ResolvedStep step;
    step.op = &entry;
    step.point = point;
    for (std::byte* at : inputs) step.inputs.push_back(at);
    step.outputs.push_back(output);
    REQUIRE(fallback.launch(launch, step, {.meter = &busy, .busy_ns = &stream_ns}).has_value());
    REQUIRE(gpu.compute_stream(stream).record() == launch.sequence);
    return launch.sequence;
  }
  bool complete(std::uint8_t stream, std::uint64_t sequence) {
    for (int i = 0; i < 10'000 && gpu.compute_stream(stream).completed() < sequence; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    failures.clear();
    fallback.settle(stream, gpu.compute_stream(stream).completed(), failures);
    return gpu.compute_stream(stream).completed() >= sequence;
  }
  std::uint64_t next[2] = {1, 1};
};

OpEntry entry_of(ir::Op op, std::vector<ir::SourceArray> sources) {
  OpEntry entry;
  entry.sources = sources;
  entry.geometry = std::make_shared<const ir::Geometry>(*ir::Geometry::make(op, std::move(sources)));
  entry.op = std::move(op);
  return entry;
}

std::byte* bytes(std::vector<double>& v) { return reinterpret_cast<std::byte*>(v.data()); }

// out = -in, in blocks of 4 of 10.
OpEntry negation() {
  const ir::Grid grid = *ir::Grid::uniform({10}, {4});
  ir::TapeInstr load, neg;
  load.op = ir::TapeOp::kLoad;
  neg.op = ir::TapeOp::kNeg;
  ir::Op op;
  op.kind = ir::OpKind::kMap;
  op.operands = {{1, ir::View::identity({10})}};
  op.outputs = {{2, ir::DType::kFloat64, grid}};
  op.space = grid;
  op.attrs = ir::MapAttrs{{{load, neg}}};
  return entry_of(std::move(op), {{ir::DType::kFloat64, grid}});
}

OpEntry reading(const std::string& path) {
  const ir::Grid grid = *ir::Grid::uniform({4}, {4});
  ir::Op op;
  op.kind = ir::OpKind::kReadNpy;
  op.outputs = {{2, ir::DType::kFloat64, grid}};
  op.space = grid;
  op.attrs = ir::NpyAttrs{.path = path, .data_offset = 0};
  return entry_of(std::move(op), {});
}

}  // namespace

TEST_CASE("a step without a kernel on the GPU runs on the host, in the order of its stream") {
  World w;
  const OpEntry entry = negation();
  std::vector<double> x = {1, 2, 3, 4}, y(4), z(4), last = {9, 10}, out(2);
  w.run(entry, 0, {bytes(x)}, bytes(y));
  w.run(entry, 1, {bytes(y)}, bytes(z));  // reads what the step before it makes
  const std::uint64_t end = w.run(entry, 2, {bytes(last)}, bytes(out));  // the ragged block
  REQUIRE(w.complete(0, end));
  CHECK(w.failures.empty());
  CHECK(y == std::vector<double>{-1, -2, -3, -4});
  CHECK(z == x);
  CHECK(out == std::vector<double>{-9, -10});
  CHECK(w.busy.busy_ns() > 0);
  CHECK(w.stream_ns == w.busy.busy_ns());
}

TEST_CASE("a failure on the host fails the GPU's step, and no other") {
  World w;
  const OpEntry missing = reading("/nowhere/at/all.npy"), entry = negation();
  std::vector<double> a(4), b(4), x = {1, 2, 3, 4}, y(4);
  const std::uint64_t first = w.run(missing, 0, {}, bytes(a));
  const std::uint64_t second = w.run(entry, 0, {bytes(x)}, bytes(y));
  const std::uint64_t other = w.run(missing, 0, {}, bytes(b), 1);
  REQUIRE(w.complete(0, second));
  REQUIRE(w.failures.size() == 1);
  CHECK(w.failures[0].sequence == first);
  CHECK(w.failures[0].error.code == Errc::kNotFound);
  CHECK(w.failures[0].error.message.find("/nowhere/at/all.npy") != std::string::npos);
  CHECK(y == std::vector<double>{-1, -2, -3, -4});
  REQUIRE(w.complete(1, other));
  REQUIRE(w.failures.size() == 1);
  CHECK(w.failures[0].sequence == other);
}

TEST_CASE("a failure is told once, also where it is known before the GPU says that the step is through") {
  World w;
  const OpEntry missing = reading("/nowhere/at/all.npy");
  std::vector<double> a(4), b(4);
  const std::uint64_t first = w.run(missing, 0, {}, bytes(a));
  const std::uint64_t other = w.run(missing, 0, {}, bytes(b), 1);
  REQUIRE(w.complete(
      1, other));  // the host's steps are one after the other: the first one's failure is known, too
  REQUIRE(w.failures.size() == 1);
  w.failures.clear();
  for (int i = 0; i < 3; ++i) w.fallback.settle(0, 0, w.failures);
  REQUIRE(w.failures.size() == 1);
  CHECK(w.failures[0].error.code == Errc::kNotFound);
  REQUIRE(w.complete(0, first));
  CHECK(w.failures.empty());
}

}  // namespace tilewise::worker
