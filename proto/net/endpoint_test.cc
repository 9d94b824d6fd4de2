#include "net_test_util.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>

using namespace tilewise;
using namespace tilewise::net;
using namespace tilewise::net::test;

namespace {

std::string unique_name() {
  static int count = 0;
  return "tilewise-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
}

Address unix_file() {
  return {.kind = Address::Kind::kUnix,
          .host = "",
          .path = std::filesystem::temp_directory_path() / unique_name()};
}

// A listener with its loop; links and rejections are kept.
struct Server {
  std::unique_ptr<EventLoop> loop = make_loop();
  std::vector<std::unique_ptr<Link>> links;
  std::vector<Error> rejected;
  std::unique_ptr<Listener> listener;

  explicit Server(const Address& address, ListenerOptions options = {.handshake = {.token = token('a')}}) {
    auto opened = Listener::open(
        *loop, address, std::move(options),
        [this](std::unique_ptr<Link> link) { links.push_back(std::move(link)); },
        [this](const Error& why, const std::string&) { rejected.push_back(why); });
    REQUIRE(opened);
    listener = std::move(*opened);
  }

  Result<std::unique_ptr<Link>> dial(const Address& address, HandshakeOptions options) {
    Result<std::unique_ptr<Link>> result = error(Errc::kInternal, "not called");
    bool called = false;
    auto attempt = connect(*loop, address, options, [&](Result<std::unique_ptr<Link>> r) {
      result = std::move(r);
      called = true;
    });
    CHECK(!called);
    CHECK(loop->run_until([&] { return called; }, kPatience));
    return result;
  }
};

UniqueFd raw_connect(const Address& address) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{
      .sin_family = AF_INET, .sin_port = htons(address.port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  REQUIRE(::connect(fd.get(), reinterpret_cast<sockaddr*>(&where), sizeof(where)) == 0);
  return fd;
}

}  // namespace

TEST_CASE("links over every kind of address") {
  const Address addresses[] = {
      Address{}, Address{.host = "localhost"}, Address{.host = "::1"}, unix_file(),
      Address{.kind = Address::Kind::kUnixAbstract, .host = "", .path = unique_name()}};
  for (const Address& address : addresses) {
    CAPTURE(address.to_string());
    if (address.host == "::1" && !std::filesystem::exists("/proc/net/if_inet6")) continue;
    Server server(address);
    const Address& actual = server.listener->address();
    bool tcp = address.kind == Address::Kind::kTcp;
    CHECK((actual.port != 0) == tcp);
    auto link = server.dial(actual, {.token = token('a')});
    REQUIRE(link);
    CHECK(server.loop->run_until([&] { return server.links.size() == 1; }, kPatience));
    CHECK(server.links[0]->cookie() == (*link)->cookie());
    CHECK((*link)->can_pass_fds() == !tcp);
    if (tcp) CHECK((*link)->peer().ends_with(":" + std::to_string(actual.port)));
    Recorder a, b;
    a.start(std::move(*link));
    b.start(std::move(server.links[0]));
    std::string big = pattern(2'000'000);
    REQUIRE(a.link->send(1, bytes_of("there")));
    REQUIRE(b.link->send(2, bytes_of(big)));
    CHECK(server.loop->run_until([&] { return a.frames.size() == 1 && b.frames.size() == 1; }, kPatience));
    CHECK((a.frames[0].second == big));
  }
}

TEST_CASE("a wrong token is refused on both sides, and the listener goes on") {
  Server server(Address{});
  auto refused = server.dial(server.listener->address(), {.token = token('b')});
  REQUIRE(!refused);
  CHECK(refused.error().code == Errc::kUnauthenticated);
  CHECK(refused.error().message.find("token") != std::string::npos);
  CHECK(server.loop->run_until([&] { return server.rejected.size() == 1; }, kPatience));
  CHECK(server.rejected[0].code == Errc::kUnauthenticated);
  CHECK(server.dial(server.listener->address(), {.token = token('a')}));
}

TEST_CASE("versions that differ are named, over TCP as well") {
  Server server(Address{});
  auto refused = server.dial(server.listener->address(), {.token = token('a'), .link = {.version = 9}});
  REQUIRE(!refused);
  CHECK(refused.error().code == Errc::kVersionMismatch);
  CHECK(refused.error().message.find("version 1, this side version 9") != std::string::npos);
}

TEST_CASE("a listener without a file descriptor says so, does not spin, and goes on when there is one") {
  Server server({.host = "127.0.0.1"});
  const int peer = ::socket(AF_INET, SOCK_STREAM, 0);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int next = ::dup(0);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(next);
  ::close(next);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(server.listener->address().port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::connect(peer, reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0);
  const TimeNs begun = monotonic_now();
  server.loop->run_until([&] { return monotonic_now() - begun > kSecond; }, kPatience);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE(!server.rejected.empty());
  CHECK(server.rejected.size() <= 11);
  CHECK(server.rejected[0].code == Errc::kLimitExceeded);
  CHECK(server.rejected[0].message.find("Too many open files") != std::string::npos);
  CHECK(server.dial(server.listener->address(), {.token = token('a')}));
  ::close(peer);
}

TEST_CASE("nobody there, unknown hosts and addresses in use are typed errors") {
  Server server(Address{});
  Address gone = server.listener->address();
  CHECK(Listener::open(*server.loop, gone, {.handshake = {.token = token('a')}}, [](auto) {}).error().code ==
        Errc::kAlreadyExists);
  server.listener.reset();
  CHECK(server.dial(gone, {.token = token('a')}).error().code == Errc::kUnavailable);
  CHECK(server.dial(unix_file(), {.token = token('a')}).error().code == Errc::kUnavailable);
  CHECK(server.dial({.host = "no-such-host.invalid", .port = 1}, {.token = token('a')}).error().code ==
        Errc::kNotFound);
}

TEST_CASE("a listener that accepts and says nothing: the connector's deadline") {
  auto loop = make_loop();
  UniqueFd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(where);
  REQUIRE(::bind(silent.get(), reinterpret_cast<sockaddr*>(&where), size) == 0);
  REQUIRE(::listen(silent.get(), 5) == 0);
  REQUIRE(::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&where), &size) == 0);
  std::optional<Errc> code;
  auto attempt =
      connect(*loop, {.port = ntohs(where.sin_port)}, {.token = token('a'), .deadline_ns = 20 * kMillisecond},
              [&](Result<std::unique_ptr<Link>> r) { code = r ? Errc::kOk : r.error().code; });
  CHECK(loop->run_until([&] { return code.has_value(); }, kPatience));
  CHECK(*code == Errc::kTimeout);
  code.reset();
  attempt = connect(*loop, {.port = ntohs(where.sin_port)}, {.token = token('a')},
                    [&](Result<std::unique_ptr<Link>>) { code = Errc::kOk; });
  loop->poll();
  attempt.reset();
  settle(*loop, 5 * kMillisecond);
  CHECK(!code);  // a cancelled attempt says nothing
}

TEST_CASE("the oldest of too many unauthenticated connections goes; good ones still get in") {
  Server server(Address{},
                {.handshake = {.token = token('a'), .deadline_ns = kPatience}, .max_unauthenticated = 3});
  std::vector<UniqueFd> idle;
  for (int i = 0; i < 5; ++i) idle.push_back(raw_connect(server.listener->address()));
  CHECK(server.loop->run_until([&] { return server.rejected.size() == 2; }, kPatience));
  CHECK(server.rejected[0].code == Errc::kLimitExceeded);
  CHECK(server.dial(server.listener->address(), {.token = token('a')}));
  CHECK(server.rejected.size() == 3);
  auto closed = [](const UniqueFd& fd) {
    char hello[100];
    errno = 0;
    while (::recv(fd.get(), hello, sizeof(hello), MSG_DONTWAIT) > 0) {
    }
    return errno != EAGAIN;  // the end, or a reset
  };
  for (std::size_t i = 0; i < idle.size(); ++i) CHECK(closed(idle[i]) == (i < 3));
}

TEST_CASE("idle connections end at the deadline") {
  Server server(Address{}, {.handshake = {.token = token('a'), .deadline_ns = 10 * kMillisecond}});
  UniqueFd idle = raw_connect(server.listener->address());
  CHECK(server.loop->run_until([&] { return server.rejected.size() == 1; }, kPatience));
  CHECK(server.rejected[0].code == Errc::kTimeout);
}

TEST_CASE("socket files: mode 0600, a dead one is replaced, a live one is not, removed at the end") {
  Address address = unix_file();
  {  // a dead process's
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un where{.sun_family = AF_UNIX};
    std::memcpy(where.sun_path, address.path.data(), address.path.size());
    REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&where), sizeof(where)) == 0);
  }
  {
    Server server(address);
    struct stat info {};
    REQUIRE(::stat(address.path.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0600);
    CHECK(Listener::open(*server.loop, address, {.handshake = {.token = token('a')}}, [](auto) {})
              .error()
              .code == Errc::kAlreadyExists);
    CHECK(server.dial(address, {.token = token('a')}));
  }
  CHECK(!std::filesystem::exists(address.path));
  // What is not a socket is never removed.
  UniqueFd file(::open(address.path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  auto loop = make_loop();
  CHECK(!Listener::open(*loop, address, {.handshake = {.token = token('a')}}, [](auto) {}));
  CHECK(std::filesystem::exists(address.path));
  std::filesystem::remove(address.path);
}

TEST_CASE("a socket whose owner takes no connections is not waited for, and is not taken for a dead one") {
  const Address address = unix_file();
  sockaddr_un where{.sun_family = AF_UNIX};
  std::memcpy(where.sun_path, address.path.data(), address.path.size());
  const auto* at = reinterpret_cast<const sockaddr*>(&where);
  UniqueFd owner(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(owner.get(), at, sizeof(where)) == 0);
  REQUIRE(::listen(owner.get(), 0) == 0);
  std::vector<UniqueFd> queue;
  int got = 0;
  while (got == 0 && queue.size() < 100) {
    queue.emplace_back(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    got = ::connect(queue.back().get(), at, sizeof(where));
  }
  REQUIRE(got != 0);
  auto loop = make_loop();
  CHECK(Listener::open(*loop, address, {.handshake = {.token = token('a')}}, [](auto) {}).error().code ==
        Errc::kAlreadyExists);
  CHECK(std::filesystem::exists(address.path));
  std::optional<Error> why;
  const auto attempt = connect(*loop, address, {.token = token('a')}, [&](auto link) { why = link.error(); });
  REQUIRE(loop->run_until([&] { return why.has_value(); }, kPatience));
  CHECK_MESSAGE(why->code == Errc::kUnavailable, why->message);
  std::filesystem::remove(address.path);
}

TEST_CASE("a listener and an attempt may be destroyed in their callbacks") {
  auto loop = make_loop();
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Link> accepted;
  listener =
      Listener::open(*loop, Address{}, {.handshake = {.token = token('a')}}, [&](std::unique_ptr<Link> link) {
        accepted = std::move(link);
        listener.reset();
      }).value();
  UniqueFd idle = raw_connect(listener->address());  // dropped with the listener
  std::unique_ptr<Link> mine;
  std::unique_ptr<ConnectAttempt> attempt =
      connect(*loop, listener->address(), {.token = token('a')}, [&](Result<std::unique_ptr<Link>> link) {
        CHECK(link);
        if (link) mine = std::move(*link);
        attempt.reset();
      });
  CHECK(loop->run_until([&] { return mine && accepted && !attempt && !listener; }, kPatience));
}

TEST_CASE("many links at once") {
  Server server(Address{},
                {.handshake = {.token = token('a'), .deadline_ns = kPatience}, .max_unauthenticated = 300});
  constexpr std::size_t kLinks = 200;
  std::vector<std::unique_ptr<ConnectAttempt>> attempts;
  std::vector<std::unique_ptr<Link>> made;
  for (std::size_t i = 0; i < kLinks; ++i) {
    attempts.push_back(connect(*server.loop, server.listener->address(),
                               {.token = token('a'), .deadline_ns = kPatience},
                               [&](Result<std::unique_ptr<Link>> link) {
                                 CHECK(link);
                                 if (link) made.push_back(std::move(*link));
                               }));
  }
  CHECK(server.loop->run_until([&] { return made.size() == kLinks && server.links.size() == kLinks; },
                               kPatience));
  // Each server link echoes, including the number of the link that asked.
  std::vector<Recorder> clients(kLinks);
  for (std::size_t i = 0; i < kLinks; ++i) {
    Link* link = server.links[i].get();
    link->start({.on_frame = [link](Frame& frame) { CHECK(link->send(frame.type, frame.payload)); },
                 .on_close = [](const Error&) {}});
    clients[i].start(std::move(made[i]));
  }
  for (std::size_t round = 0; round < 5; ++round) {
    for (std::size_t i = 0; i < kLinks; ++i) {
      REQUIRE(clients[i].link->send(static_cast<std::uint16_t>(i), bytes_of(std::to_string(round))));
    }
  }
  auto all = [&] {
    return std::all_of(clients.begin(), clients.end(),
                       [](const Recorder& r) { return r.frames.size() == 5; });
  };
  CHECK(server.loop->run_until(all, kPatience));
  for (std::size_t i = 0; i < kLinks; ++i) {
    for (std::size_t k = 0; k < clients[i].frames.size(); ++k) {
      CHECK(clients[i].frames[k].first == i);
      CHECK(clients[i].frames[k].second == std::to_string(k));
    }
  }
}
