// Bytes that nobody would send who means well, from a fixed seed: requests and frames that are right, with something wrong in
// them. Whatever comes, the server answers by its rules or closes, does nothing that it may not, and serves the next one.
#include <chrono>
#include <random>
#include <thread>

#include "test_site.h"

namespace tilewise::dashboard {
namespace {

using namespace test;

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}
  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }
  std::string noise(std::size_t n) {
    std::string out(n, '\0');
    for (char& c : out) c = static_cast<char>(random_());
    return out;
  }
  // One to four changes: a byte, a stretch gone or twice, something in between that parsers stumble over, an early end.
  std::string operator()(std::string text) {
    static const std::vector<std::string> kNasty = {"\r\n",
                                                    "\n",
                                                    "\r",
                                                    "\r\n\r\n",
                                                    std::string(1, '\0'),
                                                    ":",
                                                    " ",
                                                    "\t",
                                                    "%00",
                                                    "../",
                                                    "\xff\xfe",
                                                    "\"",
                                                    "\\",
                                                    "Transfer-Encoding: chunked\r\n",
                                                    "Content-Length: 99999999999999999999\r\n",
                                                    "Content-Length: -1\r\n",
                                                    "Content-Length: 5\r\n",
                                                    "Host: evil.com\r\n",
                                                    "Connection: upgrade\r\n",
                                                    "Upgrade: websocket\r\n",
                                                    "Expect: 100-continue\r\n",
                                                    "Range: bytes=0-1,2-3,-1\r\n",
                                                    "Cookie: ;;;=;=\r\n",
                                                    "Authorization: Bearer \r\n",
                                                    "Authorization: \r\n",
                                                    "HTTP/9.9",
                                                    "HTTP/1.0",
                                                    "0\r\n\r\n",
                                                    "FFFFFFFFFFFFFFFF\r\n",
                                                    "{\"a\":",
                                                    "[[[[[[[[",
                                                    "\\ud800",
                                                    "1e999",
                                                    "-0"};
    for (std::size_t i = 1 + below(4); i > 0; --i) {
      const std::size_t at = below(text.size() + 1),
                        n = below(1 + std::min<std::size_t>(20, text.size() - at));
      switch (below(6)) {
        case 0:
          if (at < text.size()) text[at] = static_cast<char>(random_());
          break;
        case 1: text.erase(at, n); break;
        case 2: text.insert(at, text.substr(at, n)); break;
        case 3: text.insert(at, kNasty[below(kNasty.size())]); break;
        case 4: text.insert(at, noise(below(40))); break;
        default: text.resize(at); break;
      }
    }
    return text;
  }

 private:
  std::mt19937_64 random_;
};

// Sends it, says that no more will come, and reads to the end.
std::string talk(Site& site, const std::string& bytes) {
  tcp::socket socket = site.connect();
  error_code ec;
  asio::write(socket, asio::buffer(bytes), ec);
  socket.shutdown(tcp::socket::shutdown_send, ec);
  std::string all;
  asio::read(socket, asio::dynamic_buffer(all), ec);
  return all;
}

void check_answer(const std::string& all) {
  if (all.empty()) return;  // closed without a word
  CAPTURE(all.substr(0, 200));
  REQUIRE(all.starts_with("HTTP/1."));
  const int status = std::stoi(all.substr(9, 3));
  CHECK((status == 101 || status == 200 || status == 303 || (status >= 400 && status < 500)));
  if (status != 101) CHECK(all.find("Content-Security-Policy: default-src 'none'") != std::string::npos);
  // Nobody is let in by accident; logging out clears a cookie.
  CHECK((all.find("Set-Cookie: ") == std::string::npos || all.find("Max-Age=0") != std::string::npos));
}

void check_unharmed(Site& site) {
  CHECK(site.source.cancelled == 0);
  CHECK(site.source.released == 0);
  CHECK(site.source.drained == 0);
  CHECK(site.get("/api/me", site.bearer(site.reader_token)).status == 200);
}

TEST_CASE("mutated requests, with a reader's token and with none") {
  Limits limits;
  limits.read_ns = kSecond;
  Site site(limits);
  Mutator mutate(20'260'722);
  const std::string reader = site.bearer(site.reader_token), json = site.as_json(), ours = site.own_page();
  const auto post = [&](const std::string& path, const std::string& body, const std::string& headers) {
    return site.head("POST", path, headers) + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
           body;
  };
  const std::vector<std::string> seeds = {
      site.head("GET", "/", "") + "\r\n",
      site.head("GET", "/api/overview", reader) + "\r\n",
      site.head("GET", "/api/graph?id=7&first=3", reader) + "\r\n",
      site.head("GET", "/api/array?id=1&at=0,64", reader) + "\r\n",
      site.head("GET", "/api/trace?id=7&from_us=10&until_us=5", reader) + "\r\n",
      site.head("GET", "/api/blocks?id=3&first=0&count=4096", reader) + "\r\n",
      site.head("GET", "/api/log?after=1", reader) + "\r\n",
      site.head("GET", "/login?code=" + std::string(64, 'a'), "") + "\r\n",
      site.head("HEAD", "/app.js", "If-None-Match: \"x\"\r\n") + "\r\n",
      post("/login", R"({"token":")" + std::string(64, '0') + "\"}", json + ours),
      post("/api/cancel", R"({"graph":"7"})", reader + json),
      post("/api/release", R"({"array":"7"})", reader + json),
      post("/api/drain", R"({"worker":"1","on":"yes"})", reader + json),
      post("/api/cancel", R"({"graph":"7"})", json + ours),
      post("/logout", "", ours),
  };
  for (int i = 0; i < 3'000; ++i) {
    CAPTURE(i);
    std::string bytes = mutate(seeds[static_cast<std::size_t>(i) % seeds.size()]);
    if (i % 7 == 0)
      bytes += mutate(seeds[mutate.below(seeds.size())]);  // one after the other on a connection
    check_answer(talk(site, bytes));
    if (i % 100 == 0) check_unharmed(site);
  }
  for (int i = 0; i < 200; ++i) check_answer(talk(site, mutate.noise(1 + mutate.below(2'000))));
  check_unharmed(site);
}

std::string frame(int first, std::uint64_t length, const std::string& payload, bool masked, Mutator& random) {
  std::string out(1, static_cast<char>(first));
  const char mask_bit = masked ? static_cast<char>(0x80) : '\0';
  if (length < 126) {
    out += static_cast<char>(mask_bit | static_cast<char>(length));
  } else if (length < 65'536) {
    out += static_cast<char>(mask_bit | 126);
    for (int shift = 8; shift >= 0; shift -= 8) out += static_cast<char>(length >> shift);
  } else {
    out += static_cast<char>(mask_bit | 127);
    for (int shift = 56; shift >= 0; shift -= 8) out += static_cast<char>(length >> shift);
  }
  if (!masked) return out + payload;
  const std::string mask = random.noise(4);
  out += mask;
  for (std::size_t i = 0; i < payload.size(); ++i) out += static_cast<char>(payload[i] ^ mask[i % 4]);
  return out;
}

TEST_CASE("mutated WebSocket frames and messages") {
  Limits limits;
  limits.read_ns = kSecond;
  Site site(limits, 5 * kMillisecond);
  Mutator mutate(4'711);
  const std::string hello = "GET /ws HTTP/1.1\r\nHost: " + site.host +
                            "\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                            "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n" +
                            site.bearer(site.reader_token) + "\r\n";
  const std::vector<std::string> messages = {
      R"({"watch":[{"view":"overview"},{"view":"graph","id":"7"},{"view":"log"}]})",
      R"({"watch":[{"view":"arrays"},{"view":"links"},{"view":"array","id":"18446744073709551615"}]})",
      R"({"watch":[]})", std::string(4'000, ' ') + "{}"};
  int upgraded = 0;
  for (int i = 0; i < 1'500; ++i) {
    CAPTURE(i);
    std::string bytes = i % 10 == 0 ? mutate(hello) : hello;
    for (std::size_t n = 1 + mutate.below(4); n > 0; --n) {
      const std::string payload = mutate.below(3) == 0 ? messages[mutate.below(messages.size())]
                                                       : mutate(messages[mutate.below(messages.size())]);
      // Any opcode, reserved bits and lengths that lie, mostly text as it should be.
      const int first = mutate.below(3) == 0 ? static_cast<int>(mutate.below(256)) : 0x81;
      const std::uint64_t lie[] = {payload.size(), payload.size(),         payload.size(), 0, 1, 125,
                                   65'535,         std::uint64_t{1} << 62, UINT64_MAX};
      std::string one = frame(first, lie[mutate.below(9)], payload, mutate.below(8) != 0, mutate);
      if (mutate.below(6) == 0) one = mutate(one);
      bytes += one;
    }
    const std::string all = talk(site, bytes);
    upgraded += all.starts_with("HTTP/1.1 101") ? 1 : 0;
    check_answer(all);
    if (i % 100 == 0) check_unharmed(site);
  }
  CHECK(upgraded > 1'000);
  check_unharmed(site);
  // All of them are gone: none holds a place of those who may watch.
  bool none = false;
  for (int i = 0; i < 400 && !none; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    none =
        site.get("/metrics", site.bearer(site.reader_token)).body.find("tilewise_dashboard_watchers 0\n") !=
        std::string::npos;
  }
  CHECK(none);
}

}  // namespace
}  // namespace tilewise::dashboard
