// What every stream promises; one case per promise, run over each implementation.
#include "net_test_util.h"

using namespace tilewise;
using namespace tilewise::net;
using namespace tilewise::net::test;

namespace {

struct Kind {
  const char* name;
  std::function<StreamPair(EventLoop&)> make;
};

const Kind kKinds[] = {
    {"memory", [](EventLoop& loop) { return make_memory_pair(loop, loop, 1000); }},
    {"socket pair", [](EventLoop& loop) { return std::move(make_socket_pair(loop, loop).value()); }},
    {"rings", [](EventLoop& loop) { return std::move(make_ring_pair(loop, loop, 4096).value()); }},
    {"without faults",
     [](EventLoop& loop) {
       auto pair = make_memory_pair(loop, loop, 1000);
       pair.first = inject_faults(loop, std::move(pair.first), std::make_shared<Faults>());
       return pair;
     }},
};

Result<std::size_t> write(ByteStream& stream, std::string_view text) {
  ByteStream::Piece pieces[] = {bytes_of(text.substr(0, text.size() / 2)),
                                bytes_of(text.substr(text.size() / 2))};
  return stream.try_write(pieces, {});
}

Result<std::string> read(ByteStream& stream) {
  std::byte buffer[64];
  std::vector<UniqueFd> fds;
  auto n = stream.try_read(buffer, fds);
  if (!n) return n.error();
  return text_of(std::span(buffer).first(*n));
}

// Writes until no more is taken.
void fill(ByteStream& stream) {
  std::string chunk(700, 'x');
  for (auto n = write(stream, chunk); n && *n > 0;) n = write(stream, chunk);
}

}  // namespace

TEST_CASE("stream: bytes go both ways; nothing there is 0; the end comes after the bytes") {
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.name);
    auto loop = make_loop();
    StreamPair pair = kind.make(*loop);
    CHECK(read(*pair.first).value() == "");
    CHECK(write(*pair.first, "there").value() == 5);
    CHECK(write(*pair.second, "back").value() == 4);
    CHECK(read(*pair.second).value() == "there");
    CHECK(read(*pair.first).value() == "back");
    CHECK(write(*pair.first, "last").value() == 4);
    pair.first->shutdown_write();
    CHECK(read(*pair.second).value() == "last");
    CHECK(read(*pair.second).error() == error(Errc::kUnavailable, ByteStream::kEndOfStream));
    CHECK(write(*pair.second, "still").value() == 5);  // half closed only
    CHECK(read(*pair.first).value() == "still");
    pair.first->close();
    CHECK(read(*pair.first).error().code == Errc::kCancelled);
    CHECK(write(*pair.second, "x").error().code == Errc::kUnavailable);
  }
}

TEST_CASE("stream: a wait calls once, later, when there is something") {
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.name);
    auto loop = make_loop();
    StreamPair pair = kind.make(*loop);
    int readable = 0, writable = 0;
    pair.second->wait_readable([&] { ++readable; });
    settle(*loop);
    CHECK(readable == 0);
    REQUIRE(write(*pair.first, "x"));
    REQUIRE(write(*pair.first, "y"));
    CHECK(readable == 0);
    settle(*loop);
    CHECK(readable == 1);
    pair.second->wait_readable([&] { ++readable; });  // there already
    CHECK(readable == 1);
    settle(*loop);
    CHECK(readable == 2);
    fill(*pair.first);
    pair.first->wait_writable([&] { ++writable; });
    settle(*loop);
    CHECK(writable == 0);
    for (auto text = read(*pair.second); !text.value().empty();) text = read(*pair.second);
    settle(*loop);
    CHECK(writable == 1);
  }
}

TEST_CASE("stream: the peer's close ends both waits; one's own close ends them silently") {
  for (const Kind& kind : kKinds) {
    for (bool own : {false, true}) {
      CAPTURE(kind.name);
      CAPTURE(own);
      auto loop = make_loop();
      StreamPair pair = kind.make(*loop);
      int readable = 0, writable = 0;
      fill(*pair.first);
      pair.first->wait_readable([&] { ++readable; });
      pair.first->wait_writable([&] { ++writable; });
      settle(*loop);
      (own ? pair.first : pair.second).reset();
      settle(*loop);
      CHECK(readable == (own ? 0 : 1));
      CHECK(writable == (own ? 0 : 1));
    }
  }
}

TEST_CASE("stream: closing with a call already on its way silences it") {
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.name);
    auto loop = make_loop();
    StreamPair pair = kind.make(*loop);
    int calls = 0;
    REQUIRE(write(*pair.first, "x"));
    REQUIRE(write(*pair.second, "x"));
    // Both are ready at once; whichever comes first closes the other.
    pair.first->wait_readable([&] {
      ++calls;
      pair.second.reset();
      pair.first.reset();  // its own, too
    });
    pair.second->wait_readable([&] {
      ++calls;
      pair.first.reset();
      pair.second.reset();
    });
    settle(*loop);
    CHECK(calls == 1);
  }
}
