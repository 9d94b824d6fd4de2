// One connection: requests in turn, each with deadlines and limits.
#include "server.h"

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/websocket/rfc6455.hpp>

namespace tilewise::dashboard {
namespace {

using asio::ip::tcp;

struct Counted {
  explicit Counted(std::size_t& n) : count(n) { ++count; }
  ~Counted() { --count; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  std::size_t& count;
};

struct Listed {
  Listed(std::list<Connection*>& l, Connection& c) : list(l), self(c) { list.push_back(&c); }
  ~Listed() { list.remove(&self); }
  Listed(const Listed&) = delete;
  Listed& operator=(const Listed&) = delete;
  std::list<Connection*>& list;
  Connection& self;
};

http::status status_of(const error_code& ec) {
  if (ec == http::error::header_limit) return http::status::request_header_fields_too_large;
  if (ec == http::error::body_limit) return http::status::payload_too_large;
  return http::status::bad_request;
}

// Ours to answer, or a connection that is simply over.
bool is_protocol_error(const error_code& ec) {
  return ec.category() == http::make_error_code(http::error::bad_method).category() &&
         ec != http::error::end_of_stream && ec != http::error::partial_message;
}

}  // namespace

Task<void> Dashboard::Impl::serve(tcp::socket socket) {
  const Counted counted(counts.connections);
  const Limits& limits = options.limits;
  beast::tcp_stream stream(std::move(socket));
  Connection self{true, [&stream] { stream.close(); }};
  const Listed listed(connections, self);
  beast::flat_buffer buffer(limits.header_bytes + limits.body_bytes);
  error_code ec;
  for (bool first = true;; first = false) {
    // Idle until a request begins; from then on all of it must come in time, however slowly it drips.
    if (buffer.size() == 0) {
      stream.expires_after(std::chrono::nanoseconds(first ? limits.read_ns : limits.idle_ns));
      const auto room = buffer.prepare(1024);
      const std::size_t n =
          co_await stream.async_read_some(room, asio::redirect_error(asio::use_awaitable, ec));
      if (ec) co_return;
      buffer.commit(n);
    }
    http::request_parser<http::string_body> parser;
    parser.header_limit(static_cast<std::uint32_t>(limits.header_bytes));
    parser.body_limit(limits.body_bytes);
    stream.expires_after(std::chrono::nanoseconds(limits.read_ns));
    co_await http::async_read(stream, buffer, parser, asio::redirect_error(asio::use_awaitable, ec));
    if (ec && !is_protocol_error(ec)) co_return;
    Response response;
    if (ec) {
      Request nothing;
      nothing.version(11);
      nothing.keep_alive(false);
      response = problem(nothing, status_of(ec), "the request cannot be taken: " + ec.message());
    } else {
      Request request = parser.release();
      const bool head = request.method() == http::verb::head;
      if (self.stranger && entry_of(*this, request).role) self.stranger = false;
      if (beast::websocket::is_upgrade(request) && request.target() == "/ws") {
        const Entry entry = entry_of(*this, request);
        // A browser always says whose page opens a WebSocket; who does not say must have a token, not a cookie.
        const bool same_page = entry.by_header || request.count(http::field::origin) == 1;
        std::optional<Response> refusal = refused(*this, request);
        if (!refusal && (!entry.role || !same_page))
          refusal = problem(request, http::status::unauthorized, "log in first: tilewise dashboard");
        if (!refusal && counts.sockets >= limits.sockets)
          refusal = problem(request, http::status::service_unavailable, "too many watch already");
        if (!refusal) {
          ++counts.requests;
          const Counted watching(counts.sockets);
          stream.expires_never();
          co_await follow(std::move(stream), std::move(request));
          co_return;
        }
        response = std::move(*refusal);
        response.keep_alive(false);
      } else {
        response = co_await answer(request);
      }
      if (head) {  // as to a GET, but for the body
        response.content_length(response.body().size());
        response.body().clear();
      }
    }
    ++(response.result_int() < 400 ? counts.requests : counts.refused);
    const bool keep = response.keep_alive();
    stream.expires_after(std::chrono::nanoseconds(limits.write_ns));
    co_await http::async_write(stream, response, asio::redirect_error(asio::use_awaitable, ec));
    if (ec) co_return;
    if (!keep) break;
  }
  stream.socket().shutdown(tcp::socket::shutdown_send, ec);
}

}  // namespace tilewise::dashboard
