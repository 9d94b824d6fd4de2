#include "server.h"

#include <tilewise/net/lookup.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/v6_only.hpp>

#include <algorithm>

namespace tilewise::dashboard {
namespace {

using asio::ip::tcp;

tcp::acceptor listen_at(asio::io_context& io, const tcp::endpoint& endpoint, error_code& ec) {
  tcp::acceptor acceptor(io);
  acceptor.open(endpoint.protocol(), ec);
  if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  // Else [::] would take IPv4 too, and another endpoint of the same name would find its port taken.
  if (!ec && endpoint.protocol() == tcp::v6()) acceptor.set_option(asio::ip::v6_only(true), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(64, ec);
  return acceptor;
}

// On every address that the name stands for, all with one port: "localhost" is ::1 and 127.0.0.1, and browsers try both.
// Those of a kind that this host does not have are left out.
Result<std::vector<tcp::acceptor>> listen_on(asio::io_context& io, const net::Address& address) {
  const std::string what = "dashboard: listen on " + address.to_string() + ": ";
  const auto failed = [&](const error_code& ec) { return error(Errc::kIo, what + ec.message()); };
  if (address.kind != net::Address::Kind::kTcp)
    return error(Errc::kInvalidArgument, "dashboard: " + address.to_string() + " is no TCP address");
  error_code ec;
  const auto found = net::look_up(address, net::kListenLookupNs);
  if (!found) return error(found.error().code, what + found.error().message);
  std::vector<tcp::acceptor> acceptors;
  error_code last;
  for (const net::Address& each : *found) {
    tcp::endpoint endpoint(asio::ip::make_address(each.host), each.port);
    if (!acceptors.empty()) endpoint.port(acceptors[0].local_endpoint().port());
    tcp::acceptor acceptor = listen_at(io, endpoint, ec);
    const bool not_here =
        ec == asio::error::address_family_not_supported || ec == boost::system::errc::address_not_available;
    if (ec && !not_here) return failed(ec);
    if (ec) last = ec;
    if (!ec) acceptors.push_back(std::move(acceptor));
  }
  if (acceptors.empty()) return failed(last);
  return acceptors;
}

// The oldest stranger goes. False: everybody has said who he is.
bool push_out(std::list<Connection*>& connections) {
  const auto oldest =
      std::find_if(connections.begin(), connections.end(), [](const Connection* c) { return c->stranger; });
  if (oldest == connections.end()) return false;
  const Connection& gone = **oldest;
  connections.erase(oldest);
  gone.close();
  return true;
}

}  // namespace

Task<void> Dashboard::Impl::sleep(TimeNs ns) {
  asio::steady_timer timer(io, std::chrono::nanoseconds(ns));
  error_code ec;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ec));
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
    if (counts.connections >= options.limits.connections && !push_out(connections)) {
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
  TW_ASSIGN(std::vector<tcp::acceptor> acceptors, listen_on(d.io, d.options.listen));
  d.address = d.options.listen;
  d.address.port = acceptors[0].local_endpoint().port();
  d.names.emplace(d.address.host, d.address.port, d.options.hosts);
  d.cookie = "tilewise_" + std::to_string(d.address.port);
  d.gate = std::make_shared<Gate>(d.io);
  for (tcp::acceptor& acceptor : acceptors)
    asio::co_spawn(d.io, d.accept(std::move(acceptor)), asio::detached);
  if (d.options.history_ns > 0) asio::co_spawn(d.io, d.keep_history(), asio::detached);
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
