#include "auth.h"

#include <doctest/doctest.h>

namespace tilewise::dashboard {
namespace {

net::Token token(char digit) { return *net::Token::from_hex(std::string(64, digit)); }

TEST_CASE("a role's token lets in as that role, and nothing near it does") {
  const Auth auth(token('a'));
  const std::string reader = config::role_token(token('a'), Role::kReader),
                    op = config::role_token(token('a'), Role::kOperator);
  CHECK(auth.from_token(reader) == Role::kReader);
  CHECK(auth.from_token(op) == Role::kOperator);
  CHECK(auth.from_authorization("Bearer " + op) == Role::kOperator);
  CHECK(auth.from_authorization("bearer  " + reader) == Role::kReader);
  for (const std::string& wrong : {std::string(), std::string(64, 'a'), reader.substr(1), reader + "0",
                                   op.substr(0, 63) + "x", config::role_token(token('b'), Role::kReader)}) {
    CHECK(!auth.from_token(wrong));
    CHECK(!auth.from_authorization("Bearer " + wrong));
  }
  CHECK(!auth.from_authorization(reader));
  CHECK(!auth.from_authorization("Basic " + reader));
  CHECK(!auth.from_authorization("Bearer"));
}

TEST_CASE("cookies are believed as long as they say, unchanged") {
  const Auth auth(token('a'));
  constexpr std::int64_t kNow = 1'000'000;
  const std::string cookie = auth.make_cookie(Role::kReader, kNow);
  CHECK(auth.from_cookie(cookie, kNow + 1) == Role::kReader);
  CHECK(Auth(token('a')).from_cookie(cookie, kNow) == Role::kReader);  // another life of the scheduler
  CHECK(!Auth(token('b')).from_cookie(cookie, kNow));
  CHECK(!auth.from_cookie(cookie, kNow + Auth::kCookieSeconds));
  CHECK(!auth.from_cookie(cookie, kNow - 10));  // made later than now: the clock was set back
  CHECK(auth.from_cookie(auth.make_cookie(Role::kOperator, kNow), kNow) == Role::kOperator);
  CHECK(auth.make_cookie(Role::kReader, kNow) != cookie);
  std::string forged = cookie;
  forged.replace(0, 6, "operator");
  CHECK(!auth.from_cookie(forged, kNow));
  for (std::size_t i = 0; i < cookie.size(); ++i) {
    std::string changed = cookie;
    changed[i] = changed[i] == '0' ? '1' : '0';
    CHECK(!auth.from_cookie(changed, kNow));
  }
  for (const char* nonsense : {"", ".", "...", "operator.99999999999.00.", "a.b.c.d"})
    CHECK(!auth.from_cookie(nonsense, kNow));
}

TEST_CASE("a cookie that logged out is not believed again; others are") {
  Auth auth(token('a'));
  const std::string mine = auth.make_cookie(Role::kReader, 1000),
                    other = auth.make_cookie(Role::kReader, 1000);
  auth.end(mine);
  CHECK(!auth.from_cookie(mine, 1001));
  CHECK(auth.from_cookie(other, 1001) == Role::kReader);
  auth.end("reader.1.2.3");  // somebody else's invention takes no room
  for (std::size_t i = 0; i < Auth::kMaxEnded - 1; ++i) auth.end("reader.1.2." + std::to_string(i));
  CHECK(!auth.from_cookie(mine, 1001));
}

TEST_CASE("a login code is good once, and not for long") {
  Auth auth(token('a'));
  const std::string code = auth.make_code(Role::kOperator, 0);
  CHECK(code.size() == 64);
  CHECK(!auth.take_code("", 1));
  CHECK(!auth.take_code(code.substr(1), 1));
  CHECK(auth.take_code(code, 1) == Role::kOperator);
  CHECK(!auth.take_code(code, 2));
  const std::string late = auth.make_code(Role::kReader, 0);
  CHECK(!auth.take_code(late, Auth::kCodeNs));
  // So many that the first ones go.
  const std::string first = auth.make_code(Role::kReader, 0);
  for (std::size_t i = 0; i < Auth::kMaxCodes; ++i) auth.make_code(Role::kReader, 0);
  CHECK(!auth.take_code(first, 1));
}

TEST_CASE("cookies are found by their whole name") {
  CHECK(cookie_of("a=1; tilewise_7421=x.y; b=2", "tilewise_7421") == "x.y");
  CHECK(cookie_of("tilewise_7421=", "tilewise_7421") == "");
  CHECK(!cookie_of("xtilewise_7421=1", "tilewise_7421"));
  CHECK(!cookie_of("tilewise_7421", "tilewise_7421"));
  CHECK(!cookie_of("", "tilewise_7421"));
  CHECK(!cookie_of(";;;=;", "tilewise_7421"));
}

TEST_CASE("only our own names are ours") {
  const std::string more[] = {"Dash.Example.org", "10.0.0.7:8443"};
  const Names names("192.168.0.5", 7421, more);
  for (const char* ours : {"127.0.0.1:7421", "localhost:7421", "LOCALHOST:7421", "[::1]:7421",
                           "192.168.0.5:7421", "dash.example.org", "dash.example.org:7421", "10.0.0.7:8443"})
    CHECK(names.host(ours));
  for (const char* foreign :
       {"", "localhost", "localhost:80", "evil.com", "evil.com:7421", "localhost:7421.evil.com", "10.0.0.7",
        "127.0.0.1:7421@evil.com", " localhost:7421"})
    CHECK(!names.host(foreign));
  CHECK(names.origin("http://localhost:7421"));
  CHECK(names.origin("https://dash.example.org"));
  for (const char* foreign : {"null", "", "http://", "http://evil.com", "file://localhost:7421",
                              "localhost:7421", "http://localhost:7421/", "http://localhost:74211"})
    CHECK(!names.origin(foreign));
}

}  // namespace
}  // namespace tilewise::dashboard
