// A client program as a user would write it, for tests that need one in a process of its own.
//   compute   a few expressions, checked against values computed here
//   repeat S  asks for the same again and again for S seconds, in which all must end well and alike
//   strand S  the same for S seconds, in which rounds may fail for want of a way; says so of each, and does what needs no way meanwhile
//   leave     asks for something, and calls exit() without waiting for it
//   linger    begins long work, says so on stdout, and waits for its end
//   gather I HOW   has every third piece of an array, from I on, of which two others have the rest; HOW: what is wrong with them
//   save PATH writes a file of thousands of small blocks, again and again
//   borrow    reads an array's blocks where they lie, says so on stdout, and keeps them
#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
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

// Blocks go there and back, and between workers.
int repeat(int for_s) {
  auto session = connect_here("repeat");
  std::vector<double> x(512 * 512);
  std::iota(x.begin(), x.end(), 0.0);
  const auto round = [&] {
    Array there = session.from_memory(x, {512, 512}, {.block = {128, 128}});
    return (there * 2.0 + there.T()).get<double>();
  };
  const std::vector<double> expected = round();
  if (expected[1] != 2.0 * 1 + 512) return std::printf("wrong value %f\n", expected[1]), 1;
  std::printf("running\n");
  std::fflush(stdout);
  int rounds = 0;
  for (const auto until = testing::Clock::now() + std::chrono::seconds(for_s); testing::Clock::now() < until;
       ++rounds) {
    if (round() != expected) return std::printf("wrong values in round %d\n", rounds), 1;
  }
  std::printf("right, %d rounds\n", rounds);
  return 0;
}

int strand(int for_s) {
  auto session = connect_here("strand");
  std::vector<double> x(512 * 512);
  std::iota(x.begin(), x.end(), 0.0);
  const auto round = [&](const Array& there) { return (there * 2.0 + there.T()).get<double>(); };
  const auto upload = [&] { return session.from_memory(x, {512, 512}, {.block = {128, 128}}); };
  const std::vector<double> expected = round(upload());
  Array kept = upload() + 0.0;  // where fetching is all that is left to do
  kept.persist().wait();
  std::printf("running\n");
  std::fflush(stdout);
  int rounds = 0, failed = 0;
  const auto in_peace = [&](const char* what, const auto& act) {
    try {
      act();
    } catch (const ArrayError& e) {
      if (e.code() != Errc::kUnavailable) throw;
      ++failed;
      std::printf("no %s: %s\n", what, e.what());
      std::fflush(stdout);
      session.ones({64, 64}, {.block = {16, 16}}).persist().wait({.timeout = std::chrono::seconds(10)});
    }
  };
  for (const auto until = testing::Clock::now() + std::chrono::seconds(for_s); testing::Clock::now() < until;
       ++rounds) {
    bool right = true;
    in_peace("upload", [&] { right = round(upload()) == expected; });
    in_peace("fetch", [&] { right = right && kept.get<double>() == x; });
    if (!right) return std::printf("wrong values in round %d\n", rounds), 1;
  }
  if (round(upload()) != expected) return std::printf("wrong values at the end\n"), 1;
  std::printf("right, %d rounds, %d failed\n", rounds, failed);
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

// Rows of 5 columns, where element i of the array is i, in pieces of 1,000 and a ragged last one.
int gather(int index, const std::string& how) {
  auto session = connect_here("gather " + std::to_string(index));
  const std::int64_t rows = 20'500, columns = how == "shape" ? 6 : 5, each = 1'000;
  std::vector<LocalBlock<double>> pieces;
  for (std::int64_t first = index * each; first < rows; first += 3 * each) {
    const std::int64_t count = std::min(each, rows - first);
    auto values = std::make_shared<std::vector<double>>(static_cast<std::size_t>(count * columns));
    std::iota(values->begin(), values->end(), static_cast<double>(first * columns));
    pieces.push_back({{first, 0}, {count, columns}, *values, values});
  }
  if (how == "gap") pieces.pop_back();
  if (how == "overlap") {  // a neighbour's first
    pieces.push_back(pieces.front());
    pieces.back().offset[0] = (index + 1) % 3 * each;
  }
  if (how == "bytes") pieces.front().values = pieces.front().values.subspan(1);
  std::printf("announcing\n");
  std::fflush(stdout);
  const auto timeout = how == "hasty" ? std::chrono::seconds(1) : testing::kPatience;
  Array x = session.from_local_blocks("rows", {rows, columns}, pieces, {.processes = 3, .timeout = timeout});
  std::printf("announced\n");
  std::fflush(stdout);
  x.persist().wait();
  pieces.clear();  // nothing of it is needed any more
  const std::vector<double> all = x.get<double>();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] != static_cast<double>(i)) return std::printf("wrong value %f at %zu\n", all[i], i), 1;
  }
  const double n = static_cast<double>(rows * columns);
  if (sum(x).item<double>() != n * (n - 1) / 2) return std::printf("wrong sum\n"), 1;
  std::printf("right\n");
  return 0;
}

int leave() {
  static Session session = connect_here("leaver");
  static Array x = matmul(session.ones({200, 200}, {.block = {50, 50}}), session.ones({200, 200}));
  (void)session.compute({x});
  std::exit(0);
}

// Links to workers are being made.
int hurry() {
  static Session session = connect_here("hurrier");
  std::exit(7);
}

int borrow() {
  auto session = connect_here("borrow");
  const AddressableBlocks blocks = session.addressable_blocks(session.ones({1 << 20}, {.block = {1 << 16}}));
  std::printf("%zu blocks on loan\n", blocks.size());
  std::fflush(stdout);
  pause();
  return 0;
}

int save(const std::string& path) {
  auto session = connect_here("saver");
  const Array x = session.random.uniform({2000, 500}, {.seed = 3, .block = {20, 25}});
  while (true) x.save_npy(path).wait();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 2 && std::strcmp(argv[1], "compute") == 0) return compute();
    if (argc == 2 && std::strcmp(argv[1], "linger") == 0) return linger();
    if (argc == 3 && std::strcmp(argv[1], "repeat") == 0) return repeat(std::atoi(argv[2]));
    if (argc == 3 && std::strcmp(argv[1], "strand") == 0) return strand(std::atoi(argv[2]));
    if (argc == 2 && std::strcmp(argv[1], "leave") == 0) return leave();
    if (argc == 2 && std::strcmp(argv[1], "hurry") == 0) return hurry();
    if (argc == 2 && std::strcmp(argv[1], "borrow") == 0) return borrow();
    if (argc == 3 && std::strcmp(argv[1], "save") == 0) return save(argv[2]);
    if (argc == 4 && std::strcmp(argv[1], "gather") == 0) return gather(std::atoi(argv[2]), argv[3]);
  } catch (const ArrayError& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
  return 2;
}
