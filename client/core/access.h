// From public Arrays to what inference wants, and back. All of it throws ArrayError.
#pragma once
#include <tilewise/ir/infer.h>

#include "session_state.h"

namespace tilewise::client {

template <class T> T value_or_throw(Result<T> result) {
  if (!result) throw ArrayError(result.error());
  return std::move(*result);
}

struct Access {
  static const Handle& handle(const Array& a) {
    if (!a.handle_) throw ArrayError(Errc::kInvalidArgument, "an Array that names nothing");
    return *a.handle_;
  }
  static SessionState& state(const Array& a) { return *handle(a).session; }
  static Key key(const Array& a) { return handle(a).key; }
  static ir::Source source(const Array& a) {
    const Handle& h = handle(a);
    return {h.key, h.array.dtype, h.array.grid, a.view_};
  }
  // kInvalidArgument unless all are of one session.
  static std::vector<ir::Source> sources(std::span<const Array> arrays);
  static std::vector<ir::Source> sources(const SessionState& session,
                                         std::span<const Array> arrays);  // this one

  static AddressableBlocks addressable(std::shared_ptr<SessionState> session, Request& request);
  static Array whole(std::shared_ptr<const Handle> handle);
  static Array viewed(const Array& a, Result<ir::View> view);
  // The op recorded, or operand 0 seen anew.
  static Array record(SessionState& state, const Array* operand, Result<ir::Inferred> inferred);
  static Array record(const Array& operand, Result<ir::Inferred> inferred) {
    return record(state(operand), &operand, std::move(inferred));
  }
  // Reads a whole array of its own: a view is copied.
  static Array plain(const Array& a) { return record(a, infer_materialise(source(a))); }
  // The same values as another op's result, so that it can be placed by itself.
  static ir::Op copy_op(const Array& a);
};

}  // namespace tilewise::client
