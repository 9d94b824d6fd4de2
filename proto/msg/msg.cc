#include <tilewise/msg/msg.h>

#include <algorithm>
#include <atomic>
#include <unordered_map>

namespace tilewise::msg {

LogEntry::LogEntry() = default;
LogEntry::LogEntry(const LogEntry&) = default;
LogEntry::LogEntry(LogEntry&&) noexcept = default;
LogEntry& LogEntry::operator=(const LogEntry&) = default;
LogEntry& LogEntry::operator=(LogEntry&&) noexcept = default;
LogEntry::~LogEntry() = default;

Entries::Entries(std::vector<LogEntry> entries) {
  all_.reserve(entries.size());
  for (LogEntry& entry : entries) push_back(std::move(entry));
}
Entries::Entries(const Entries& all, std::size_t first, std::size_t count)
    : all_(all.all_.begin() + static_cast<std::ptrdiff_t>(first),
           all.all_.begin() + static_cast<std::ptrdiff_t>(first + count)) {}
Entries::Shared Entries::share(LogEntry entry) { return std::make_shared<LogEntry>(std::move(entry)); }
LogEntry Entries::take(std::size_t i) {
  const Shared entry = std::move(all_[i]);
  if (entry.use_count() > 1) return *entry;
  std::atomic_thread_fence(std::memory_order_acquire);  // the count alone orders nothing
  return std::move(*entry);
}
bool operator==(const Entries& a, const Entries& b) {
  return a.are(b) || std::equal(a.begin(), a.end(), b.begin(), b.end());
}

Message::Message() = default;
Message::Message(const Message&) = default;
Message::Message(Message&&) noexcept = default;
Message& Message::operator=(const Message&) = default;
Message& Message::operator=(Message&&) noexcept = default;
Message::~Message() = default;

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

std::string_view name_of(TraceKind kind) {
  switch (kind) {
    case TraceKind::kStep: return "step";
    case TraceKind::kTransfer: return "transfer";
    case TraceKind::kNoWork: return "no work";
    case TraceKind::kNoInputs: return "waits for inputs";
    case TraceKind::kNoMemory: return "waits for memory";
    case TraceKind::kSpill: return "spill";
    case TraceKind::kUnspill: return "unspill";
  }
  return "unknown";
}

std::string_view name_of(BlockState state) {
  switch (state) {
    case BlockState::kExpected: return "expected";
    case BlockState::kWaiting: return "waits for memory";
    case BlockState::kReceiving: return "in flight";
    case BlockState::kHere: return "here";
    case BlockState::kBorrowed: return "read in place";
    case BlockState::kFailed: return "failed";
    case BlockState::kSpilled: return "spilled";
  }
  return "unknown";
}

Plan expand(const Plan& kept, const Replay& replay) {
  Plan plan = kept;
  plan.graph = replay.graph, plan.priority = replay.priority;
  plan.session = replay.session, plan.weight = replay.weight;
  std::unordered_map<std::uint64_t, std::uint64_t> names;  // looked up, never walked
  std::uint64_t first = 0;
  for (const PlannedOp& op : kept.ops) {
    for (const ir::OutputSpec& output : op.op.outputs) {
      if (names.empty()) first = output.array;
      names.emplace(output.array, output.array - first + replay.first_array.value);
    }
  }
  std::size_t inputs = 0;
  for (PlannedOp& op : plan.ops) {
    op.id.value = op.id.value - kept.ops[0].id.value + replay.first_op.value;
    for (ir::Operand& operand : op.op.operands) {
      if (!names.contains(operand.array)) names.emplace(operand.array, replay.inputs.at(inputs++).value);
      operand.array = names.at(operand.array);
    }
    for (ir::OutputSpec& output : op.op.outputs) output.array = names.at(output.array);
    ir::put_constants({&op.op, 1}, replay.constants);
  }
  for (ArrayId& held : plan.holds) held.value = names.at(held.value);
  return plan;
}

void align_clocks(std::vector<TraceReply>& replies, const std::map<WorkerId, std::string>& hosts) {
  const auto host_of = [&](const TraceReply& reply) {
    const auto host = hosts.find(reply.worker);
    return host != hosts.end() ? host->second : "worker " + std::to_string(reply.worker.value);
  };
  std::map<std::string, std::int64_t> latest;  // answers of one host are told by one clock
  for (const TraceReply& reply : replies) {
    const auto [at, fresh] = latest.emplace(host_of(reply), reply.now_ns);
    if (!fresh) at->second = std::max(at->second, reply.now_ns);
  }
  for (TraceReply& reply : replies) {
    const std::int64_t now = latest.at(host_of(reply));
    for (TracedStep& step : reply.steps) step.start_ns -= now, step.end_ns -= now;
    if (reply.since_ns != 0) reply.since_ns -= now;
    reply.now_ns -= now;
  }
}

std::string_view name_of(DrainState state) {
  static constexpr std::string_view kNames[] = {"stays", "waiting", "stopping", "moving", "gone", "lost"};
  static_assert(std::size(kNames) == kDrainStateCount);
  return kNames[static_cast<std::size_t>(state)];
}

std::string_view name_of(const Message& message) {
  static constexpr std::string_view kNames[] = {
      "Join",          "Welcome",     "Log",           "Progress",   "TaskFailed",    "Stuck",
      "Submit",        "SubmitReply", "GraphProgress", "GraphDone",  "ReleaseArrays", "CancelRequest",
      "StatusRequest", "StatusReply", "Shutdown",      "Ping",       "Pong",          "Refusal",
      "PeerHello",     "ArenaMap",    "PeerBatch",     "Explain",    "Explanation",   "TraceRequest",
      "TraceReply",    "Held",        "Resume",        "Resumed",    "Ack",           "BlocksRequest",
      "BlocksReply",   "Drained",     "DrainRequest",  "DrainReply", "LastWords",     "Leave",
      "Announce",      "LinkProbe",   "LinkProbed"};
  static_assert(std::size(kNames) == std::variant_size_v<Message::variant>);
  return kNames[message.index()];
}

}  // namespace tilewise::msg
