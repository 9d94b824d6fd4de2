#include "server.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

namespace tilewise::dashboard {
namespace {

using asio::ip::tcp;

Result<tcp::acceptor> listen_on(asio::io_context& io, const net::Address& address) {
  const auto failed = [&](const error_code& ec) {
    return error(Errc::kIo, "dashboard: listen on " + address.to_string() + ": " + ec.message());
  };
  if (address.kind != net::Address::Kind::kTcp)
    return error(Errc::kInvalidArgument, "dashboard: " + address.to_string() + " is no TCP address");
  error_code ec;
  tcp::resolver resolver(io);
  const auto found = resolver.resolve(address.host, std::to_string(address.port), tcp::resolver::passive, ec);
  if (ec || found.empty()) return failed(ec);
  tcp::acceptor acceptor(io);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  if (!ec) acceptor.open(endpoint.protocol(), ec);
  if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(64, ec);
  if (ec) return failed(ec);
  return acceptor;
}

// Waits for an answer that comes from another thread, or for the deadline.
template <class T> struct Pending {
  Pending(asio::io_context& io, TimeNs deadline) : timer(io, std::chrono::nanoseconds(deadline)) {}
  asio::steady_timer timer;
  std::optional<T> value;
};

template <class T>
std::function<void(T)> answer_to(const std::shared_ptr<Gate>& gate, std::shared_ptr<Pending<T>>& pending) {
  return [gate, weak = std::weak_ptr<Pending<T>>(pending)](T value) {
    gate->post([weak, value = std::move(value)]() mutable {
      if (const auto waiting = weak.lock()) waiting->value = std::move(value), waiting->timer.cancel();
    });
  };
}

template <class T> Task<std::optional<T>> wait_for(std::shared_ptr<Pending<T>> pending) {
  error_code ec;
  if (!pending->value) co_await pending->timer.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  co_return std::move(pending->value);
}

}  // namespace

Task<std::optional<scheduler::View>> Dashboard::Impl::view(scheduler::ViewRequest request) {
  auto pending = std::make_shared<Pending<scheduler::View>>(io, options.limits.answer_ns);
  source.view(request, answer_to(gate, pending));
  co_return co_await wait_for(pending);
}

Task<std::optional<msg::Explanation>> Dashboard::Impl::explain(GraphId graph) {
  auto pending = std::make_shared<Pending<msg::Explanation>>(io, options.limits.answer_ns);
  source.explain(graph, answer_to(gate, pending));
  co_return co_await wait_for(pending);
}

Task<std::optional<std::vector<msg::TraceReply>>> Dashboard::Impl::trace(GraphId graph) {
  auto pending = std::make_shared<Pending<std::vector<msg::TraceReply>>>(io, options.limits.answer_ns);
  source.trace(graph, answer_to(gate, pending));
  co_return co_await wait_for(pending);
}

Task<void> Dashboard::Impl::sleep(TimeNs ns) {
  asio::steady_timer timer(io, std::chrono::nanoseconds(ns));
  error_code ec;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ec));
}

Task<std::shared_ptr<const Look>> Dashboard::Impl::look() {
  if (last_look && monotonic_now() - last_look->at < options.period_ns * 3 / 4) co_return last_look;
  std::optional<scheduler::View> answer = co_await view(scheduler::OverviewRequest{});
  auto* overview = answer ? std::get_if<scheduler::Overview>(&*answer) : nullptr;
  if (overview == nullptr) co_return nullptr;
  // Rates are judged over a second or more; a look from before a pause would say nothing about now.
  constexpr TimeNs kOldest = 10 * kSecond;
  if (older_look && overview->now - older_look->overview.now > kOldest) older_look = nullptr;
  if (!older_look && last_look && overview->now - last_look->overview.now < kOldest) older_look = last_look;
  auto fresh = std::make_shared<Look>();
  fresh->at = monotonic_now();
  fresh->warnings = warnings(*overview, older_look ? &older_look->overview : nullptr);
  json::object object = to_json(*overview, fresh->warnings);
  object["version"] = options.version;
  object["wall_ms"] = wall_seconds() * 1000;
  fresh->text = boost::json::serialize(object);
  fresh->overview = std::move(*overview);
  last_look = fresh;
  co_return fresh;
}

Task<void> Dashboard::Impl::accept(tcp::acceptor acceptor) {
  while (true) {
    error_code ec;
    tcp::socket socket = co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, ec));
    if (ec == asio::error::operation_aborted) co_return;
    if (ec) {  // out of descriptors, most likely: they come back
      co_await sleep(100 * kMillisecond);
      continue;
    }
    if (counts.connections >= options.limits.connections) {
      ++counts.refused;
      continue;  // closes it
    }
    asio::co_spawn(io, serve(std::move(socket)), asio::detached);
  }
}

Dashboard::Dashboard(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Dashboard>> Dashboard::open(Options options, Source& source, LogRing& log) {
  auto impl = std::make_shared<Impl>(std::move(options), source, log);
  Impl& d = *impl;
  TW_ASSIGN(tcp::acceptor acceptor, listen_on(d.io, d.options.listen));
  d.address = d.options.listen;
  d.address.port = acceptor.local_endpoint().port();
  d.names.emplace(d.address.host, d.address.port, d.options.hosts);
  d.cookie = "tilewise_" + std::to_string(d.address.port);
  d.gate = std::make_shared<Gate>(d.io);
  asio::co_spawn(d.io, d.accept(std::move(acceptor)), asio::detached);
  std::unique_ptr<Dashboard> dashboard(new Dashboard(std::move(impl)));
  d.thread = std::thread([&d] { d.io.run(); });
  return dashboard;
}

Dashboard::~Dashboard() {
  impl_->gate->close();
  impl_->io.stop();
  if (impl_->thread.joinable()) impl_->thread.join();
}

const net::Address& Dashboard::address() const { return impl_->address; }

}  // namespace tilewise::dashboard
