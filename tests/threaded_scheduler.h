// A scheduler that says what a test says, on a thread of its own: for programs that wait for it on their caller's.
#pragma once
#include <tilewise/codec/codec.h>
#include <tilewise/net/endpoint.h>

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "temp_folder.h"

namespace tilewise::testing {

class ThreadedScheduler {
 public:
  // What it hears, one message after another, on its thread; it may speak and hang up there.
  using Hear = std::function<void(const msg::Message&, ThreadedScheduler&)>;

  explicit ThreadedScheduler(Hear hear) : token_(*net::Token::create(token_file())), hear_(std::move(hear)) {
    auto opened = net::Listener::open(
        *loop_, *net::Address::parse("tcp://127.0.0.1:0"), {.handshake = {.token = token_}},
        [this](std::unique_ptr<net::Link> made) {
          link_ = std::move(made);
          link_->start({[this](net::Frame& frame) { heard(frame); }, [](const Error&) {}, {}});
        });
    REQUIRE(opened.has_value());
    listener_ = std::move(*opened);
    thread_ = std::thread([this] { loop_->run(); });
  }
  ~ThreadedScheduler() {
    loop_->stop();
    thread_.join();
  }
  ThreadedScheduler(const ThreadedScheduler&) = delete;
  ThreadedScheduler& operator=(const ThreadedScheduler&) = delete;

  const net::Address& address() const { return listener_->address(); }
  const net::Token& token() const { return token_; }
  std::string token_file() const { return folder_ / "token"; }

  // Its own thread only.
  void say(const msg::Message& message) {
    codec::Buffer buffer;
    if (link_ && codec::encode(message, buffer))
      (void)link_->send(codec::frame_type(message), buffer.bytes());
  }
  // What was said before still goes out.
  void hang_up() { link_.reset(); }

 private:
  void heard(const net::Frame& frame) {
    if (const auto message = codec::decode(frame.payload)) hear_(*message, *this);
  }

  const TempFolder folder_;
  const net::Token token_;
  const Hear hear_;
  std::unique_ptr<net::EventLoop> loop_ = std::move(*net::EventLoop::create());
  std::unique_ptr<net::Listener> listener_;
  std::unique_ptr<net::Link> link_;
  std::thread thread_;
};

}  // namespace tilewise::testing
