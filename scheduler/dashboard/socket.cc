// A WebSocket that follows views: {"watch": [{"view": "overview"}, {"view": "graph", "id": "..."}]} in, a text a view and
// period out. A viewer that is slower than that gets fewer of them, never a queue.
#include "server.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket.hpp>

#include <algorithm>
#include <charconv>

namespace tilewise::dashboard {
namespace {

namespace websocket = beast::websocket;
constexpr std::size_t kMaxWatched = 8;

struct Watched {
  std::string view;  // graph, arrays, array or links; the overview always comes
  std::uint64_t id = 0;
  TimeNs since = scheduler::kNotYet;  // graphs: what was told already
  std::string told;                   // others: not told again while it is the same
};

struct Socket {
  Socket(beast::tcp_stream stream, asio::io_context& io) : ws(std::move(stream)), wake(io), deadline(io) {}
  websocket::stream<beast::tcp_stream> ws;
  asio::steady_timer wake, deadline;
  std::vector<Watched> watched;
  std::uint64_t told_log = 0;
  bool wants_log = false, open = true;
  std::string cookie;    // what lets it in, if not a token
  double allowance = 0;  // messages that may come now
  TimeNs allowed_at = 0;

  void end() {
    open = false;
    wake.cancel();
    deadline.cancel();
    beast::get_lowest_layer(ws).close();
  }
};

bool within_rate(Socket& s, const Limits& limits) {
  const TimeNs now = monotonic_now();
  const double since = static_cast<double>(now - s.allowed_at) * 1e-9;
  s.allowance = std::min(limits.message_burst, s.allowance + since * limits.messages_per_s);
  s.allowed_at = now;
  if (s.allowance < 1) return false;
  s.allowance -= 1;
  return true;
}

std::string_view text_member(const json::object& object, boost::json::string_view key) {
  const json::value* found = object.if_contains(key);
  if (found == nullptr || !found->is_string()) return {};
  return {found->get_string().data(), found->get_string().size()};
}

// False: not something that our page sends.
bool take(Socket& s, std::string_view text) {
  boost::json::parse_options options;
  options.max_depth = 4;
  error_code ec;
  const json::value message =
      boost::json::parse(boost::json::string_view(text.data(), text.size()), ec, {}, options);
  if (ec || !message.is_object()) return false;
  const json::value* watch = message.get_object().if_contains("watch");
  if (watch == nullptr || !watch->is_array() || watch->get_array().size() > kMaxWatched) return false;
  std::vector<Watched> wanted;
  bool log = false;
  for (const json::value& item : watch->get_array()) {
    if (!item.is_object()) return false;
    Watched w;
    w.view = text_member(item.get_object(), "view");
    const std::string_view id = text_member(item.get_object(), "id");
    std::from_chars(id.data(), id.data() + id.size(), w.id);
    if (w.view == "log")
      log = true;
    else if (w.view == "graph" || w.view == "arrays" || w.view == "array" || w.view == "links")
      wanted.push_back(std::move(w));
    else if (w.view != "overview")
      return false;
  }
  s.watched = std::move(wanted);
  if (log && !s.wants_log) s.told_log = 0;
  s.wants_log = log;
  s.wake.cancel();  // the answer comes at once
  return true;
}

Task<void> read(Dashboard::Impl& d, std::shared_ptr<Socket> s) {
  beast::flat_buffer buffer;
  while (s->open) {
    error_code ec;
    co_await s->ws.async_read(buffer, asio::redirect_error(asio::use_awaitable, ec));
    if (ec) break;
    const auto data = buffer.cdata();
    const bool good = s->ws.got_text() && within_rate(*s, d.options.limits) &&
                      take(*s, std::string_view(static_cast<const char*>(data.data()), data.size()));
    buffer.clear();
    if (!good) {
      ++d.counts.refused;
      break;
    }
  }
  s->end();
}

// False: the viewer is gone, or did not take it in time.
Task<bool> write(Dashboard::Impl& d, std::shared_ptr<Socket> s, const std::string& text) {
  s->deadline.expires_after(std::chrono::nanoseconds(d.options.limits.write_ns));
  s->deadline.async_wait([weak = std::weak_ptr<Socket>(s)](error_code ec) {
    if (const auto late = ec ? nullptr : weak.lock()) late->end();
  });
  error_code ec;
  co_await s->ws.async_write(asio::buffer(text), asio::redirect_error(asio::use_awaitable, ec));
  s->deadline.cancel();
  co_return !ec && s->open;
}

scheduler::ViewRequest request_of(const Watched& w) {
  if (w.view == "graph") return scheduler::GraphRequest{GraphId{w.id}, scheduler::kNotYet, 0};
  if (w.view == "array") return scheduler::ArrayRequest{ArrayId{w.id}};
  if (w.view == "links") return scheduler::LinksRequest{};
  return scheduler::ArraysRequest{SessionId{static_cast<std::uint32_t>(w.id)}};
}

// Empty: nothing new.
std::string text_of(const scheduler::View& view, Watched& w) {
  json::object object;
  if (const auto* graph = std::get_if<scheduler::GraphView>(&view)) {
    const bool whole = w.since == scheduler::kNotYet;
    scheduler::GraphView news;
    if (!whole) {
      news.summary = graph->summary, news.now = graph->now, news.passes = graph->passes;
      news.source_count = graph->source_count, news.forgotten = graph->forgotten, news.peaks = graph->peaks;
      news.alone = graph->alone;
      std::copy_if(graph->ops.begin(), graph->ops.end(), std::back_inserter(news.ops),
                   [&](const scheduler::OpView& op) { return std::max<TimeNs>(op.ended, 0) > w.since; });
      if (news.ops.empty() && w.told == "ended") return {};
    }
    object = to_json(whole ? *graph : news);
    object["whole"] = whole;
    // What is reported in the very same moment is told twice rather than not at all.
    w.since = std::max<TimeNs>(0, graph->now - 1);
    if (!graph->summary.running) w.told = "ended";
    object["id"] = json::id_text(w.id);
    return boost::json::serialize(object);
  }
  if (const auto* arrays = std::get_if<scheduler::ArrayList>(&view))
    object = to_json(*arrays);
  else if (const auto* links = std::get_if<scheduler::LinkList>(&view))
    object = to_json(*links);
  else if (const auto* array = std::get_if<scheduler::ArrayDetail>(&view))
    object = to_json(*array, {});
  else if (const auto* why = std::get_if<Error>(&view))
    object = {{"view", "gone"}, {"what", w.view}, {"error", json::utf8(why->message)}};
  object["id"] = json::id_text(w.id);
  std::string text = boost::json::serialize(object);
  if (text == w.told) return {};
  w.told = text;
  return text;
}

Task<bool> tell(Dashboard::Impl& d, std::shared_ptr<Socket> s) {
  const std::shared_ptr<const Look> seen = co_await d.look();
  if (seen) {
    const bool taken = co_await write(d, s, seen->text);
    if (!taken) co_return false;
  }
  for (std::size_t i = 0; i < s->watched.size(); ++i) {
    const std::string view = s->watched[i].view;
    const std::uint64_t id = s->watched[i].id;
    const SharedView answer = co_await d.view(request_of(s->watched[i]));
    // Meanwhile it may watch something else.
    if (i >= s->watched.size() || s->watched[i].view != view || s->watched[i].id != id || !answer) continue;
    const std::string text = text_of(*answer, s->watched[i]);
    if (text.empty()) continue;
    const bool taken = co_await write(d, s, text);
    if (!taken) co_return false;
  }
  if (s->wants_log) {
    const auto lines = d.log.after(s->told_log);
    if (!lines.empty()) {
      s->told_log = lines.back()->number;
      const std::string text = boost::json::serialize(to_json(lines));
      const bool taken = co_await write(d, s, text);
      if (!taken) co_return false;
    }
  }
  co_return true;
}

}  // namespace

Task<void> Dashboard::Impl::follow(beast::tcp_stream stream, Request request) {
  auto s = std::make_shared<Socket>(std::move(stream), io);
  s->cookie = entry_of(*this, request).cookie;
  websocket::stream_base::timeout timeout{};
  timeout.handshake_timeout = std::chrono::nanoseconds(options.limits.read_ns);
  timeout.idle_timeout =
      std::chrono::nanoseconds(options.limits.idle_ns);  // half of it without a word: a ping
  timeout.keep_alive_pings = true;
  s->ws.set_option(timeout);
  // Also where the handshake is refused: with the headers of every other answer.
  s->ws.set_option(
      websocket::stream_base::decorator([](websocket::response_type& response) { guard(response); }));
  s->ws.read_message_max(options.limits.message_bytes);
  s->allowance = options.limits.message_burst;
  s->allowed_at = monotonic_now();
  error_code ec;
  co_await s->ws.async_accept(request, asio::redirect_error(asio::use_awaitable, ec));
  if (ec) co_return;
  s->ws.text(true);
  asio::co_spawn(io, read(*this, s), asio::detached);
  // A login ends, and whoever watched by it watches no longer.
  while (s->open && (s->cookie.empty() || auth.from_cookie(s->cookie, wall_seconds()))) {
    const bool taken = co_await tell(*this, s);
    if (!taken || !s->open) break;
    s->wake.expires_after(std::chrono::nanoseconds(options.period_ns));
    co_await s->wake.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  }
  s->end();
}

}  // namespace tilewise::dashboard
