// Private to the tests of this folder: a peer whose every word the test says itself.
#pragma once
#include <tilewise/codec/codec.h>

#include "exchange_test_util.h"

namespace tilewise::exchange::test {

// Speaks frames by hand, as worker 1 to the node under test.
struct ByHand {
  net::EventLoop& loop;
  Node& victim;
  WorkerId id{1};
  DeviceId device{100};
  std::unique_ptr<net::ConnectAttempt> attempt;
  std::unique_ptr<net::Link> link;
  bool closed = false;
  int frames = 0;

  ByHand(net::EventLoop& l, Node& v) : loop(l), victim(v) {
    attempt = net::connect(loop, net::Address::parse(victim.addresses[0]).value(),
                           {.token = token(), .ring_bytes = net::kUsualRingBytes}, [this](auto made) {
                             REQUIRE(made);
                             link = std::move(*made);
                             link->start({.on_frame = [this](net::Frame&) { ++frames; },
                                          .on_close = [this](const Error&) { closed = true; }});
                           });
    REQUIRE(loop.run_until([&] { return link != nullptr; }, kPatience));
  }
  msg::PeerInfo info() const {
    return {.id = id,
            .name = "hostile",
            .host_id = victim.host_id,
            .addresses = {"tcp://127.0.0.1:1"},
            .devices = {device},
            .descriptions = {{.name = "host:0"}}};
  }
  void send(const msg::Message& message, std::vector<net::UniqueFd> fds = {}) {
    codec::Buffer buffer;
    REQUIRE(codec::encode(message, buffer));
    REQUIRE(link->send(codec::frame_type(message), buffer.bytes(), std::move(fds)));
  }
  void hello() { send(msg::PeerHello{.from = id, .to = victim.id, .host_id = victim.host_id}); }
  // Says hello and waits until it was taken.
  void settle() {
    victim.exchange->peer_joined(info());
    hello();
    REQUIRE(loop.run_until([&] { return frames == 2; }, kPatience));  // its hello and its map
  }
};

}  // namespace tilewise::exchange::test
