// Private: how fields are filled in, shared by the sources that encode. A value over its limit throws Refused, which encode()
// turns into an error.
#pragma once
#include <tilewise/codec/codec.h>

#include <capnp/list.h>

#include "common.h"
#include "msg.capnp.h"

namespace tilewise::codec {

template <class E> auto wire_enum(E value) { return static_cast<std::uint16_t>(value); }

inline unsigned count(std::size_t size, std::size_t limit, const char* what) {
  return static_cast<unsigned>(bounded(size, limit, what));
}
inline unsigned any_count(std::size_t size) {
  return count(size, limits::kMaxMessageBytes / 8, "entries of a list");
}

inline capnp::Text::Reader text(const std::string& s, std::size_t limit, const char* what) {
  return {s.c_str(), bounded(s.size(), limit, what)};
}
inline capnp::Text::Reader name(const std::string& s) {
  return text(s, limits::kMaxNameBytes, "bytes of a name");
}
inline capnp::Text::Reader line(const std::string& s) {
  return text(s, limits::kMaxPathBytes, "bytes of a line");
}
inline capnp::Data::Reader data(const std::string& s, std::size_t limit, const char* what) {
  return {reinterpret_cast<const kj::byte*>(s.data()), bounded(s.size(), limit, what)};
}

// fill(element builder, element) for every element.
template <class List, class Range, class Fill> void each(List list, const Range& range, Fill fill) {
  unsigned i = 0;
  for (const auto& x : range) fill(list[i++], x);
}
inline void write(capnp::List<wire::Range>::Builder b, const std::vector<msg::Range>& ranges) {
  each(b, ranges, [](auto r, const msg::Range& x) { r.setFirst(x.first), r.setCount(x.count); });
}
inline void write(capnp::List<wire::Tail>::Builder b, const std::vector<msg::Tail>& tails) {
  each(b, tails, [](auto t, const msg::Tail& x) {
    t.setOp(x.op.value), t.setDevice(x.device.value), t.setFrom(x.from);
  });
}
template <class List, class Range> void numbers(List list, const Range& range) {
  unsigned i = 0;
  for (const auto& x : range) list.set(i++, x);
}
template <class List, class Range> void ids(List list, const Range& range) {
  unsigned i = 0;
  for (const auto& x : range) list.set(i++, x.value);
}

// init() makes the Outcome; not called for "no error", which costs nothing on the wire.
template <class Init> void write_outcome(const msg::Outcome& outcome, Init init) {
  if (outcome == msg::Outcome{}) return;
  wire::Outcome::Builder b = init();
  b.setCode(wire_enum(outcome.code));
  if (outcome.message.size() <= kMaxOutcomeBytes) {
    b.setMessage(text(outcome.message, kMaxOutcomeBytes, "bytes"));
  } else {
    b.setMessage(outcome.message.substr(0, kMaxOutcomeBytes).c_str());
  }
}

// Arrays, ops and placements (encode_ir.cc).
void write(wire::Grid::Builder b, const ir::Grid& grid);
void write(wire::Op::Builder b, const ir::Op& op);
unsigned constant_count(const ir::Constants& constants);
void write(capnp::List<wire::Constant>::Builder b, const ir::Constants& constants);
void write(capnp::List<wire::Piece>::Builder b, const ir::Placement& placement);

// What workers tell when they are asked (encode_told.cc).
void write(wire::TraceReply::Builder b, const msg::TraceReply& reply);
void write(wire::BlocksReply::Builder b, const msg::BlocksReply& reply);
void write(wire::LinkProbed::Builder b, const msg::LinkProbed& probed);

// encode_account.cc: what is told of plans
void write(wire::Explanation::Builder b, const msg::Explanation& explanation);
void write(capnp::List<wire::NeedAccount>::Builder b, const std::vector<msg::NeedAccount>& needs);

}  // namespace tilewise::codec
