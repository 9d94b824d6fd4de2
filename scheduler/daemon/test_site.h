// A scheduler's server with nobody around it but the parties of a test, over real links and on one loop.
#pragma once
#include "server.h"

#include <tilewise/config/version.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>

#include "message_tags.h"
#include "sanitizers.h"

namespace tilewise::scheduler::testing {

using tilewise::testing::kTimesSlower;
constexpr TimeNs kPatience = 20 * kTimesSlower * kSecond, kSilence = 10 * kTimesSlower * kSecond;

inline msg::Join join_as(msg::Role role) {
  msg::Join join;
  join.role = role;
  join.name = join.host_id = "somebody";
  join.software_version = config::software_version();
  if (role == msg::Role::kTool) return join;
  join.addresses = {"tcp://127.0.0.1:1"};
  join.devices.push_back({"host:0", 0, "cpu", "x", std::int64_t{1} << 30, 1});
  return join;
}

struct Party {
  std::unique_ptr<net::ConnectAttempt> attempt;
  std::unique_ptr<net::Link> link;
  std::vector<msg::Message> heard;
  bool closed = false;

  void say(const msg::Message& message) {
    codec::Buffer buffer;
    REQUIRE(codec::encode(message, buffer).has_value());
    if (!closed) REQUIRE(link->send(codec::frame_type(message), buffer.bytes()).has_value());
  }
  template <class M> std::ptrdiff_t count() const {
    return std::count_if(heard.begin(), heard.end(),
                         [](const msg::Message& m) { return std::holds_alternative<M>(m); });
  }
  bool answered(std::uint64_t nonce) const {
    return std::find(heard.begin(), heard.end(), msg::Message(msg::Pong{nonce})) != heard.end();
  }
};

struct Site {
  explicit Site(const std::string& state_dir = {}, TimeNs join_ns = 5 * kSecond) {
    ServerOptions options{.listen = *net::Address::parse("tcp://127.0.0.1:0"),
                          .token = token,
                          .core = {.silence_ns = kSilence},
                          .state_dir = state_dir,
                          .join_ns = join_ns};
    auto opened = Server::open(*loop, std::move(options), [this] { ended = true; });
    REQUIRE(opened.has_value());
    server = std::move(*opened);
    connect(bystander);
    joins(bystander, msg::Role::kTool);
  }
  void until(const std::function<bool()>& done) { REQUIRE(loop->run_until(done, kPatience)); }
  void connect(Party& party) {
    party.attempt = net::connect(*loop, server->address(), {.token = token, .silence_ns = kSilence},
                                 [&party](Result<std::unique_ptr<net::Link>> link) {
                                   REQUIRE(link.has_value());
                                   party.link = std::move(*link);
                                 });
    until([&] { return party.link != nullptr; });
    party.link->start({[&party](net::Frame& frame) { party.heard.push_back(*codec::decode(frame.payload)); },
                       [&party](const Error&) { party.closed = true; },
                       {}});
  }
  void joins(Party& party, msg::Role role) {
    party.say(join_as(role));
    until([&] { return party.count<msg::Welcome>() == 1; });
    REQUIRE(std::get<msg::Welcome>(party.heard[0]).refused.ok());
  }
  // All that it said has been read; or its link has been closed.
  void settle(Party& party) {
    party.say(msg::Ping{++nonce});
    until([&] { return party.closed || party.answered(nonce); });
  }
  // Whoever is waited for when its link breaks: what it resumes with.
  msg::Resume lasting(Party& party, msg::Role role = msg::Role::kClient) {
    msg::Join join = join_as(role);
    join.lease_ns = 60 * kSecond;
    connect(party);
    party.say(join);
    until([&] { return party.count<msg::Welcome>() == 1; });
    const auto& welcome = std::get<msg::Welcome>(party.heard[0]);
    return {welcome.state, welcome.you, 0, welcome.term};
  }
  std::size_t peers() const {
    return std::get<Overview>(server->view(OverviewRequest{})).status.peers.size();
  }

  const net::Token token = *net::Token::generate();
  std::unique_ptr<net::EventLoop> loop = *net::EventLoop::create();
  std::unique_ptr<Server> server;
  Party bystander;
  std::uint64_t nonce = 1'000;
  bool ended = false;
};

}  // namespace tilewise::scheduler::testing
