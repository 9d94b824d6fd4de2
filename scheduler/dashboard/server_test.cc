// The server as an attacker meets it: each rule, and the request that it is there for. Raw bytes over real sockets.
#include <tilewise/json/json.h>

#include <chrono>
#include <thread>

#include "test_site.h"

namespace tilewise::dashboard {
namespace {

using namespace test;

// ---- who gets in -------------------------------------------------------------------------------------------------------

TEST_CASE("the page is open to all, what it shows is not") {
  Site site;
  const Answer page = site.get("/");
  CHECK(page.status == 200);
  CHECK(page.header("Content-Type") == "text/html; charset=utf-8");
  CHECK(site.get("/app.js").header("Content-Type") == "text/javascript; charset=utf-8");
  CHECK(site.get("/app.css").header("Content-Type") == "text/css; charset=utf-8");
  for (const char* path :
       {"/api/overview", "/api/graph?id=7", "/api/arrays", "/api/array?id=1", "/api/explain?id=7",
        "/api/trace", "/api/log", "/api/history", "/api/me", "/metrics", "/nothing"}) {
    CAPTURE(path);
    CHECK(site.get(path).status == 401);
    CHECK(site.get(path, site.bearer(std::string(64, '0'))).status == 401);
    CHECK(site.get(path, "Cookie: tilewise_" + site.port + "=operator.9999999999.00.00\r\n").status == 401);
    CHECK(site.get(std::string(path) + (std::string(path).find('?') == std::string::npos ? "?" : "&") +
                   "token=" + site.operator_token)
              .status == 401);  // a token in the URL counts for nothing
  }
  CHECK(site.source.views == 0);
  for (const char* path : {"/api/overview", "/api/graph?id=7", "/api/arrays", "/api/explain?id=7",
                           "/api/trace", "/api/log", "/api/me", "/metrics"})
    CHECK(site.get(path, site.bearer(site.reader_token)).status == 200);
  CHECK(site.get("/api/graph?id=8", site.bearer(site.reader_token)).status == 404);
  CHECK(site.get("/nothing", site.bearer(site.reader_token)).status == 404);
}

TEST_CASE("every answer carries the headers that keep browsers strict") {
  Site site;
  for (const char* path : {"/", "/app.js", "/api/me", "/nothing", "/login?code=x"}) {
    const Answer answer = site.get(path);
    CAPTURE(path);
    const std::string policy = answer.header("Content-Security-Policy");
    CHECK(policy.starts_with("default-src 'none'"));
    CHECK(policy.find("unsafe") == std::string::npos);
    CHECK(policy.find("frame-ancestors 'none'") != std::string::npos);
    CHECK(answer.header("X-Content-Type-Options") == "nosniff");
    CHECK(answer.header("X-Frame-Options") == "DENY");
    CHECK(answer.header("Referrer-Policy") == "no-referrer");
    CHECK(answer.header("Cache-Control") == "no-store");
    CHECK(answer.header("Access-Control-Allow-Origin").empty());
  }
  const std::string page = site.get("/").body;
  CHECK(page.find("style=") == std::string::npos);
  CHECK(page.find("<style") == std::string::npos);
  CHECK(page.find("<script>") == std::string::npos);
}

TEST_CASE("a login link works once, leaves the URL, and hands out a cookie that scripts cannot read") {
  Site site;
  const Answer made =
      site.post("/api/login-link", R"({"role":"reader"})", site.as_json() + site.bearer(site.operator_token));
  REQUIRE(made.status == 200);
  const std::string path =
      made.body.substr(made.body.find("/login"), std::string("/login?code=").size() + 64);
  const Answer in = site.get(path);
  CHECK(in.status == 303);
  CHECK(in.header("Location") == "/");
  const std::string set = in.header("Set-Cookie");
  CHECK(set.find("HttpOnly") != std::string::npos);
  CHECK(set.find("SameSite=Strict") != std::string::npos);
  const std::string cookie = "Cookie: " + set.substr(0, set.find(';')) + "\r\n";
  CHECK(site.get("/api/me", cookie).body.find("reader") != std::string::npos);
  CHECK(site.get(path).status == 401);
  CHECK(site.get("/login?code=").status == 401);
  CHECK(site.get("/login").status == 401);
  CHECK(site.post("/logout", "", "").header("Set-Cookie").find("Max-Age=0") != std::string::npos);
}

TEST_CASE("readers look; operators act") {
  Site site;
  const std::string reader =
      "Cookie: " + site.cookie(site.reader_token) + "\r\n" + site.own_page() + site.as_json();
  const std::string op =
      "Cookie: " + site.cookie(site.operator_token) + "\r\n" + site.own_page() + site.as_json();
  CHECK(site.post("/api/cancel", R"({"graph":"7"})", reader).status == 403);
  CHECK(site.post("/api/release", R"({"array":"7"})", reader).status == 403);
  CHECK(site.post("/api/login-link", R"({"role":"operator"})", reader).status == 403);
  CHECK(site.post("/api/login-link", R"({"role":"root"})", op).status == 400);
  CHECK(site.source.cancelled == 0);
  CHECK(site.post("/api/cancel", R"({"graph":"7"})", op).status == 202);
  CHECK(site.source.cancelled == 7);
  CHECK(site.post("/api/release", R"({"array":"9"})", site.bearer(site.operator_token) + site.as_json())
            .status == 202);
  CHECK(site.source.released == 9);
  CHECK(site.post("/api/drain", R"({"worker":"3"})", reader).status == 403);
  for (const char* wrong :
       {"{}", R"({"worker":"x"})", R"({"worker":"99999999999"})", R"({"worker":"3","on":"1"})"})
    CHECK(site.post("/api/drain", wrong, op).status == 400);
  CHECK(site.source.drained == 0);
  CHECK(site.post("/api/drain", R"({"worker":"3"})", op).status == 202);
  CHECK(site.source.drained == 3);
  CHECK(site.post("/api/drain", R"({"worker":"3","on":"no"})", op).status == 202);
  CHECK(site.source.drained == 0);
  CHECK(site.get("/api/cancel", "Cookie: x\r\n").status == 401);
  CHECK(site.get("/api/cancel", site.bearer(site.operator_token)).status == 404);  // not by GET
}

// ---- other sites' pages --------------------------------------------------------------------------------------------------

TEST_CASE("requests that other sites' pages cause are refused") {
  Site site;
  const std::string cookie = "Cookie: " + site.cookie(site.operator_token) + "\r\n";
  const std::string body = R"({"graph":"7"})";
  CHECK(site.post("/api/cancel", body, cookie + site.as_json() + "Origin: http://evil.com\r\n").status ==
        403);
  CHECK(site.post("/api/cancel", body, cookie + site.as_json() + "Origin: null\r\n").status == 403);
  CHECK(site.post("/api/cancel", body, cookie + site.as_json()).status == 403);  // no Origin at all
  CHECK(site.post("/api/cancel", body, cookie + site.own_page() + "Content-Type: text/plain\r\n").status ==
        400);  // as a form could
  CHECK(site.post("/api/cancel", body,
                  cookie + site.own_page() + site.as_json() + "Sec-Fetch-Site: cross-site\r\n")
            .status == 403);
  CHECK(site.get("/api/overview", cookie + "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: cors\r\n").status ==
        403);
  CHECK(site.get("/api/overview", cookie + "Origin: http://127.0.0.1:1\r\n").status ==
        403);  // another port is another site
  CHECK(site.get("/", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n").status ==
        200);  // a link to us is fine
  CHECK(site.source.cancelled == 0);
}

TEST_CASE("a foreign name that resolves to us is not ours") {
  Site site;
  for (const std::string& name :
       {std::string("evil.com"), "evil.com:" + site.port, std::string("localhost"), std::string()}) {
    CAPTURE(name);
    const Answer answer = site.get("/", "Host: " + name + "\r\n");
    CHECK((answer.status == 421 || answer.status == 400));
  }
  CHECK(site.raw("GET / HTTP/1.1\r\nConnection: close\r\n\r\n").status == 421);
  CHECK(site.raw("GET / HTTP/1.1\r\nHost: " + site.host + "\r\nHost: evil.com\r\nConnection: close\r\n\r\n")
            .status == 421);
  CHECK(site.get("/", "Host: dash.example.org\r\n").status == 200);
  // A page that was lured here has no token, so whoever shows one may call us as he likes: by the address of a container, say.
  CHECK(site.get("/api/overview", "Host: 10.1.2.3:7421\r\n" + site.bearer(site.reader_token)).status == 200);
  CHECK(site.get("/api/overview", "Host: 10.1.2.3:7421\r\nAuthorization: Bearer 00\r\n").status == 421);
}

// ---- what a request may hold -------------------------------------------------------------------------------------------------

TEST_CASE("nothing of a request is a path") {
  Site site;
  for (const char* path : {"/../etc/passwd", "/%2e%2e/etc/passwd", "//etc/passwd", "/app.js/../index.html",
                           "/app.js%00", "/./app.js", "*", "app.js", "http://127.0.0.1/app.js"}) {
    CAPTURE(path);
    CHECK(site.get(path, site.bearer(site.reader_token)).status >= 400);
  }
  CHECK(site.get("/api/graph?id=7;rm", site.bearer(site.reader_token)).status == 404);
  CHECK(site.get("/api/graph?id=99999999999999999999999", site.bearer(site.reader_token)).status == 404);
  CHECK(site.get("/api/graph?id=-1", site.bearer(site.reader_token)).status == 404);
  CHECK(site.get("/api/array?id=1&at=x,-5,,,,,,,,,,,", site.bearer(site.reader_token)).status == 404);
}

TEST_CASE("bodies are small JSON objects or nothing") {
  Site site;
  const std::string op = site.bearer(site.operator_token) + site.as_json();
  for (const char* body :
       {"", "x", "[]", "1", "{\"graph\":7}", "{\"graph\":\"7x\"}", "{\"graph\":\"\"}", "{\"graph\":null}",
        "{\"a\":[[[[[1]]]]]}", "{\"graph\":\"7\"", "\xff\xfe", "{\"graph\":\"-7\"}"}) {
    CAPTURE(body);
    CHECK(site.post("/api/cancel", body, op).status == 400);
  }
  CHECK(site.post("/api/cancel", std::string(9'000, ' '), op).status == 413);
  CHECK(site.raw(site.head("POST", "/api/cancel", op) + "Content-Length: 999999999999\r\n\r\n").status ==
        413);
  CHECK(site.source.cancelled == 0);
}

TEST_CASE("what is no HTTP, or too large, is refused") {
  Site site;
  CHECK(site.get("/", "X: " + std::string(10'000, 'x') + "\r\n").status == 431);
  CHECK(site.get("/" + std::string(10'000, 'x')).status == 431);
  CHECK(site.raw("\x16\x03\x01\x02 nonsense\r\n\r\n").status == 400);
  CHECK(site.raw("GET / HTTP/1.1\r\nHost: " + site.host +
                 "\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc")
            .status == 400);
  for (const char* method : {"PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
    CHECK(site.raw(site.head(method, "/", "") + "\r\n").status >= 400);
  CHECK(site.get("/").status == 200);
}

// ---- time and numbers ----------------------------------------------------------------------------------------------------------

TEST_CASE("a request that drips is cut off") {
  Limits limits;
  limits.read_ns = 100 * kMillisecond;
  Site site(limits);
  CHECK(site.raw("").status == 0);                          // says nothing
  CHECK(site.raw("GET / HTTP/1.1\r\nHost: ").status == 0);  // does not end
  CHECK(site.raw(site.head("POST", "/login", "") + "Content-Length: 10\r\n\r\nabc").status == 0);
}

// Connections that stay, each being served.
std::vector<tcp::socket> hold(Site& site, int n, const std::string& headers) {
  std::vector<tcp::socket> held;
  for (int i = 0; i < n; ++i) held.push_back(site.connect());
  for (auto& socket : held) {
    asio::write(socket, asio::buffer("GET / HTTP/1.1\r\nHost: " + site.host + "\r\n" + headers + "\r\n"));
    char first;
    asio::read(socket, asio::buffer(&first, 1));
  }
  return held;
}

TEST_CASE("strangers who fill the connections make room, oldest first") {
  Limits limits;
  limits.connections = 4;
  Site site(limits);
  std::vector<tcp::socket> held = hold(site, 4, "");
  for (int i = 0; i < 6; ++i) CHECK(site.get("/api/me", site.bearer(site.reader_token)).status == 200);
  const auto known = hold(site, 2, site.bearer(site.reader_token));
  error_code ec;
  auto ws = open_socket(site, site.reader_token, "", ec);
  CHECK(!ec);
  for (int i = 0; i < 20; ++i) site.connect();  // and more of them push out only each other
  CHECK(!read_text(*ws, ec).empty());
  std::string rest;
  asio::read(held[0], asio::dynamic_buffer(rest), ec);
  CHECK(ec == asio::error::eof);
}

TEST_CASE("so many connections and no more") {
  Limits limits;
  limits.connections = 4;
  Site site(limits);
  std::vector<tcp::socket> held = hold(site, 4, site.bearer(site.reader_token));
  CHECK(site.get("/").status == 0);
  held.clear();
  int status = 0;
  for (int i = 0; i < 500 && status != 200; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    status = site.get("/").status;
  }
  CHECK(status == 200);
}

TEST_CASE("a scheduler that does not answer is an error, not a wait") {
  Limits limits;
  limits.answer_ns = 50 * kMillisecond;
  Site site(limits);
  site.source.silent = true;
  for (const char* path : {"/api/overview", "/metrics", "/api/graph?id=7"})
    CHECK(site.get(path, site.bearer(site.reader_token)).status == 504);
}

TEST_CASE("overviews are shared: many askers are one question") {
  Site site({}, 60 * kSecond);
  for (int i = 0; i < 10; ++i) CHECK(site.get("/api/overview", site.bearer(site.reader_token)).status == 200);
  CHECK(site.source.views == 1);
}

TEST_CASE("other views are shared too, and errors") {
  Site site({}, 60 * kSecond);
  for (const char* path : {"/api/graph?id=7", "/api/arrays", "/api/array?id=1"}) {
    const int before = site.source.views;
    for (int i = 0; i < 5; ++i) site.get(path, site.bearer(site.reader_token));
    CHECK(site.source.views == before + 1);
  }
}

TEST_CASE("questions leave the scheduler most of its time, however many are asked") {
  Site site({}, kMillisecond);
  site.source.cost_ns = 20 * kMillisecond;  // so the next comes 180 ms later at the earliest
  const TimeNs begin = monotonic_now();
  for (int i = 1; i <= 4; ++i)
    CHECK(site.get("/api/array?id=" + std::to_string(i), site.bearer(site.reader_token)).status == 404);
  CHECK(monotonic_now() - begin >= 3 * 180 * kMillisecond);
  CHECK(site.source.views == 4);
}

TEST_CASE("what was before is kept, coarsely, while nobody watches") {
  Site site({}, kMillisecond, 5 * kMillisecond);
  CHECK(site.get("/api/history").status == 401);
  json::array samples;
  for (int i = 0; i < 500 && samples.size() < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const Answer answer = site.get("/api/history", site.bearer(site.reader_token));
    REQUIRE(answer.status == 200);
    samples = boost::json::parse(answer.body).at("samples").as_array();
  }
  REQUIRE(samples.size() >= 3);
  const json::object& last = samples.back().as_object();
  CHECK(last.at("t").to_number<double>() == 100);
  CHECK(last.at("used").as_array() == json::array{json::array{1, 100}, json::array{2, 100}});
  const json::array& array = last.at("arrays").as_array()[0].as_array();
  CHECK(array[1].as_string() == "<script>alert(1)</script>\"\n\xEF\xBF\xBD");
  CHECK(array[2].to_number<double>() == 50);  // half of its blocks are made
}

TEST_CASE("what the scheduler refuses is told at once") {
  Site site;
  site.source.refuses = true;
  const Answer answer = site.get("/api/trace", site.bearer(site.reader_token));
  CHECK(answer.status == 503);
  CHECK(answer.body.find("others are collecting") != std::string::npos);
}

TEST_CASE("a range of the trace and blocks of an array are asked for by number") {
  Site site;
  const std::string reader = site.bearer(site.reader_token);
  CHECK(site.get("/api/trace?from_us=5000000&until_us=1000", reader).status == 200);
  CHECK(site.source.from_age_ns == 5 * kSecond);
  CHECK(site.source.until_age_ns == kMillisecond);
  CHECK(site.get("/api/trace?from_us=99999999999999999999&until_us=x", reader).status == 200);
  CHECK(site.source.until_age_ns == 0);
  const Answer blocks = site.get("/api/blocks?id=3&first=7&count=99999999", reader);
  CHECK(blocks.body.find("\"block\":7") != std::string::npos);
  CHECK(blocks.body.find("\"state\":\"in flight\"") != std::string::npos);
  CHECK(blocks.body.find("\"bytes\":4096") != std::string::npos);  // no more are asked for
  CHECK(site.get("/api/blocks?id=3").status == 401);
  CHECK(site.get("/api/links", reader).status == 200);
  site.source.refuses = true;
  CHECK(site.get("/api/blocks?id=3", reader).status == 503);
}

TEST_CASE("HEAD is answered as GET, without the body") {
  Site site;
  const Answer page = site.get("/app.js"), head = site.raw(site.head("HEAD", "/app.js", "") + "\r\n");
  CHECK(head.status == 200);
  CHECK(head.body.empty());
  CHECK(head.header("Content-Length") == page.header("Content-Length"));
  CHECK(site.raw(site.head("HEAD", "/api/overview", "") + "\r\n").status == 401);
  const Answer made =
      site.post("/api/login-link", R"({"role":"reader"})", site.as_json() + site.bearer(site.operator_token));
  const std::string path =
      made.body.substr(made.body.find("/login"), std::string("/login?code=").size() + 64);
  CHECK(site.raw(site.head("HEAD", path, "") + "\r\n").status == 405);  // looking does not use it up
  CHECK(site.get(path).status == 303);
}

TEST_CASE("localhost is every address that it stands for") {
  FakeSource source;
  LogRing log;
  const net::Token token = *net::Token::from_hex(std::string(64, '1'));
  auto opened = Dashboard::open({.listen = *net::Address::parse("localhost:0"), .token = token}, source, log);
  REQUIRE(opened.has_value());
  asio::io_context io;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve("localhost", std::to_string((*opened)->address().port));
  std::size_t connected = 0;
  for (const auto& entry : found) {
    tcp::socket socket(io);
    error_code ec;
    socket.connect(entry.endpoint(), ec);
    if (!ec) ++connected;
    const bool none_here =
        ec == asio::error::address_family_not_supported || ec == boost::system::errc::address_not_available;
    CHECK((!ec || none_here));
  }
  CHECK(connected >= 1);
}

// ---- WebSockets ----------------------------------------------------------------------------------------------------------------

TEST_CASE("nobody watches without a role, and no page but ours with a cookie") {
  Site site;
  error_code ec;
  open_socket(site, "", "http://" + site.host, ec);
  CHECK(ec == websocket::error::upgrade_declined);
  open_socket(site, std::string(64, '0'), "", ec);
  CHECK(ec == websocket::error::upgrade_declined);
  open_socket(site, site.reader_token, "http://evil.com", ec);
  CHECK(ec == websocket::error::upgrade_declined);
  const std::string upgrade =
      "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
      "AAAAAAAAAAAAAAAAAAAAAA==\r\n";
  const std::string cookie = "Cookie: " + site.cookie(site.operator_token) + "\r\n";
  CHECK(site.raw("GET /ws HTTP/1.1\r\nHost: " + site.host + "\r\n" + upgrade + cookie +
                 "Origin: http://evil.com\r\nConnection: close\r\n\r\n")
            .status == 403);
  CHECK(site.raw("GET /ws HTTP/1.1\r\nHost: " + site.host + "\r\n" + upgrade + cookie +
                 "Connection: close\r\n\r\n")
            .status == 401);
  CHECK(site.raw("GET /ws HTTP/1.1\r\nHost: evil.com\r\n" + upgrade + cookie + "Connection: close\r\n\r\n")
            .status == 421);
  CHECK(site.source.views == 0);
}

TEST_CASE("a watcher is told the overview, and what it asks for") {
  Site site;
  site.log.add({0, 1, 2, "something", {{"graph", "7"}}});
  error_code ec;
  auto ws = open_socket(site, site.reader_token, "", ec);
  REQUIRE(!ec);
  CHECK(read_text(*ws, ec).find("\"view\":\"overview\"") != std::string::npos);
  ws->write(asio::buffer(std::string(
                R"({"watch":[{"view":"graph","id":"7"},{"view":"graph","id":"8"},{"view":"log"}]})")),
            ec);
  std::string all;
  const auto told = [&](const char* what) { return all.find(what) != std::string::npos; };
  for (int i = 0; i < 500 && !ec; ++i) {  // overviews may come first
    if (told("\"view\":\"graph\"") && told("\"view\":\"gone\"") && told("\"event\":\"something\"")) break;
    all += read_text(*ws, ec);
  }
  CHECK(!ec);
  CHECK(all.find("\"view\":\"graph\"") != std::string::npos);
  CHECK(all.find("\"view\":\"gone\"") != std::string::npos);
  CHECK(all.find("\"event\":\"something\"") != std::string::npos);
  const int before = site.source.views;
  ws->close(websocket::close_code::normal, ec);
  for (int i = 0, last = -1; i < 200 && last != site.source.views; ++i) {
    last = site.source.views;
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  }
  const int rest = site.source.views;
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(site.source.views == rest);  // nobody watches: nothing is asked
  CHECK(rest >= before);
}

TEST_CASE("messages that our page does not send end the link") {
  for (const std::string& message :
       {std::string("x"), std::string("[]"), std::string(R"({"watch":1})"), std::string(R"({"watch":[1]})"),
        std::string(R"({"watch":[{"view":"/etc/passwd"}]})"),
        std::string(R"({"watch":[{},{},{},{},{},{},{},{},{},{},{}]})"),
        "{\"watch\":[" + std::string(5'000, ' ') + "]}", std::string(R"({"a":[[[[[[[[1]]]]]]]]})")}) {
    CAPTURE(message.substr(0, 60));
    Site site;
    error_code ec;
    auto ws = open_socket(site, site.reader_token, "", ec);
    REQUIRE(!ec);
    ws->write(asio::buffer(message), ec);
    for (int i = 0; i < 100 && !ec; ++i) read_text(*ws, ec);
    CHECK(ec);
  }
}

TEST_CASE("whoever logs out watches no longer, in no window") {
  Site site;
  const std::string cookie = site.cookie(site.reader_token);
  error_code ec;
  auto ws = std::make_unique<Ws>(site.connect());
  ws->set_option(websocket::stream_base::decorator([&](websocket::request_type& request) {
    request.set("Cookie", cookie);
    request.set("Origin", "http://" + site.host);
  }));
  ws->handshake(site.host, "/ws", ec);
  REQUIRE(!ec);
  CHECK(!read_text(*ws, ec).empty());
  const std::string mine = "Cookie: " + cookie + "\r\n" + site.own_page();
  CHECK(site.post("/logout", "", mine).status == 200);
  for (int i = 0; i < 500 && !ec; ++i) read_text(*ws, ec);
  CHECK(ec);
  CHECK(site.get("/api/me", mine).status == 401);
  CHECK(site.get("/api/me", "Cookie: " + site.cookie(site.reader_token) + "\r\n").status == 200);
}

TEST_CASE("a flood of messages ends the link") {
  Limits limits;
  limits.messages_per_s = 1;
  limits.message_burst = 5;
  Site site(limits);
  error_code ec;
  auto ws = open_socket(site, site.reader_token, "", ec);
  REQUIRE(!ec);
  const std::string good = R"({"watch":[]})";
  for (int i = 0; i < 50 && !ec; ++i) ws->write(asio::buffer(good), ec);
  ec = {};
  for (int i = 0; i < 200 && !ec; ++i) read_text(*ws, ec);
  CHECK(ec);
}

TEST_CASE("a viewer that takes nothing is let go, and nobody waits for it") {
  Limits limits;
  limits.write_ns = 200 * kMillisecond;
  Site site(limits, kMillisecond);
  site.source.workers = 2'000;  // megabytes a look
  error_code ec;
  auto slow = open_socket(site, site.reader_token, "", ec);
  REQUIRE(!ec);
  bool gone = false;
  for (int i = 0; i < 400 && !gone; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    gone =
        site.get("/metrics", site.bearer(site.reader_token)).body.find("tilewise_dashboard_watchers 0\n") !=
        std::string::npos;
  }
  CHECK(gone);
}

TEST_CASE("so many watchers and no more") {
  Limits limits;
  limits.sockets = 2;
  Site site(limits);
  error_code ec;
  auto a = open_socket(site, site.reader_token, "", ec);
  auto b = open_socket(site, site.reader_token, "", ec);
  REQUIRE(!ec);
  auto c = open_socket(site, site.reader_token, "", ec);
  CHECK(ec == websocket::error::upgrade_declined);
}

TEST_CASE("it ends while people look") {
  auto site = std::make_unique<Site>();
  error_code ec;
  auto ws = open_socket(*site, site->reader_token, "", ec);
  REQUIRE(!ec);
  read_text(*ws, ec);
  tcp::socket idle = site->connect();
  site->dashboard.reset();
  for (int i = 0; i < 1000 && !ec; ++i) read_text(*ws, ec);
  CHECK(ec);
}

TEST_CASE("an address that cannot be had is an error") {
  FakeSource source;
  LogRing log;
  Site site;
  const net::Token token = *net::Token::from_hex(std::string(64, '1'));
  CHECK(!Dashboard::open({.listen = site.dashboard->address(), .token = token}, source, log).has_value());
  CHECK(!Dashboard::open({.listen = *net::Address::parse("unix:/tmp/x"), .token = token}, source, log)
             .has_value());
}

TEST_CASE("the log keeps the last lines, and long ones short") {
  LogRing ring;
  for (std::size_t i = 0; i < LogRing::kLines + 10; ++i) ring.add({0, 0, 1, "line " + std::to_string(i), {}});
  CHECK(ring.after(0).size() == LogRing::kLines);
  CHECK(ring.after(0).front()->number == 11);
  CHECK(ring.after(LogRing::kLines + 9).size() == 1);
  CHECK(ring.after(1'000'000).empty());
  ring.add({0, 0, 1, std::string(10'000, 'x'), {{"k", std::string(10'000, 'y')}}});
  CHECK(ring.after(LogRing::kLines + 10)[0]->event.size() == LogRing::kFieldBytes);
}

}  // namespace
}  // namespace tilewise::dashboard
