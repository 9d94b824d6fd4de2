#include "web.h"

#include <tilewise/config/token.h>
#include <tilewise/net/lookup.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <chrono>
#include <vector>

namespace tilewise::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

constexpr std::uint64_t kMaxAnswerBytes = 256u << 20;

Errc code_of(http::status status) {
  switch (status) {
    case http::status::unauthorized: return Errc::kUnauthenticated;
    case http::status::forbidden: return Errc::kPermissionDenied;
    case http::status::not_found: return Errc::kNotFound;
    case http::status::gateway_timeout: return Errc::kTimeout;
    case http::status::bad_request: return Errc::kInvalidArgument;
    default: return Errc::kUnavailable;
  }
}

// {"error": "..."}
std::string reason_of(const std::string& body) {
  error_code ec;
  const json::value parsed = boost::json::parse(body, ec);
  const auto* object = ec ? nullptr : parsed.if_object();
  const auto* text = object == nullptr ? nullptr : object->if_contains("error");
  return text != nullptr && text->is_string() ? std::string(text->get_string())
                                              : std::string("no reason was given");
}

// Beast's deadlines work for asynchronous calls alone: one at a time, run to its end.
template <class Start> error_code finish(asio::io_context& io, Start&& start) {
  error_code result;
  start([&](error_code ec, auto&&...) { result = ec; });
  io.restart();
  io.run();
  return result;
}

}  // namespace

Result<Web> Web::open(const WebOptions& options, config::Role role) {
  net::Address address;
  if (!options.dashboard.empty()) {
    TW_ASSIGN(address, net::Address::parse(options.dashboard));
  } else {
    TW_ASSIGN(address, net::Address::parse(kUsual));
    if (!options.scheduler.empty()) {
      TW_ASSIGN(const net::Address scheduler, net::Address::parse(options.scheduler));
      // The role's token goes there: no guess where another scheduler's dashboard, or anything else, may listen.
      if (scheduler.kind == net::Address::Kind::kTcp && scheduler.port != kUsualSchedulerPort)
        return error(Errc::kInvalidArgument,
                     "the scheduler is not at its usual port: say where its dashboard is with --dashboard");
      if (scheduler.kind == net::Address::Kind::kTcp) address.host = scheduler.host;
    }
  }
  if (address.kind != net::Address::Kind::kTcp)
    return error(Errc::kInvalidArgument, "a dashboard has a TCP address, HOST:PORT");
  TW_ASSIGN(const config::FoundToken token, config::find_token(options.token_file, false));
  return Web(address, config::role_token(token.token, role), token.source, options.timeout_ns);
}

std::string Web::origin() const { return "http://" + address_.to_string().substr(6); }  // after "tcp://"

Result<std::string> Web::ask(const std::string& method, const std::string& path,
                             const std::string& body) const {
  asio::io_context io;
  beast::tcp_stream stream(io);
  error_code ec;
  const auto failed = [&](bool late, const std::string& why) {
    return error(late ? Errc::kTimeout : Errc::kUnavailable,
                 "dashboard " + origin() + ": " + (late ? "no answer in time" : why) +
                     " (is it on? See --dashboard-listen of the scheduler, and --dashboard here)");
  };
  const auto there = [&](const error_code& why) {
    return failed(why == beast::error::timeout, why.message());
  };
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_ns_);
  const auto found = net::look_up(address_, timeout_ns_);
  if (!found) return failed(found.error().code == Errc::kTimeout, found.error().message);
  std::vector<asio::ip::tcp::endpoint> endpoints;
  for (const net::Address& each : *found)
    endpoints.emplace_back(asio::ip::make_address(each.host), each.port);
  stream.expires_at(until);
  if ((ec = finish(io, [&](auto done) { stream.async_connect(endpoints, std::move(done)); })))
    return there(ec);
  http::request<http::string_body> request(method == "POST" ? http::verb::post : http::verb::get, path, 11);
  request.set(http::field::host, origin().substr(7));
  request.set(http::field::authorization, "Bearer " + token_);
  if (!body.empty()) request.set(http::field::content_type, "application/json");
  request.keep_alive(false);
  request.body() = body;
  request.prepare_payload();
  if ((ec = finish(io, [&](auto done) { http::async_write(stream, request, std::move(done)); })))
    return there(ec);
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(kMaxAnswerBytes);
  if ((ec = finish(io, [&](auto done) { http::async_read(stream, buffer, parser, std::move(done)); })))
    return there(ec);
  http::response<http::string_body> response = parser.release();
  // Its own words are for browsers.
  if (response.result() == http::status::unauthorized)
    return error(Errc::kUnauthenticated,
                 "dashboard " + origin() + ": the token (" + source_ + ") is not this cluster's");
  if (response.result_int() >= 400) return error(code_of(response.result()), reason_of(response.body()));
  return std::move(response.body());
}

Result<std::string> Web::post(const std::string& path, const json::object& body) const {
  return ask("POST", path, boost::json::serialize(body));
}

Result<json::value> Web::get_json(const std::string& path) const {
  TW_ASSIGN(const std::string body, get(path));
  error_code ec;
  json::value parsed = boost::json::parse(body, ec);
  if (ec || !parsed.is_object()) return error(Errc::kCorruptData, "the dashboard's answer is no JSON object");
  return parsed;
}

}  // namespace tilewise::cli
