// A client program as a user would write it, for tests that need one in a process of its own.
//   compute   a few expressions, checked against values computed here
//   linger    begins long work, says so on stdout, and waits for its end
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <tilewise/remote/connect.h>

#include "harness.h"

using namespace tilewise;

namespace {

Session connect_here(const std::string& name) {
  const char* scheduler = std::getenv("TILEWISE_SCHEDULER");
  auto endpoint = remote::connect_from_environment(scheduler == nullptr ? "" : scheduler, name);
  if (!endpoint) throw ArrayError(endpoint.error());
  return make_session(std::move(*endpoint), {.name = name, .timeout = testing::kPatience * 3});
}

int compute() {
  auto session = connect_here("client-program");
  auto x = session.arange(0, 10'000, 1, {.block = {1'000}}).astype(DType::kFloat64);
  const double total = sum(x * 2.0 + 1.0).item<double>();
  if (total != 10'000.0 * 9'999.0 + 10'000.0) return std::printf("wrong sum %f\n", total), 1;
  const auto eye = matmul(session.eye(64), session.full({64, 3}, 2.5)).get<double>();
  for (const double value : eye) {
    if (value != 2.5) return std::printf("wrong product %f\n", value), 1;
  }
  std::printf("right\n");
  return 0;
}

int linger() {
  auto session = connect_here("lingerer");
  auto kept = session.ones({512, 512}, {.block = {128, 128}});
  kept.persist().wait();
  const Future future = session.compute({testing::long_work(session)});
  bool said = false;
  future.wait({.on_progress = [&](Progress p) {
    if (p.done == 0 || std::exchange(said, true)) return;
    std::printf("running\n");
    std::fflush(stdout);
  }});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 2 && std::strcmp(argv[1], "compute") == 0) return compute();
    if (argc == 2 && std::strcmp(argv[1], "linger") == 0) return linger();
  } catch (const ArrayError& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
  return 2;
}
