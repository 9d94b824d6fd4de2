// Private to the tests of this folder.
#pragma once
#include <tilewise/codec/codec.h>
#include <tilewise/courier/courier.h>

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

namespace tilewise::courier::test {

// A scheduler that says what the test says, and the courier of a peer.
struct Scene {
  net::Token token = *net::Token::generate();
  std::unique_ptr<net::EventLoop> loop = std::move(*net::EventLoop::create());
  std::unique_ptr<net::Listener> listener;
  std::unique_ptr<net::Link> link;  // the latest
  std::vector<msg::Message> heard;  // by the scheduler
  std::unique_ptr<Courier> courier;
  std::vector<msg::Message> got;  // by the peer
  std::optional<Error> lost;
  int down = 0, back = 0, losses = 0;

  explicit Scene(TimeNs reconnect_ns = 20 * kSecond, TimeNs lease_ns = 0, TimeNs silence_ns = 10 * kSecond) {
    listen("127.0.0.1:0");
    std::unique_ptr<net::Link> first;
    const auto attempt =
        net::connect(*loop, listener->address(), {.token = token},
                     [&](Result<std::unique_ptr<net::Link>> made) { first = std::move(*made); });
    until([&] { return first && link; });
    Handlers handlers;
    handlers.on_message = [this](msg::Message m) { got.push_back(std::move(m)); };
    handlers.on_lost = [this](const Error& why) { lost = why, ++losses; };
    handlers.on_down = [this](const Error&) { ++down; };
    handlers.on_back = [this](std::uint32_t) { ++back; };
    courier = std::make_unique<Courier>(
        *loop, Options{listener->address(), token, reconnect_ns, lease_ns, silence_ns}, std::move(handlers),
        std::move(first));
  }
  void listen(const std::string& where) {
    auto opened = net::Listener::open(
        *loop, *net::Address::parse(where), {.handshake = {.token = token}},
        [this](std::unique_ptr<net::Link> made) {
          link = std::move(made);
          link->start({[this](net::Frame& frame) { heard.push_back(*codec::decode(frame.payload)); },
                       [](const Error&) {},
                       {}});
        });
    REQUIRE(opened.has_value());
    listener = std::move(*opened);
  }
  void until(const std::function<bool()>& done) { REQUIRE(loop->run_until(done, 20 * kSecond)); }
  void say(const msg::Message& m) {
    codec::Buffer buffer;
    REQUIRE(codec::encode(m, buffer).has_value());
    REQUIRE(link->send(codec::frame_type(m), buffer.bytes()).has_value());
  }
  void send(std::uint64_t nonce) {
    codec::Buffer buffer;
    const msg::Message m = msg::Pong{nonce};
    REQUIRE(codec::encode(m, buffer).has_value());
    REQUIRE(courier->send(codec::frame_type(m), buffer.bytes()).has_value());
  }
  void welcome(std::uint64_t state, bool durable = true) {
    msg::Welcome w;
    w.term = 4;
    w.you = WorkerId{3};
    w.state = state;
    w.durable = durable && state != 0;
    say(w);
    until([&] { return got.size() == 1; });
  }
  // The link breaks; the peer's next one says Resume.
  msg::Resume broken() {
    heard.clear();
    link.reset();
    return next_resume();
  }
  msg::Resume next_resume() {
    until([&] { return heard.size() == 1; });
    return std::get<msg::Resume>(heard[0]);
  }
  std::vector<std::uint64_t> pongs() const {
    std::vector<std::uint64_t> out;
    for (const msg::Message& m : heard) {
      if (const auto* pong = std::get_if<msg::Pong>(&m)) out.push_back(pong->nonce);
    }
    return out;
  }
};

}  // namespace tilewise::courier::test
