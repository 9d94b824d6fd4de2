#include <algorithm>
#include <string>

#include "test_scene.h"

namespace tilewise::courier {
namespace {

using test::Scene;

TEST_CASE("what was sent is kept until it is known to have arrived") {
  Outstanding sent;
  const std::string text = "twelve bytes";
  for (std::uint16_t i = 0; i < 5; ++i) CHECK(sent.push(i, std::as_bytes(std::span(text))));
  CHECK(sent.sent() == 5);
  CHECK(sent.bytes() == 5 * text.size());
  CHECK(sent.acknowledge(2));
  CHECK(sent.acknowledge(1));  // old news
  CHECK_FALSE(sent.acknowledge(6));
  CHECK(sent.first() == 2);
  CHECK(sent.messages().size() == 3);
  CHECK(sent.messages()[0].type == 2);
  CHECK(sent.acknowledge(5));
  CHECK(sent.bytes() == 0);
  CHECK(sent.sent() == 5);
  sent.restart(9);
  CHECK(sent.sent() == 9);
}

TEST_CASE("more than may be kept is refused, and changes nothing") {
  Outstanding sent;
  for (std::size_t i = 0; i < Outstanding::kMaxMessages; ++i) REQUIRE(sent.push(1, {}));
  CHECK_FALSE(sent.push(1, {}));
  CHECK(sent.sent() == Outstanding::kMaxMessages);
  CHECK(sent.acknowledge(1));
  CHECK(sent.push(1, {}));
}

TEST_CASE("a receiver says how far it is after so many messages or bytes") {
  Received received;
  for (std::uint64_t i = 1; i < kAckMessages; ++i) received.add(8);
  CHECK_FALSE(received.due());
  received.add(8);
  CHECK(received.due());
  received.told();
  CHECK_FALSE(received.due());
  received.add(kAckBytes);
  CHECK(received.due());
  CHECK(received.total() == kAckMessages + 1);
}

TEST_CASE("a break: what had not arrived is sent again, in order, each once") {
  Scene s;
  s.send(1);
  s.welcome(77);
  s.send(2);
  s.until([&] { return s.heard.size() == 2; });
  s.say(msg::Ping{1});
  s.until([&] { return s.got.size() == 2; });
  const msg::Resume resume = s.broken();
  CHECK(resume.state == 77);
  CHECK(resume.me == WorkerId{3});
  CHECK(resume.received == 2);
  CHECK(resume.term == 4);
  CHECK(s.down == 1);
  s.send(3);  // waits
  s.say(msg::Resumed{5, 1, {}});
  s.until([&] { return s.pongs().size() == 2; });
  CHECK(s.pongs() == std::vector<std::uint64_t>{2, 3});
  CHECK(s.back == 1);
  s.say(msg::Ack{3});
  s.say(msg::Ping{2});
  s.until([&] { return s.got.size() == 3; });
  // Again, with nothing to be repeated.
  CHECK(s.broken() == msg::Resume{77, WorkerId{3}, 3, 5});
  s.say(msg::Resumed{5, 3, {}});
  s.send(4);
  s.until([&] { return s.pongs().size() == 1; });
  CHECK(s.pongs() == std::vector<std::uint64_t>{4});
  CHECK_FALSE(s.lost);
}

TEST_CASE("it says how far it is") {
  Scene s;
  s.welcome(77);
  for (std::uint64_t i = 1; i < kAckMessages; ++i) s.say(msg::Ping{i});
  s.until([&] { return !s.heard.empty(); });
  CHECK(std::get<msg::Ack>(s.heard[0]).received == kAckMessages);
}

TEST_CASE("a scheduler of an earlier life is not obeyed: it goes on trying") {
  Scene s;
  s.welcome(77);
  (void)s.broken();
  s.heard.clear();
  s.say(msg::Resumed{3, 0, {}});
  s.until([&] { return s.heard.size() == 1; });  // another Resume, on another link
  CHECK(s.back == 0);
  s.say(msg::Resumed{5, 0, {}});
  s.until([&] { return s.back == 1; });
  CHECK_FALSE(s.lost);
}

TEST_CASE("with a lease a break is survived though the scheduler keeps nothing on disk, for so long") {
  Scene s(20 * kSecond, kSecond);
  s.welcome(77, false);
  CHECK(s.broken().state == 77);
  s.say(msg::Resumed{4, 0, {}});
  s.until([&] { return s.back == 1; });
  SUBCASE("it does not come back") {
    s.listener.reset();
    s.link.reset();
    s.until([&] { return s.lost.has_value(); });
    CHECK_MESSAGE(s.lost->message.find("within 1 s") != std::string::npos, s.lost->message);
  }
  SUBCASE("it has said that it ends") {
    s.say(msg::Shutdown{});
    s.until([&] { return s.got.size() == 2; });
    s.link.reset();
    s.until([&] { return s.lost.has_value(); });
    CHECK(s.down == 1);
  }
}

// The other side is there, and acknowledges packets, but says nothing: as a scheduler that was stopped.
TEST_CASE("a scheduler that is silent though it is asked") {
  const TimeNs silence = 400 * kMillisecond;
  const auto asked = [](const Scene& s) {
    return std::any_of(s.heard.begin(), s.heard.end(),
                       [](const msg::Message& m) { return std::holds_alternative<msg::Ping>(m); });
  };
  SUBCASE("with state: the link is made again") {
    Scene s(20 * kSecond, 0, silence);
    s.welcome(77);
    const TimeNs began = monotonic_now();
    s.until([&] { return s.down == 1; });
    CHECK(monotonic_now() - began >= 2 * silence);
    CHECK(asked(s));
    CHECK_FALSE(s.lost);
  }
  SUBCASE("without: it is lost") {
    Scene s(20 * kSecond, 0, silence);
    s.welcome(0);
    const TimeNs began = monotonic_now();
    s.until([&] { return s.lost.has_value(); });
    CHECK(asked(s));
    CHECK(monotonic_now() - began >= 2 * silence);
    CHECK(s.lost->code == Errc::kTimeout);
    CHECK(s.down == 0);
  }
  SUBCASE("one that answers stays") {
    Scene s(20 * kSecond, 0, silence);
    s.welcome(0);
    const TimeNs until = monotonic_now() + 5 * silence;
    std::size_t answered = 0;
    s.until([&] {
      for (; answered < s.heard.size(); ++answered) s.say(msg::Pong{0});
      return monotonic_now() > until;
    });
    CHECK_FALSE(s.lost);
    CHECK(answered > 2);
  }
}

TEST_CASE(
    "a scheduler that proves who it is and then says nothing: another link is made, until its time is over") {
  const TimeNs silence = 400 * kMillisecond;
  Scene s(4 * kSecond, 0, silence);
  s.welcome(77);
  const TimeNs began = monotonic_now();
  (void)s.broken();  // its Resume is heard, and not answered
  s.heard.clear();
  s.send(1);
  s.until([&] { return s.heard.size() == 1; });
  CHECK(monotonic_now() - began >= 3 * silence);
  CHECK(std::get<msg::Resume>(s.heard[0]).state == 77);
  CHECK(s.down == 1);  // it is the same break
  SUBCASE("the next time it speaks") {
    s.say(msg::Resumed{5, 0, {}});
    s.until([&] { return s.pongs().size() == 1; });
    CHECK(s.back == 1);
    CHECK_FALSE(s.lost);
  }
  SUBCASE("it never does") {
    s.until([&] { return s.lost.has_value(); });
    CHECK(s.lost->code == Errc::kUnavailable);
    CHECK_MESSAGE(s.lost->message.find("did not say how far it is") != std::string::npos, s.lost->message);
    CHECK(monotonic_now() - began < 4 * kSecond + 10 * silence);
    CHECK(s.back == 0);
  }
}

TEST_CASE("one that does not take us back, that lies, or that keeps nothing, is the end") {
  SUBCASE("refused") {
    Scene s;
    s.welcome(77);
    (void)s.broken();
    s.say(msg::Resumed{5, 0, {Errc::kWorkerLost, "away for too long"}});
    s.until([&] { return s.lost.has_value(); });
    CHECK(s.lost->code == Errc::kWorkerLost);
    CHECK(s.lost->message.find("away for too long") != std::string::npos);
  }
  SUBCASE("acknowledges what was never sent") {
    Scene s;
    s.welcome(77);
    s.say(msg::Ack{1});
    s.until([&] { return s.lost.has_value(); });
    CHECK(s.lost->code == Errc::kCorruptData);
  }
  SUBCASE("has fewer of our messages than it acknowledged: they will not be said again") {
    Scene s;
    s.welcome(77);
    s.send(1);
    s.send(2);
    s.until([&] { return s.heard.size() == 2; });
    s.say(msg::Ack{2});
    s.say(msg::Ping{1});
    s.until([&] { return s.got.size() == 2; });
    (void)s.broken();
    s.say(msg::Resumed{5, 1, {}});
    s.until([&] { return s.lost.has_value(); });
    CHECK(s.lost->code == Errc::kCorruptData);
    CHECK(s.lost->message.find("has 1 of our messages, and acknowledged 2") != std::string::npos);
    CHECK(s.back == 0);
  }
  SUBCASE("speaks before it resumes") {
    Scene s;
    s.welcome(77);
    (void)s.broken();
    s.say(msg::Ping{1});
    s.until([&] { return s.lost.has_value(); });
    CHECK(s.lost->code == Errc::kCorruptData);
  }
  SUBCASE("keeps nothing") {
    Scene s;
    s.welcome(0);
    s.link.reset();
    s.until([&] { return s.lost.has_value(); });
    CHECK(s.lost->code == Errc::kUnavailable);
    CHECK(s.down == 0);
  }
  SUBCASE("does not come back") {
    Scene s(kSecond);
    s.welcome(77);
    s.listener.reset();
    s.link.reset();
    s.until([&] { return s.lost.has_value(); });
    CHECK(s.lost->code == Errc::kUnavailable);
    CHECK(s.lost->message.find("within 1 s") != std::string::npos);
    codec::Buffer buffer;
    CHECK_FALSE(s.courier->send(16, {}).has_value());
  }
}

}  // namespace
}  // namespace tilewise::courier
