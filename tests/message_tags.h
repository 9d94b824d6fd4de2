// The messages by name, for tests that have a case for each: a new message does not compile until it has one wherever such a list is
// (-Werror=switch).
#pragma once
#include <tilewise/msg/msg.h>

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <utility>
#include <variant>

namespace tilewise::testing {

// In the order of msg::Message.
enum class Tag : std::size_t {
  kJoin,
  kWelcome,
  kLog,
  kProgress,
  kTaskFailed,
  kStuck,
  kSubmit,
  kSubmitReply,
  kGraphProgress,
  kGraphDone,
  kReleaseArrays,
  kCancelRequest,
  kStatusRequest,
  kStatusReply,
  kShutdown,
  kPing,
  kPong,
  kRefusal,
  kPeerHello,
  kArenaMap,
  kPeerBatch,
  kExplain,
  kExplanation,
  kTraceRequest,
  kTraceReply,
  kHeld,
  kResume,
  kResumed,
  kAck,
  kBlocksRequest,
  kBlocksReply,
  kDrained,
  kDrainRequest,
  kDrainReply,
  kLastWords,
  kLeave,
  kAnnounce,
  kLinkProbe,
  kLinkProbed
};
constexpr std::size_t kTags = std::variant_size_v<msg::Message::variant>;
static_assert(static_cast<std::size_t>(Tag::kLinkProbed) + 1 == kTags,
              "name the new message here, and give it cases");

// The message of that tag as it is when nobody has filled it in.
template <std::size_t... I> msg::Message empty_message(std::size_t tag, std::index_sequence<I...>) {
  msg::Message made;
  ((I == tag ? void(made = std::variant_alternative_t<I, msg::Message::variant>{}) : void()), ...);
  return made;
}
inline msg::Message empty_message(std::size_t tag) {
  return empty_message(tag, std::make_index_sequence<kTags>());
}
inline msg::Message empty_message(Tag tag) { return empty_message(static_cast<std::size_t>(tag)); }
inline Tag tag_of(const msg::Message& message) { return static_cast<Tag>(message.index()); }

// Each tag in turn; a check that fails says which.
template <class Fn> void each_tag(Fn&& fn) {
  for (std::size_t tag = 0; tag < kTags; ++tag) {
    INFO(std::string(msg::name_of(empty_message(tag))));
    fn(static_cast<Tag>(tag));
  }
}

}  // namespace tilewise::testing
