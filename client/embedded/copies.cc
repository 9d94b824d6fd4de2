#include "copies.h"

#include <cstring>
#include <thread>

namespace tilewise::embedded {
namespace {
constexpr std::int64_t kCopyHereBytes = 256 << 10;  // below this a hand-over to another thread costs more
}

void Copies::receive(WorkerId receiver, std::uint64_t transfer, Place to, std::int64_t bytes, Done done) {
  armed_[{receiver.value, transfer}] = {to, bytes, std::move(done)};
}

void Copies::forget(WorkerId client) {
  std::erase_if(armed_, [&](const auto& entry) { return entry.first.first == client.value; });
  // Copies to and from clients are few and bounded; which end is whose does not matter for waiting.
  for (Pending& p : pending_) {
    while (p.stream->completed() < p.sequence) std::this_thread::yield();
    if (p.receiver == client) p.received = {};
  }
}

// Null: copy on this thread.
device::Stream* Copies::stream_for(Place from, Place to, std::int64_t bytes) {
  const bool cuda = from.kind == device::Kind::kCuda || to.kind == device::Kind::kCuda;
  if (!cuda && bytes <= kCopyHereBytes) return nullptr;
  for (device::Device* device : devices_) {
    if ((device->info().kind == device::Kind::kCuda) == cuda) return &device->copy_stream();
  }
  return nullptr;
}

void Copies::transmit(WorkerId receiver, std::uint64_t transfer, Place from, std::int64_t bytes, Done sent) {
  const auto it = armed_.find({receiver.value, transfer});
  if (it == armed_.end()) return sent({});
  Armed armed = std::move(it->second);
  armed_.erase(it);
  if (armed.bytes != bytes) {
    armed.done(error(Errc::kCorruptData, "a transfer of " + std::to_string(bytes) + " bytes where " +
                                             std::to_string(armed.bytes) + " were granted"));
    return sent({});
  }
  device::Stream* stream = stream_for(from, armed.to, bytes);
  if (stream == nullptr) {
    if (bytes > 0) std::memcpy(armed.to.data, from.data, static_cast<std::size_t>(bytes));
    armed.done({});
    return sent({});
  }
  Status ok = stream->copy(armed.to.data, from.data, static_cast<std::size_t>(bytes));
  const std::uint64_t sequence = stream->record();
  if (!ok) {
    armed.done(ok);
    return sent(ok);
  }
  pending_.push_back({stream, sequence, receiver, std::move(armed.done), std::move(sent)});
}

bool Copies::poll() {
  if (pending_.empty()) return false;
  // All streams' ends first, then their failures: taking them drains the stream, so they are kept until their copy's turn.
  std::map<device::Stream*, std::uint64_t> completed;
  for (const Pending& p : pending_) completed.emplace(p.stream, p.stream->completed());
  std::vector<device::StepFailure> failures;
  for (const auto& [stream, sequence] : completed) {
    failures.clear();
    stream->take_failures(failures);
    for (device::StepFailure& f : failures)
      failed_.emplace(std::pair{stream, f.sequence}, std::move(f.error));
  }
  bool any = false;
  for (std::size_t i = 0; i < pending_.size();) {
    if (completed[pending_[i].stream] < pending_[i].sequence) {
      ++i;
      continue;
    }
    const Pending done = std::move(pending_[i]);
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    Status status;
    if (const auto f = failed_.find({done.stream, done.sequence}); f != failed_.end()) {
      status = f->second;
      failed_.erase(f);
    }
    if (done.received) done.received(status);
    if (done.sent) done.sent(status);
    any = true;
  }
  return any;
}

}  // namespace tilewise::embedded
