// Private to the tests of this folder: a peer on another host whose links and words are the test's.
#pragma once
#include <tilewise/codec/codec.h>

#include "way.h"

namespace tilewise::exchange::test {

// A peer that says what the test says, over one link after another: as connector, or as the one that is connected to.
struct Script {
  net::EventLoop& loop;
  Node& node;
  WorkerId id;
  std::unique_ptr<net::ConnectAttempt> attempt;
  std::unique_ptr<net::Listener> listener;
  std::unique_ptr<net::Link> link;  // the latest
  bool closed = false;
  std::vector<msg::Message> heard;  // over it

  Script(net::EventLoop& l, Node& n, std::uint32_t number) : loop(l), node(n), id(number) {}
  void begin(std::unique_ptr<net::Link> made) {
    heard.clear();
    closed = false;
    link = std::move(made);
    link->start(
        {.on_frame = [this](net::Frame& frame) { heard.push_back(codec::decode(frame.payload).value()); },
         .on_close = [this](const Error&) { closed = true; }});
  }
  void dial() {
    std::unique_ptr<net::Link> fresh;
    attempt = net::connect(loop, net::Address::parse(node.addresses[0]).value(), {.token = token()},
                           [&](auto made) {
                             REQUIRE(made);
                             fresh = std::move(*made);
                           });
    until([&] { return fresh != nullptr; });
    begin(std::move(fresh));
  }
  void listen(const std::string& where = "tcp://127.0.0.1:0") {
    auto opened =
        net::Listener::open(loop, net::Address::parse(where).value(), {.handshake = {.token = token()}},
                            [this](std::unique_ptr<net::Link> made) { begin(std::move(made)); });
    REQUIRE(opened);
    listener = std::move(*opened);
  }
  msg::PeerInfo info(msg::Role role = msg::Role::kWorker) const {
    return {.id = id,
            .role = role,
            .name = "script",
            .host_id = "script's",
            .addresses = {listener ? listener->address().to_string() : "tcp://127.0.0.1:1"},
            .devices = {DeviceId{id.value * 100}},
            .descriptions = {{.name = "host:0"}}};
  }
  void until(const std::function<bool()>& done) { REQUIRE(loop.run_until(done, kPatience)); }
  void until_heard(std::size_t count) {
    until([&] { return heard.size() >= count; });
  }
  void send(const msg::Message& message) { REQUIRE(send_over(*link, message)); }
  // Perhaps one that was closed.
  static Status send_over(net::Link& over, const msg::Message& message) {
    codec::Buffer buffer;
    REQUIRE(codec::encode(message, buffer));
    return over.send(codec::frame_type(message), buffer.bytes());
  }
  void greet(std::uint64_t number, std::uint64_t received) {
    send(msg::PeerHello{.from = id, .to = node.id, .host_id = "script's"});
    send(msg::Resume{number, id, received});
  }
  // The numbers that came in batches over this link.
  std::vector<std::uint64_t> grants() const {
    std::vector<std::uint64_t> out;
    for (const msg::Message& message : heard) {
      if (const auto* batch = std::get_if<msg::PeerBatch>(&message))
        for (const msg::Grant& grant : batch->grants) out.push_back(grant.transfer);
    }
    return out;
  }
};

// Connected, ready, one batch (numbered 101) sent by the node, and one (1) by the script.
struct Met {
  std::unique_ptr<net::EventLoop> loop = make_loop();
  Node node;
  Script script;
  explicit Met(Options options = tcp_options("node's"))
      : node(*loop, 2, std::move(options)), script(*loop, node, 1) {
    node.exchange->peer_joined(script.info());
    script.dial();
    script.greet(1, 0);
    script.send(msg::ArenaMap{});
    script.send(grant_of(1));
    REQUIRE(node.exchange->send(script.id, grant_of(101)));
    script.until_heard(4);
    script.until([&] { return node.batches.size() == 1; });
    CHECK(std::get<msg::Resume>(script.heard[1]) == msg::Resume{1, node.id, 0});
  }
};

}  // namespace tilewise::exchange::test
