#include <tilewise/net/lookup.h>

#include <dlfcn.h>
#include <netdb.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <string_view>

#include "net_test_util.h"

using namespace tilewise;
using namespace tilewise::net;
using namespace tilewise::net::test;

namespace {

// The system's resolver, silent on names that end in ".silent" till it is let go; then it knows of none.
class Resolver {
 public:
  int answer(std::string_view) {
    std::unique_lock lock(mutex_);
    ++asked_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !silent_; });
    --asked_;
    changed_.notify_all();
    return EAI_NONAME;
  }
  void keep_silent() {
    std::lock_guard lock(mutex_);
    silent_ = true;
  }
  // Until `asked` threads are here.
  void await(int asked) {
    std::unique_lock lock(mutex_);
    CHECK(changed_.wait_for(lock, std::chrono::nanoseconds(kPatience), [&] { return asked_ == asked; }));
  }
  void let_go() {
    std::lock_guard lock(mutex_);
    silent_ = false;
    changed_.notify_all();
  }
  int asked() {
    std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool silent_ = true;
  int asked_ = 0;
};

// Never destroyed: a thread that a failed test left behind may still be there.
Resolver& resolver() {
  static auto* const only = new Resolver;
  return *only;
}

// Silent for as long as a test is in it; no thread of the test is there afterwards.
struct Silence {
  Silence() { resolver().keep_silent(); }
  ~Silence() {
    resolver().let_go();
    resolver().await(0);
  }
};

Address silent(int i = 0) { return {.host = "host" + std::to_string(i) + ".silent", .port = 7421}; }

}  // namespace

// Found by what is linked into this program before the C library's.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** found) {
  if (host != nullptr && std::string_view(host).ends_with(".silent")) return resolver().answer(host);
  using Real = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto real = reinterpret_cast<Real>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  return real(host, service, hints, found);
}

TEST_CASE("numeric hosts and names that are known") {
  auto loop = make_loop();
  const Address hosts[] = {{.host = "127.0.0.1", .port = 80},
                           {.host = "::1", .port = 80},
                           {.host = "fe80::1%1", .port = 80},
                           {.host = "localhost", .port = 80}};
  for (const Address& host : hosts) {
    CAPTURE(host.host);
    std::optional<Result<std::vector<Address>>> found;
    Lookup lookup(*loop, host, [&](auto all) { found.emplace(std::move(all)); });
    CHECK(!found);
    REQUIRE(loop->run_until([&] { return found.has_value(); }, kPatience));
    REQUIRE(*found);
    REQUIRE(!(**found).empty());
    for (const Address& each : **found) CHECK(each.port == 80);
    if (host.host != "localhost") CHECK((**found)[0].host == host.host);
    if (host.host == "localhost") CHECK(is_loopback((**found)[0]));
    CHECK(*look_up(host, kPatience) == **found);
  }
}

TEST_CASE("a look-up is given up before the resolver answers, and so is its loop") {
  const Silence silence;
  bool called = false;
  {
    auto loop = make_loop();
    const Lookup lookup(*loop, silent(), [&](auto) { called = true; });
    resolver().await(1);
  }
  resolver().let_go();
  resolver().await(0);
  CHECK(!called);
}

TEST_CASE("an answer that came before a look-up was given up is not told") {
  const Silence silence;
  auto loop = make_loop();
  bool called = false;
  auto lookup = std::make_unique<Lookup>(*loop, silent(), [&](auto) { called = true; });
  resolver().await(1);
  resolver().let_go();
  resolver().await(0);
  lookup.reset();
  settle(*loop);
  CHECK(!called);
}

TEST_CASE("a look-up may be destroyed in its own answer") {
  const Silence silence;
  auto loop = make_loop();
  std::unique_ptr<Lookup> lookup;
  Errc code = Errc::kOk;
  lookup = std::make_unique<Lookup>(*loop, silent(), [&](auto found) {
    code = found.error().code;
    lookup.reset();
  });
  resolver().let_go();
  CHECK(loop->run_until([&] { return code != Errc::kOk; }, kPatience));
  CHECK(code == Errc::kNotFound);
  CHECK(!lookup);
}

TEST_CASE("waiting for a name has a deadline") {
  const Silence silence;
  const auto found = look_up(silent(), 10 * kMillisecond);
  REQUIRE(!found);
  CHECK(found.error().code == Errc::kTimeout);
  CHECK(found.error().message.find("host0.silent") != std::string::npos);
}

TEST_CASE("connecting to a name has a deadline, and the loop ends with it") {
  const Silence silence;
  Errc code = Errc::kOk;
  {
    auto loop = make_loop();
    HandshakeOptions options{.token = Token::from_hex(std::string(64, 'a')).value()};
    options.deadline_ns = 10 * kMillisecond;
    const auto attempt = connect(*loop, silent(), options, [&](auto link) { code = link.error().code; });
    CHECK(loop->run_until([&] { return code != Errc::kOk; }, kPatience));
  }
  CHECK(code == Errc::kTimeout);
}

TEST_CASE("names beyond the limit of threads wait for one") {
  const Silence silence;
  auto loop = make_loop();
  int told = 0;
  std::vector<std::unique_ptr<Lookup>> lookups;
  for (int i = 0; i < kMaxLookupThreads + 3; ++i)
    lookups.push_back(std::make_unique<Lookup>(*loop, silent(i), [&](auto) { ++told; }));
  resolver().await(kMaxLookupThreads);
  lookups.pop_back();  // one that waits: nobody asks for it
  lookups.erase(lookups.begin());
  settle(*loop);
  CHECK(resolver().asked() == kMaxLookupThreads);
  CHECK(told == 0);
  resolver().let_go();
  const int all = static_cast<int>(lookups.size());
  CHECK(loop->run_until([&] { return told == all; }, kPatience));
}
