#include "calls.h"

#include <chrono>
#include <fstream>
#include <thread>

#include "report.h"

namespace tilewise::bench {

Array calls(const Array& small, const Kernel& kernel, std::int64_t tasks) {
  ir::DimMap whole;
  whole.kind = ir::DimMap::Kind::kWhole;
  return map_blocks(kernel, std::vector{small}, {{whole}}, {{DType::kFloat64, *Grid::uniform({tasks}, {1})}})
      .front();
}

FirstTask::FirstTask(const Session& session) : small_(session.ones({1})) { small_.persist().wait(); }

double FirstTask::after_ms(std::int64_t tasks, bool wait_for_all) {
  const std::string path = folder_ / ("stamp" + std::to_string(++count_));
  std::ofstream(path, std::ios::binary) << std::string(8, '\0');
  Array out = calls(small_, {.name = "bench.stamp", .version = "1.0", .params = path}, tasks);
  const double start = now();
  Future done = out.persist();
  if (wait_for_all) done.wait();
  std::int64_t first = 0;
  for (;;) {
    std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(&first), sizeof(first));
    if (first != 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (!wait_for_all) done.cancel();
  return (static_cast<double>(first) * 1e-9 - start) * 1e3;
}

}  // namespace tilewise::bench
