// A dashboard over a source that answers what it is told to, and the raw bytes of whoever asks it. Private, for tests.
#pragma once
#include <tilewise/dashboard/dashboard.h>

#include <doctest/doctest.h>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket.hpp>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "test_cluster.h"

namespace tilewise::dashboard::test {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace websocket = beast::websocket;
using asio::ip::tcp;
using boost::system::error_code;

struct FakeSource final : Source {
  void view(scheduler::ViewRequest request, std::function<void(scheduler::View, TimeNs)> answer_in) override {
    ++views;
    if (silent) return;
    const auto answer = [&](scheduler::View view) { answer_in(std::move(view), cost_ns); };
    if (std::holds_alternative<scheduler::GraphRequest>(request)) {
      const auto graph = std::get<scheduler::GraphRequest>(request).graph;
      scheduler::GraphView g;
      g.summary.id = graph;
      return graph == GraphId{7} ? answer(g)
                                 : answer(error(Errc::kNotFound, "no such graph is known any more"));
    }
    if (std::holds_alternative<scheduler::ArraysRequest>(request)) {
      scheduler::ArrayList list;
      list.live = list.listed_of = 1;
      list.arrays.emplace_back();
      list.arrays[0].label = kHostile;
      list.arrays[0].bytes = 100, list.arrays[0].blocks = 4, list.arrays[0].made = 2;
      return answer(list);
    }
    if (std::holds_alternative<scheduler::LinksRequest>(request)) return answer(scheduler::LinkList{});
    if (std::holds_alternative<scheduler::ArrayRequest>(request))
      return answer(error(Errc::kNotFound, "no such array"));
    answer(cluster(workers, kHostile));
  }
  void explain(GraphId, std::function<void(msg::Explanation)> answer) override { answer({}); }
  void trace(msg::TraceRequest request,
             std::function<void(Result<std::vector<msg::TraceReply>>)> answer) override {
    from_age_ns = request.from_age_ns, until_age_ns = request.until_age_ns;
    if (refuses) return answer(error(Errc::kUnavailable, "others are collecting traces"));
    answer(std::vector<msg::TraceReply>{});
  }
  void cancel(GraphId graph) override { cancelled = graph.value; }
  void release(ArrayId array) override { released = array.value; }
  void blocks(msg::BlocksRequest request,
              std::function<void(Result<std::vector<msg::BlocksReply>>)> answer) override {
    if (refuses) return answer(error(Errc::kUnavailable, "others are asking"));
    msg::BlocksReply reply;
    reply.copies = {
        {request.first, DeviceId{2}, msg::BlockState::kReceiving, false, request.count, DeviceId{1}}};
    answer(std::vector<msg::BlocksReply>{reply});
  }
  void drain(WorkerId worker, bool on) override { drained = on ? worker.value : 0; }

  std::atomic<int> views = 0;
  std::atomic<std::uint64_t> cancelled = 0, released = 0;
  std::atomic<bool> silent = false, refuses = false;
  std::atomic<TimeNs> cost_ns = 0, from_age_ns = 0, until_age_ns = 0;
  std::atomic<std::uint32_t> drained = 0;
  std::atomic<int> workers = 2;
};

struct Answer {
  int status = 0;  // 0: the connection was closed without a word
  std::string head, body;
  bool has(const std::string& text) const { return head.find(text) != std::string::npos; }
  std::string header(const std::string& name) const {
    const std::size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return {};
    const std::size_t from = at + name.size() + 4;
    return head.substr(from, head.find("\r\n", from) - from);
  }
};

struct Site {
  explicit Site(Limits limits = {}, TimeNs period_ns = 20 * kMillisecond, TimeNs history_ns = 0) {
    Options options{.listen = *net::Address::parse("127.0.0.1:0"),
                    .hosts = {"dash.example.org"},
                    .token = token,
                    .version = "test",
                    .period_ns = period_ns,
                    .history_ns = history_ns,
                    .limits = limits};
    auto opened = Dashboard::open(std::move(options), source, log);
    REQUIRE(opened.has_value());
    dashboard = std::move(*opened);
    port = std::to_string(dashboard->address().port);
    host = "127.0.0.1:" + port;
    operator_token = config::role_token(token, config::Role::kOperator);
    reader_token = config::role_token(token, config::Role::kReader);
  }

  tcp::socket connect() {
    tcp::socket socket(io);
    socket.connect({asio::ip::make_address("127.0.0.1"), dashboard->address().port});
    return socket;
  }
  // Sends these bytes, reads until the other side closes.
  Answer raw(const std::string& bytes) {
    tcp::socket socket = connect();
    error_code ec;
    asio::write(socket, asio::buffer(bytes), ec);
    std::string all;
    asio::read(socket, asio::dynamic_buffer(all), ec);
    Answer answer;
    const std::size_t end = all.find("\r\n\r\n");
    if (end == std::string::npos) return answer;
    answer.head = all.substr(0, end + 2);
    answer.body = all.substr(end + 4);
    answer.status = std::stoi(all.substr(9, 3));
    return answer;
  }
  std::string head(const std::string& method, const std::string& target, const std::string& headers) {
    const bool named = headers.find("Host:") != std::string::npos;
    return method + " " + target + " HTTP/1.1\r\n" + (named ? "" : "Host: " + host + "\r\n") +
           "Connection: close\r\n" + headers;
  }
  Answer get(const std::string& target, const std::string& headers = "") {
    return raw(head("GET", target, headers) + "\r\n");
  }
  Answer post(const std::string& target, const std::string& body, const std::string& headers) {
    return raw(head("POST", target, headers) + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
               body);
  }
  std::string bearer(const std::string& t) const { return "Authorization: Bearer " + t + "\r\n"; }
  std::string as_json() const { return "Content-Type: application/json\r\n"; }
  std::string own_page() const { return "Origin: http://" + host + "\r\n"; }
  // "name=value" of a fresh login
  std::string cookie(const std::string& role_token) {
    const Answer in = post("/login", R"({"token":")" + role_token + "\"}", as_json() + own_page());
    REQUIRE(in.status == 200);
    const std::string set = in.header("Set-Cookie");
    return set.substr(0, set.find(';'));
  }

  net::Token token = *net::Token::from_hex(std::string(64, '7'));
  FakeSource source;
  LogRing log;
  std::unique_ptr<Dashboard> dashboard;
  std::string port, host, operator_token, reader_token;
  asio::io_context io;
};

using Ws = websocket::stream<tcp::socket>;

inline std::unique_ptr<Ws> open_socket(Site& site, const std::string& headers_token,
                                       const std::string& origin, error_code& ec) {
  auto ws = std::make_unique<Ws>(site.connect());
  ws->set_option(websocket::stream_base::decorator([&](websocket::request_type& request) {
    if (!headers_token.empty()) request.set("Authorization", "Bearer " + headers_token);
    if (!origin.empty()) request.set("Origin", origin);
  }));
  ws->handshake(site.host, "/ws", ec);
  return ws;
}
inline std::string read_text(Ws& ws, error_code& ec) {
  beast::flat_buffer buffer;
  ws.read(buffer, ec);
  return beast::buffers_to_string(buffer.data());
}

}  // namespace tilewise::dashboard::test
