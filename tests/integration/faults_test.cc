// What goes wrong in one place stays there: dead workers, vanished clients, hostile bytes.
#include <tilewise/codec/codec.h>
#include <tilewise/net/endpoint.h>

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <csignal>
#include <thread>

#include "harness.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

// Raw bytes to a port, then until the other side has closed. True if it did.
bool closes_on(const std::string& address, const std::string& bytes) {
  const net::Address to = *net::Address::parse(address);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(to.port);
  inet_pton(AF_INET, "127.0.0.1", &where.sin_addr);
  bool closed = connect(fd, reinterpret_cast<sockaddr*>(&where), sizeof where) == 0 &&
                send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  while (closed) {
    pollfd waiting{fd, POLLIN, 0};
    char sink[4096];
    if (poll(&waiting, 1, 20'000) <= 0)
      closed = false;
    else if (recv(fd, sink, sizeof sink, 0) <= 0)
      break;
  }
  close(fd);
  return closed;
}

// Joins the conversation with the right token, says these frames, and waits until it is thrown out. True if it was.
bool thrown_out(const std::string& address, const net::Token& token,
                const std::vector<std::pair<int, std::string>>& frames) {
  auto loop = *net::EventLoop::create();
  std::optional<Result<std::unique_ptr<net::Link>>> made;
  const auto attempt =
      net::connect(*loop, *net::Address::parse(address), {.token = token},
                   [&](Result<std::unique_ptr<net::Link>> link) { made.emplace(std::move(link)); });
  if (!loop->run_until([&] { return made.has_value(); }, 20 * kSecond) || !*made) return false;
  net::Link& link = ***made;
  bool closed = false;
  link.start({[](net::Frame&) {}, [&](const Error&) { closed = true; }, {}});
  for (const auto& [type, payload] : frames) {
    (void)!link.send(static_cast<std::uint16_t>(type), std::as_bytes(std::span(payload)));
  }
  return loop->run_until([&] { return closed; }, 20 * kSecond);
}

std::pair<int, std::string> frame_of(const msg::Message& message) {
  codec::Buffer buffer;
  REQUIRE(codec::encode(message, buffer).has_value());
  const auto bytes = buffer.bytes();
  return {codec::frame_type(message), std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
}

void still_computes(const Cluster& cluster) {
  const Session session = cluster.session("after");
  CHECK(sum(session.ones({100, 100}, {.block = {30, 30}})).item<double>() == 10'000);
}

}  // namespace

TEST_CASE("hostile bytes close the link they came over, and nothing else") {
  Cluster cluster;
  INFO(cluster.words());
  const net::Token token = cluster.token();
  const Session before = cluster.session("bystander");
  const std::string garbage(300, '\xA5'), http = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  const auto good = frame_of(msg::Join{});
  auto cut = good, flipped = good, mislabelled = good;
  cut.second.resize(8);
  for (char& c : flipped.second) c = static_cast<char>(~c);
  mislabelled.first = 3;
  for (const std::string& address : {cluster.address(), cluster.worker_address(0)}) {
    CAPTURE(address);
    CHECK(closes_on(address, garbage));
    CHECK(closes_on(address, http));
    CHECK(thrown_out(address, token, {{0, ""}}));
    CHECK(thrown_out(address, token, {cut}));
    CHECK(thrown_out(address, token, {flipped}));
    CHECK(thrown_out(address, token, {mislabelled}));
    CHECK(thrown_out(address, token, {{0x4242, garbage}}));
  }
  CHECK(thrown_out(cluster.address(), token, {frame_of(msg::StatusRequest{})}));  // before joining
  msg::Join stranger;
  stranger.role = msg::Role::kClient;
  stranger.name = "from another time";
  stranger.software_version = "0.0.0-other";
  CHECK(thrown_out(cluster.address(), token, {frame_of(stranger)}));
  msg::PeerHello hello;
  hello.from = WorkerId(77);
  hello.to = WorkerId(78);
  CHECK(thrown_out(cluster.worker_address(1), token, {frame_of(hello)}));  // for another incarnation
  CHECK(sum(before.ones({10})).item<double>() == 10);
  still_computes(cluster);
}

TEST_CASE("a client that vanishes in the middle of a graph leaves nothing behind when its lease is over") {
  Cluster cluster;
  INFO(cluster.words());
  Environment environment = cluster.environment();
  environment["TILEWISE_LEASE"] = "3";
  Process client("lingerer", {client_program(), "linger"}, environment);
  REQUIRE(eventually([&] { return has(client.output(), "running") || !client.running(); }));
  REQUIRE(client.running());
  CHECK(has(cluster.status(), "lingerer"));
  client.signal(SIGKILL);
  const Clock::time_point killed = Clock::now();
  while (Clock::now() - killed < std::chrono::milliseconds(2'500)) {
    CHECK(has(cluster.status(), "lingerer"));
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
  }
  CHECK(eventually([&] {
    const std::string status = cluster.status();
    return has(status, "\"arrays_live\":0,") && !has(status, "lingerer") && has(status, "\"graphs\":[]");
  }));
  still_computes(cluster);
}

TEST_CASE("a scheduler killed is an error for clients and workers, not a hang") {
  Cluster cluster;
  const Session session = cluster.session();
  const Future future = session.compute({long_work(session)});
  cluster.scheduler().signal(SIGKILL);
  Errc code = Errc::kOk;
  try {
    future.wait({.timeout = kPatience});
  } catch (const ArrayError& e) {
    code = e.code();
  }
  CHECK(code == Errc::kUnavailable);
  CHECK(cluster.worker(0).wait() == 1);
  CHECK(cluster.worker(1).wait() == 1);
}
