#include <tilewise/codec/codec.h>

#include <capnp/message.h>
#include <capnp/schema.h>
#include <capnp/serialize.h>
#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>

#include "common.h"
#include "msg.capnp.h"
#include "random_message.h"

namespace tilewise::codec {
namespace {

constexpr std::size_t kMessages = std::variant_size_v<msg::Message::variant>;

std::uint64_t seed() {
  static const std::uint64_t chosen = [] {
    const char* given = std::getenv("TILEWISE_SEED");
    if (given) return std::strtoull(given, nullptr, 0);
    return static_cast<unsigned long long>(std::chrono::steady_clock::now().time_since_epoch().count());
  }();
  return chosen;
}

msg::Message through(const msg::Message& message) {
  Buffer buffer;
  const Status encoded = encode(message, buffer);
  REQUIRE_MESSAGE(encoded.has_value(), encoded.error().message);
  auto decoded = decode(buffer.bytes());
  REQUIRE_MESSAGE(decoded.has_value(), decoded.error().message);
  return std::move(*decoded);
}

Errc encode_error(const msg::Message& message) {
  Buffer buffer;
  const Status status = encode(message, buffer);
  CHECK(buffer.bytes().empty() == !status.has_value());
  return status ? Errc::kOk : status.error().code;
}

// Bytes of a message that no encoder would make.
template <class Fill> Result<msg::Message> decode_made(Fill fill) {
  capnp::MallocMessageBuilder builder;
  fill(builder.initRoot<wire::Message>());
  const auto words = capnp::messageToFlatArray(builder);
  return decode(std::as_bytes(std::span(words.begin(), words.size())));
}

void check_refused(const Result<msg::Message>& result, Errc code, std::string_view in_text) {
  REQUIRE(!result.has_value());
  CHECK(name_of(result.error().code) == name_of(code));
  CHECK_MESSAGE(result.error().message.find(in_text) != std::string::npos, result.error().message);
}

ir::Grid blocks(std::int64_t count) { return ir::Grid::uniform({count * 100}, {100}).value(); }

msg::Submit chain(std::int64_t block_count, int ops) {
  msg::Submit submit;
  for (int i = 0; i < ops; ++i) {
    const ir::Grid grid = blocks(block_count);
    ir::Op op{ir::OpKind::kMap, {}, {{std::uint64_t(i + 2), ir::DType::kFloat64, grid}}, grid};
    op.operands.push_back({std::uint64_t(i + 1), ir::View::identity(grid.shape())});
    op.attrs = ir::MapAttrs{{{{ir::TapeOp::kLoad}, {ir::TapeOp::kExp}}}};
    submit.ops.push_back(op);
  }
  return submit;
}

TEST_CASE("every type of message survives the wire") {
  INFO("TILEWISE_SEED=", seed());
  Prng prng(seed());
  Buffer buffer;  // one for all: what is left of a message must not show in the next
  for (std::size_t index = 0; index < kMessages; ++index) {
    for (int round = 0; round < 60; ++round) {
      const msg::Message message = random_message(index, prng);
      CAPTURE(msg::name_of(message));
      CAPTURE(round);
      const Status encoded = encode(message, buffer);
      REQUIRE_MESSAGE(encoded.has_value(), encoded.error().message);
      CHECK(reinterpret_cast<std::uintptr_t>(buffer.bytes().data()) % 8 == 0);
      const auto decoded = decode(buffer.bytes());
      REQUIRE_MESSAGE(decoded.has_value(), decoded.error().message);
      CHECK(frame_type(*decoded) == index);
      CHECK(*decoded == message);
    }
  }
  for (int kind = 0; kind < kOpKinds; ++kind) {
    for (int round = 0; round < 20; ++round) {
      const msg::Submit submit{1, 0, {random_op(static_cast<ir::OpKind>(kind), prng)}, {}};
      CHECK(through(submit) == msg::Message(submit));
    }
  }
}

TEST_CASE("default values survive the wire") {
  CHECK(through(msg::Join{}) == msg::Message(msg::Join{}));
  CHECK(through(msg::Refusal{}) == msg::Message(msg::Refusal{}));
  CHECK(through(msg::PeerBatch{}) == msg::Message(msg::PeerBatch{}));
  msg::Submit submit;
  submit.ops.resize(3);
  CHECK(through(submit) == msg::Message(submit));
}

TEST_CASE("a message larger than the scratch, then a small one") {
  Buffer buffer;
  const msg::Message large = chain(10, 20'000);
  const msg::Message small = msg::Ping{7};
  for (int round = 0; round < 3; ++round) {
    REQUIRE(encode(large, buffer).has_value());
    CHECK(*decode(buffer.bytes()) == large);
    REQUIRE(encode(small, buffer).has_value());
    CHECK(buffer.bytes().size() <= 40);
    CHECK(*decode(buffer.bytes()) == small);
  }
}

TEST_CASE(
    "a log is numbered anew without being encoded again: of one segment, of several, and with the number "
    "left out") {
  for (const std::size_t bytes : {100u, 1'000'000u}) {
    CAPTURE(bytes);
    msg::Log log{3, 7, {}};
    for (int i = 0; i < 5; ++i)
      log.entries.push_back(msg::CancelGraph{GraphId{1}, {Errc::kCancelled, "because"}});
    log.entries.push_back(msg::ForgetPlans{std::vector<std::uint64_t>(bytes / 8, 5)});
    for (const std::uint64_t first : {1u, 12345u}) {  // 1: the schema's default
      log.first = 7;
      LogBuffer again;
      Buffer anew;
      REQUIRE(again.encode(log).has_value());
      const msg::Log same{3, first, log.entries};
      const void* where = again.bytes().data();
      REQUIRE(again.encode(same).has_value());
      CHECK(again.bytes().data() == where);
      REQUIRE(encode(same, anew).has_value());
      const auto decoded = decode(again.bytes());
      REQUIRE(decoded.has_value());
      CHECK(*decoded == msg::Message(same));
      CHECK(std::ranges::equal(again.bytes(), anew.bytes()));
      // Entries that are others, and another term, are encoded; the scratch is as clean as ever.
      const msg::Log other{4, first, {msg::CancelGraph{GraphId{2}, {}}}};
      REQUIRE(again.encode(other).has_value());
      CHECK(*decode(again.bytes()) == msg::Message(other));
      const msg::Log later{5, first, other.entries};
      REQUIRE(again.encode(later).has_value());
      CHECK(*decode(again.bytes()) == msg::Message(later));
      again.forget();
      REQUIRE(again.encode(later).has_value());
      CHECK(*decode(again.bytes()) == msg::Message(later));
    }
  }
}

TEST_CASE("an expression of a million tasks is as long as one of ten") {
  Buffer ten, million;
  REQUIRE(encode(chain(10, 8), ten).has_value());
  REQUIRE(encode(chain(1'000'000, 8), million).has_value());
  CHECK(ten.bytes().size() == million.bytes().size());
  CHECK(ten.bytes().size() / 8 < 600);  // an op
}

TEST_CASE("hot messages are small") {
  msg::PeerBatch batch;
  batch.offers.resize(100);
  Buffer buffer;
  REQUIRE(encode(batch, buffer).has_value());
  CHECK(buffer.bytes().size() / 100 <= 88);
  msg::Progress progress;
  progress.ops.resize(100);
  REQUIRE(encode(progress, buffer).has_value());
  CHECK(buffer.bytes().size() / 100 <= 40);
}

TEST_CASE("ops that are placed alike say where once, and share what they say") {
  const auto placed = [](std::uint32_t first) {
    ir::Rule rule{{100}, {0}, {}, 1};
    for (std::uint32_t i = 0; i < 100; ++i) rule.devices.push_back(DeviceId(first + i));
    return ir::Placement::whole({100}, rule);
  };
  const auto size_of = [](msg::Plan plan) {
    const msg::Message log = msg::Log{1, 1, {std::move(plan)}};
    Buffer buffer;
    REQUIRE(encode(log, buffer).has_value());
    CHECK(through(log) == log);
    return buffer.bytes().size();
  };
  msg::Plan alike, apart;
  for (std::uint32_t i = 0; i < 40; ++i) {
    alike.ops.push_back({.placement = placed(1 + i % 2)});
    apart.ops.push_back({.placement = placed(1 + i)});
  }
  CHECK(size_of(apart) - size_of(alike) >= 38 * 100 * sizeof(std::uint32_t));
}

TEST_CASE("an op may be placed as one before it only") {
  const auto placed_as = [](std::uint32_t number) {
    return decode_made([&](auto m) {
      auto ops = m.initLog().initEntries(1)[0].initPlan().initOps(2);
      ops[1].setPlacedAs(number);
    });
  };
  CHECK(placed_as(1).has_value());
  check_refused(placed_as(2), Errc::kInvalidArgument, "placed as");
  check_refused(placed_as(UINT32_MAX), Errc::kInvalidArgument, "placed as");
  for (const unsigned listed : {0u, 1u}) {  // otherwise too; or as one that is
    check_refused(decode_made([&](auto m) {
                    auto ops = m.initLog().initEntries(1)[0].initPlan().initOps(2);
                    ops[listed].setListed(true);
                    ops[1].setPlacedAs(1);
                  }),
                  Errc::kInvalidArgument, "placed as");
  }
}

TEST_CASE("bytes at an odd address are taken") {
  Buffer buffer;
  REQUIRE(encode(chain(10, 3), buffer).has_value());
  std::vector<std::byte> shifted(buffer.bytes().size() + 9);
  for (std::size_t shift = 0; shift < 9; ++shift) {
    std::memcpy(shifted.data() + shift, buffer.bytes().data(), buffer.bytes().size());
    CHECK(*decode(std::span(shifted).subspan(shift, buffer.bytes().size())) == msg::Message(chain(10, 3)));
  }
}

TEST_CASE("mutated messages are values or typed errors, never more") {
  INFO("TILEWISE_SEED=", seed());
  Prng prng(seed() + 1);
  Buffer buffer;
  std::size_t accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    if (round % 20 == 0) {
      REQUIRE(
          encode(random_message(static_cast<std::size_t>(round / 20) % kMessages, prng), buffer).has_value());
    }
    std::vector<std::byte> bytes(buffer.bytes().begin(), buffer.bytes().end());
    if (prng.chance(0.2)) {
      bytes.resize(prng.below(bytes.size() + 1));
    } else {
      for (auto flips = prng.between(1, 4); flips > 0; --flips) {
        bytes[prng.below(bytes.size())] ^= static_cast<std::byte>(1u << prng.below(8));
      }
    }
    CAPTURE(round);
    const auto decoded = decode(bytes);
    if (decoded) {
      ++accepted;
      Buffer again;
      CHECK(encode(*decoded, again).has_value());  // what is accepted is within the limits
    } else {
      CHECK(!decoded.error().message.empty());
    }
  }
  CHECK(accepted > 1000);  // else the mutations only hit the framing
  CHECK(accepted < 19'000);
}

TEST_CASE("garbage is corrupt") {
  check_refused(decode({}), Errc::kCorruptData, "0 bytes");
  std::vector<std::byte> bytes(15);
  check_refused(decode(bytes), Errc::kCorruptData, "15 bytes");
  Buffer buffer;
  REQUIRE(encode(msg::Ping{1}, buffer).has_value());
  bytes.assign(buffer.bytes().begin(), buffer.bytes().end());
  bytes.resize(bytes.size() + 8);
  check_refused(decode(bytes), Errc::kCorruptData, "behind its end");
}

TEST_CASE("unknown enumerants are named") {
  const auto with_op = [](auto change) {
    return decode_made([&](wire::Message::Builder m) {
      auto op = m.initSubmit().initOps(1)[0];
      op.getAttrs().initMap().initTape(1);
      change(op);
    });
  };
  CHECK(with_op([](wire::Op::Builder) {}).has_value());
  check_refused(with_op([](wire::Op::Builder o) { o.setKind(wire::OpKind{77}); }), Errc::kInvalidArgument,
                "unknown op kind 77");
  check_refused(
      with_op([](wire::Op::Builder o) { o.getAttrs().getMap().getTape()[0].setOp(wire::TapeOp{900}); }),
      Errc::kInvalidArgument, "unknown tape operation 900");
  check_refused(with_op([](wire::Op::Builder o) { o.initOutputs(1)[0].setDtype(wire::DType{200}); }),
                Errc::kInvalidArgument, "unknown dtype 200");
  check_refused(with_op([](wire::Op::Builder o) { o.setKind(wire::OpKind::MATMUL); }), Errc::kInvalidArgument,
                "attributes of another kind");
  check_refused(decode_made([](wire::Message::Builder m) { m.initJoin().setRole(wire::Role{9}); }),
                Errc::kInvalidArgument, "unknown role 9");
  check_refused(decode_made([](wire::Message::Builder m) { m.initRefusal().setCode(999); }),
                Errc::kInvalidArgument, "unknown error code 999");
  Buffer buffer;
  REQUIRE(encode(msg::Ping{1}, buffer).has_value());
  std::vector<std::byte> bytes(buffer.bytes().begin(), buffer.bytes().end());
  bytes[16] = std::byte{200};  // the root's discriminant, after table and pointer
  check_refused(decode(bytes), Errc::kInvalidArgument, "unknown message type 200");
}

TEST_CASE("grids that cannot be are refused") {
  const auto with_dim = [](std::int64_t extent, std::int64_t block, std::int64_t phase,
                           std::vector<std::int64_t> starts, unsigned dims = 1) {
    return decode_made([&](wire::Message::Builder m) {
      auto list = m.initSubmit().initOps(1)[0].initSpace().initDims(dims);
      for (auto d : list) {
        d.setExtent(extent);
        d.setBlock(block);
        d.setPhase(phase);
        auto s = d.initStarts(static_cast<unsigned>(starts.size()));
        for (unsigned i = 0; i < starts.size(); ++i) s.set(i, starts[i]);
      }
    });
  };
  CHECK(with_dim(10, 3, 2, {}).has_value());
  check_refused(with_dim(-1, 3, 0, {}), Errc::kInvalidArgument, "extent");
  check_refused(with_dim(10, 0, 0, {}), Errc::kInvalidArgument, "block");
  check_refused(with_dim(10, 3, 3, {}), Errc::kInvalidArgument, "phase");
  check_refused(with_dim(10, 1, 0, {0, 4, 4}), Errc::kInvalidArgument, "");
  check_refused(with_dim(10, 1, 0, {1, 4}), Errc::kInvalidArgument, "");
  CHECK(!with_dim(std::int64_t{1} << 40, 1, 0, {}).has_value());  // more blocks than an array may have
  CHECK(!with_dim(std::int64_t{1} << 40, 1 << 30, 0, {}, 2).has_value());  // more elements than 2^63
  check_refused(with_dim(1, 1, 0, {}, 9), Errc::kLimitExceeded, "dimensions");
  check_refused(with_dim(100'000, 1, 0, std::vector<std::int64_t>(65'537)), Errc::kLimitExceeded, "cuts");
}

TEST_CASE("limits hold on both sides") {
  const std::string long_name(257, 'x');
  CHECK(encode_error(msg::Join{.name = long_name}) == Errc::kLimitExceeded);
  check_refused(decode_made([&](auto m) { m.initJoin().setName(long_name.c_str()); }), Errc::kLimitExceeded,
                "name");

  msg::Submit submit;
  submit.ops.resize(limits::kMaxOpsPerSubmit);
  CHECK(through(submit) == msg::Message(submit));
  submit.ops.emplace_back();
  CHECK(encode_error(submit) == Errc::kLimitExceeded);
  check_refused(decode_made([&](auto m) { m.initSubmit().initOps(65'537); }), Errc::kLimitExceeded, "ops");
  check_refused(
      decode_made([&](auto m) { m.initSubmit().initOps(1)[0].getAttrs().initMap().initOutputs(5); }),
      Errc::kLimitExceeded, "outputs of a tape");

  ir::Op op;
  op.operands.resize(limits::kMaxOperands + 1);
  CHECK(encode_error(msg::Submit{0, 0, {op}, {}}) == Errc::kLimitExceeded);
  op = {};
  op.attrs = ir::MapAttrs{{std::vector<ir::TapeInstr>(limits::kMaxTapeInstructions + 1)}};
  CHECK(encode_error(msg::Submit{0, 0, {op}, {}}) == Errc::kLimitExceeded);
  op = {.kind = ir::OpKind::kReadNpy, .attrs = ir::NpyAttrs{.path = std::string(4097, 'p')}};
  CHECK(encode_error(msg::Submit{0, 0, {op}, {}}) == Errc::kLimitExceeded);
  op = {.kind = ir::OpKind::kMatmul, .attrs = ir::MapAttrs{}};
  CHECK(encode_error(msg::Submit{0, 0, {op}, {}}) == Errc::kInvalidArgument);

  msg::PeerBatch batch;
  batch.offers.push_back({.inlined = true, .data = std::string(limits::kMaxInlineBytes, 'd')});
  CHECK(through(batch) == msg::Message(batch));
  batch.offers[0].data += 'd';
  CHECK(encode_error(batch) == Errc::kLimitExceeded);

  msg::ReleaseArrays release;
  release.arrays.resize(limits::kMaxMessageBytes / 8);  // one word too long with its header
  CHECK(encode_error(release) == Errc::kLimitExceeded);

  // A long error message is cut: it must not make the message that reports it unreadable.
  const auto cut = through(msg::GraphDone{1, {Errc::kTaskFailed, std::string(10'000, 'e')}, 0});
  CHECK(std::get<msg::GraphDone>(cut).outcome.message == std::string(kMaxOutcomeBytes, 'e'));
}

TEST_CASE("a short message cannot unfold into a long one") {
  // A struct list of elements without any words: one pointer that claims half a billion entries.
  capnp::MallocMessageBuilder builder;
  builder.initRoot<wire::Message>().initPeerBatch().initOffers(1);
  auto flat = capnp::messageToFlatArray(builder);
  std::size_t hit = 0;
  auto* words = reinterpret_cast<std::uint64_t*>(flat.begin());
  for (std::size_t i = 0; i < flat.size(); ++i) {
    if ((words[i] & 3) != 1 || words[i] >> 35 == 0 || (words[i] >> 32 & 7) != 7) continue;
    const std::size_t tag = i + 1 + (words[i] >> 2 & 0x3FFFFFFF);
    words[i] &= (std::uint64_t{1} << 35) - 1;  // no words of content
    words[tag] = std::uint64_t{(1u << 29) - 1} << 2;
    ++hit;
  }
  REQUIRE(hit == 1);
  const auto decoded = decode(std::as_bytes(std::span(flat.begin(), flat.size())));
  CHECK(!decoded.has_value());
}

template <class Enum, class NameOf> void check_enumerants(int count, NameOf name) {
  const auto enumerants = capnp::Schema::from<Enum>().getEnumerants();
  REQUIRE(static_cast<int>(enumerants.size()) == count);
  for (int i = 0; i < count; ++i) {
    // Compare letters: "reduce-blocks", "reduce_blocks" and "reduceBlocks" are one name.
    const auto letters = [](std::string_view s) {
      std::string out;
      for (const char c : s) {
        if (std::isalnum(static_cast<unsigned char>(c))) out += static_cast<char>(std::tolower(c));
      }
      return out;
    };
    const std::string ours = letters(name(i)), theirs = letters(enumerants[i].getProto().getName().cStr());
    static const std::pair<std::string, std::string> kOtherwise[] = {
        {"bool", "boolean"}, {"const", "constant"}, {"not", "logicalnot"}, {"and", "bitand"},
        {"or", "bitor"},     {"xor", "bitxor"},     {"inline", "inlined"}};
    bool same = ours == theirs;
    for (const auto& [a, b] : kOtherwise) same |= ours == a && theirs == b;
    CHECK_MESSAGE(same, ours, " is ", theirs, " in the schema");
  }
}

TEST_CASE("the schema's enumerants are those of the structs, in their order") {
  check_enumerants<wire::OpKind>(kOpKinds, [](int i) { return ir::name_of(static_cast<ir::OpKind>(i)); });
  check_enumerants<wire::TapeOp>(kTapeOps, [](int i) { return ir::name_of(static_cast<ir::TapeOp>(i)); });
  check_enumerants<wire::DType>(ir::kDTypeCount,
                                [](int i) { return ir::name_of(static_cast<ir::DType>(i)); });
  check_enumerants<wire::ReduceKind>(kReduceKinds,
                                     [](int i) { return ir::name_of(static_cast<ir::ReduceKind>(i)); });
  check_enumerants<wire::Lane>(msg::kLaneCount,
                               [](int i) { return msg::name_of(static_cast<msg::Lane>(i)); });
}

}  // namespace
}  // namespace tilewise::codec
