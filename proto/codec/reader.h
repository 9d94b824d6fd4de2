// Private: reads messages and what they are made of from their encoded form. decode_ir.cc has arrays and ops, decode.cc the rest.
#pragma once
#include <tilewise/codec/codec.h>

#include "common.h"
#include "msg.capnp.h"

namespace tilewise::codec {

template <class E, class W> E enumerated(W wire, int count, const char* what) {
  const auto value = static_cast<std::uint16_t>(wire);
  if (value >= count)
    refuse(Errc::kInvalidArgument, std::string("unknown ") + what + ' ' + std::to_string(value));
  return static_cast<E>(value);
}

template <class T> T checked(Result<T> result) {
  if (!result) throw Refused{std::move(result).error()};
  return std::move(*result);
}

inline std::string text(capnp::Text::Reader t, std::size_t limit, const char* what) {
  bounded(t.size(), limit, what);
  return {t.begin(), t.size()};
}
inline std::string name(capnp::Text::Reader t) { return text(t, limits::kMaxNameBytes, "bytes of a name"); }
inline std::string line(capnp::Text::Reader t) { return text(t, limits::kMaxPathBytes, "bytes of a line"); }
inline std::string data(capnp::Data::Reader d, std::size_t limit, const char* what) {
  bounded(d.size(), limit, what);
  return {reinterpret_cast<const char*>(d.begin()), d.size()};
}

// Reads one message. Every list passes through list(), numbers() or per_dim(), which count before they allocate.
class Reader {
 public:
  explicit Reader(std::size_t message_bytes)
      : max_entries_(message_bytes / 8), budget_(kExpansionFactor * message_bytes + kSlack) {}

  msg::Message message(wire::Message::Reader r);

 private:
  void charge(std::size_t entries, std::size_t entry_bytes) {
    // Entries are words at least, so that more of them than the message has words is a lie.
    bounded(entries, max_entries_, "entries of a list");
    if (entries * entry_bytes > budget_)
      refuse(Errc::kLimitExceeded, "the message unfolds to too many bytes");
    budget_ -= entries * entry_bytes;
  }
  template <class T, class List, class Fn>
  std::vector<T> list(const List& from, std::size_t limit, const char* what, Fn fn) {
    charge(bounded(from.size(), limit, what), sizeof(T));
    std::vector<T> out;
    out.reserve(from.size());
    for (const auto x : from) out.push_back(fn(x));
    return out;
  }
  template <class T, class List, class Fn>
  std::vector<T> list(const List& from, Fn fn) {  // as many as the message has room for
    return list<T>(from, max_entries_, "entries of a list", fn);
  }
  // Plain numbers take as much memory as they did on the wire.
  template <class T, class List>
  std::vector<T> numbers(const List& from, std::size_t limit, const char* what) {
    bounded(from.size(), limit, what);
    std::vector<T> out;
    out.reserve(from.size());
    for (const auto x : from) out.push_back(T(x));
    return out;
  }
  template <class T, class List> std::vector<T> ids(const List& from) {
    return numbers<T>(from, limits::kMaxMessageBytes / sizeof(T), "entries of a list");
  }
  template <class T, class List, class Fn> ir::PerDim<T> per_dim(const List& from, Fn fn) {
    bounded(from.size(), limits::kMaxRank, "dimensions");
    ir::PerDim<T> out;
    for (const auto x : from) out.push_back(fn(x));
    return out;
  }
  template <class T, class List> ir::PerDim<T> per_dim(const List& from) {
    return per_dim<T>(from, [](auto x) { return static_cast<T>(x); });
  }

  // ir
  ir::DType dtype(wire::DType t) { return enumerated<ir::DType>(t, ir::kDTypeCount, "dtype"); }
  ir::Grid grid(wire::Grid::Reader r);
  ir::View view(wire::View::Reader r);
  ir::Tape tape(capnp::List<wire::TapeInstr>::Reader r);
  ir::Constants constants(capnp::List<wire::Constant>::Reader r);
  std::vector<ir::OperandMap> maps(capnp::List<wire::OperandMap>::Reader r);
  ir::OpAttrs attrs(wire::Op::Attrs::Reader r);
  ir::CallAttrs call(wire::Op::Attrs::Call::Reader r);
  ir::Op op(wire::Op::Reader r);
  ir::Placement placement(capnp::List<wire::Piece>::Reader r);

  // messages
  msg::Outcome outcome(wire::Outcome::Reader r);
  msg::DeviceDesc device(wire::DeviceDesc::Reader r);
  msg::PeerInfo peer(wire::PeerInfo::Reader r);
  msg::DeviceStats stats(wire::DeviceStats::Reader r);
  msg::LaneStats stats(wire::LaneStats::Reader r);
  msg::FamilyStats stats(wire::FamilyStats::Reader r);
  msg::Submit submit(wire::Submit::Reader r);
  msg::Announce announce(wire::Announce::Reader r);
  msg::OpAccount account(wire::OpAccount::Reader r);
  msg::ArrayAccount account(wire::ArrayAccount::Reader r);
  std::vector<msg::NeedAccount> needs(capnp::List<wire::NeedAccount>::Reader r);
  msg::Measured measured(wire::Measured::Reader r);
  msg::Explanation explanation(wire::Explanation::Reader r);
  msg::Plan plan(wire::Plan::Reader r);
  std::vector<msg::Tail> tails(capnp::List<wire::Tail>::Reader r);
  msg::LogEntry entry(wire::LogEntry::Reader r);
  msg::Join join(wire::Join::Reader r);
  msg::Progress progress(wire::Progress::Reader r);
  msg::StatusReply status(wire::StatusReply::Reader r);
  msg::PeerBatch batch(wire::PeerBatch::Reader r);
  std::vector<msg::Range> ranges(capnp::List<wire::Range>::Reader r);
  msg::Held held(wire::Held::Reader r);
  std::vector<std::string> addresses(capnp::List<capnp::Text>::Reader r);

  std::size_t max_entries_, budget_;
};

}  // namespace tilewise::codec
