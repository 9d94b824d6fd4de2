#include <tilewise/msg/msg.h>

namespace tilewise::msg {

std::string_view name_of(Lane lane) {
  switch (lane) {
    case Lane::kSameDevice: return "same-device";
    case Lane::kMapped: return "mapped";
    case Lane::kPeerCopy: return "peer-copy";
    case Lane::kCudaIpc: return "cuda-ipc";
    case Lane::kSharedMemory: return "shared-memory";
    case Lane::kRdma: return "rdma";
    case Lane::kTcp: return "tcp";
    case Lane::kStaged: return "staged";
    case Lane::kInline: return "inline";
  }
  return "unknown";
}

std::string_view name_of(const Message& message) {
  static constexpr std::string_view kNames[] = {"Join",
                                                "Welcome",
                                                "Log",
                                                "Progress",
                                                "TaskFailed",
                                                "Stuck",
                                                "Submit",
                                                "SubmitReply",
                                                "GraphProgress",
                                                "GraphDone",
                                                "ReleaseArrays",
                                                "CancelRequest",
                                                "StatusRequest",
                                                "StatusReply",
                                                "Shutdown",
                                                "Ping",
                                                "Pong",
                                                "Refusal",
                                                "PeerHello",
                                                "ArenaMap",
                                                "PeerBatch",
                                                "Explain",
                                                "Explanation",
                                                "TraceRequest",
                                                "TraceReply",
                                                "Held",
                                                "Resume",
                                                "Resumed",
                                                "Ack"};
  static_assert(std::size(kNames) == std::variant_size_v<Message>);
  return kNames[message.index()];
}

}  // namespace tilewise::msg
