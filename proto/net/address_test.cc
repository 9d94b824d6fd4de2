#include <tilewise/net/address.h>

#include "net_test_util.h"

using namespace tilewise;
using namespace tilewise::net;

TEST_CASE("addresses parse and print back") {
  struct Case {
    const char* text;
    Address value;
    const char* printed;
  };
  using Kind = Address::Kind;
  const Case cases[] = {
      {"tcp://127.0.0.1:7000", {Kind::kTcp, "127.0.0.1", 7000, ""}, "tcp://127.0.0.1:7000"},
      {"node-3.example_x:1", {Kind::kTcp, "node-3.example_x", 1, ""}, "tcp://node-3.example_x:1"},
      {"tcp://:0", {Kind::kTcp, "127.0.0.1", 0, ""}, "tcp://127.0.0.1:0"},
      {"tcp://[::1]:65535", {Kind::kTcp, "::1", 65535, ""}, "tcp://[::1]:65535"},
      {"unix:/run/tw.sock", {Kind::kUnix, "", 0, "/run/tw.sock"}, "unix:/run/tw.sock"},
      {"unix-abstract:tw-7", {Kind::kUnixAbstract, "", 0, "tw-7"}, "unix-abstract:tw-7"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    auto parsed = Address::parse(c.text);
    REQUIRE(parsed);
    CHECK(*parsed == c.value);
    CHECK(parsed->to_string() == c.printed);
    CHECK(Address::parse(c.printed).value() == c.value);
  }
}

TEST_CASE("bad addresses say which part is bad") {
  struct Case {
    std::string text;
    const char* says;
  };
  const Case cases[] = {
      {"", "port is missing"},
      {"localhost", "port is missing"},
      {"tcp://localhost", "port is missing"},
      {"host:", "bad port"},
      {"host:65536", "bad port"},
      {"host:-1", "bad port"},
      {"host:12x", "bad port"},
      {"host: 12", "bad port"},
      {"ho st:1", "bad host"},
      {"-rf:1", "bad host"},
      {"127.0.0.256:1", "bad host"},
      {"1.2.3:1", "bad host"},
      {"::1:80", "needs brackets"},
      {"[::1]80", "expected [IPv6]:port"},
      {"[host]:80", "not an IPv6"},
      {"http://host:80", "unknown scheme"},
      {"unix:", "path is empty"},
      {"unix:/" + std::string(200, 'x'), "longer"},
      {"unix-abstract:" + std::string("a\0b", 3), "zero byte"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.text);
    auto parsed = Address::parse(c.text);
    REQUIRE(!parsed);
    CHECK(parsed.error().code == Errc::kInvalidArgument);
    CHECK(parsed.error().message.find(c.says) != std::string::npos);
  }
}

TEST_CASE("only loopback is safe without a token") {
  for (const char* text : {"localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1", "[::ffff:127.0.0.1]:1",
                           "unix:/x", "unix-abstract:x", "tcp://:1"}) {
    CAPTURE(text);
    CHECK(is_loopback(Address::parse(text).value()));
    CHECK(check_exposure(Address::parse(text).value(), false));
  }
  for (const char* text : {"0.0.0.0:1", "[::]:1", "128.0.0.1:1", "10.0.0.1:1", "localhost.evil.example:1",
                           "node7:1", "[::ffff:10.0.0.1]:1", "[fe80::1]:1"}) {
    CAPTURE(text);
    Address address = Address::parse(text).value();
    CHECK(!is_loopback(address));
    CHECK(check_exposure(address, true));
    auto refused = check_exposure(address, false);
    REQUIRE(!refused);
    CHECK(refused.error().code == Errc::kPermissionDenied);
  }
}
