// dashboard_client [NAME]: a client for the dashboard's tests and pictures: does what each line of its standard input says, and says "ok" when it
// is under way. Ends with its input.
//
//   hold      holds a product of known size
//   hostile   holds an array whose name is hostile
//   known     runs a graph of known numbers of ops and tasks to its end
//   work      begins a graph of many products; the page may cancel it
//   fail      runs a graph that fails, with ops that depend on it
//   many      a million tasks
//   wide      a graph of ten thousand ops
#include <tilewise/remote/connect.h>
#include <tilewise/tilewise.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

using namespace tilewise;

namespace {

const std::string kHostile = "<img src=x onerror=\"document.title='owned'\"></script><b>bold</b>\xff\u202e";

struct Client {
  Session session;
  std::vector<Array> held;
  std::vector<Future> under_way;

  void hold() {
    const Array a = session.random.uniform({2048, 1024}, {.seed = 1, .block = {256, 256}}).named("features");
    const Array gram = matmul(a.T(), a).named("gram matrix");
    for (Array array : {a, gram}) {
      array.persist().wait();
      held.push_back(array);
    }
  }

  void hostile() {
    held.push_back((session.ones({64, 64}, {.block = {16, 16}}) * 2.0).named(kHostile));
    held.back().persist().wait();
  }

  // 64 blocks of ones, 64 of their doubles (fused with them or not), summed: 128 * 128 * 2.
  void known() {
    const Array ones = session.ones({128, 128}, {.block = {16, 16}}).named("ones");
    if (sum(ones * 2.0).named("total").item<double>() != 32768) throw std::runtime_error("a wrong sum");
  }

  void work() {
    Array x = session.random.uniform({1408, 1408}, {.seed = 3, .block = {352, 352}}).named("start");
    // A minute or two: it is cancelled before its end, by a page that may be slow. Arrays smaller than what is charted (16 MiB).
    for (int i = 0; i < 1600; ++i) {
      x = matmul(x, x).named("square");
      x = (x * (1.0 / 704) + 0.25).named("rescale");
    }
    under_way.push_back(session.compute({x}));
  }

  void fail() {
    const Array x = session.ones({32, 32}, {.block = {8, 8}}).named("doomed");
    try {
      x.save_npy("/nowhere/at/all/x.npy").wait();
    } catch (const ArrayError&) {
      return;
    }
    throw std::runtime_error("writing to nowhere went well");
  }

  void many() {
    const Array x = session.ones({1000, 1000}, {.block = {1, 1}}).named("a million blocks");
    under_way.push_back(session.compute({sum(x)}));
  }

  void wide() {
    std::vector<Array> results;
    for (int chain = 0; chain < 100; ++chain) {
      Array x = session.full({4, 4}, 1.0 / (chain + 2), {.block = {4, 4}});
      for (int i = 0; i < 50; ++i) x = matmul(x, x).named("layer " + std::to_string(i)) * 0.25;
      results.push_back(x);
    }
    under_way.push_back(session.compute(results));
  }
};

int run(const std::string& name) {
  auto endpoint = remote::connect_from_environment(std::getenv("TILEWISE_SCHEDULER"), name);
  if (!endpoint) throw ArrayError(endpoint.error());
  Client client{make_session(std::move(*endpoint), {.name = name}), {}, {}};
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "hold") client.hold();
    if (line == "hostile") client.hostile();
    if (line == "known") client.known();
    if (line == "work") client.work();
    if (line == "fail") client.fail();
    if (line == "many") client.many();
    if (line == "wide") client.wide();
    if (line == "drop") client.under_way.clear();
    std::cout << "ok " << line << std::endl;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : kHostile.substr(0, 40));
  } catch (const std::exception& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
}
