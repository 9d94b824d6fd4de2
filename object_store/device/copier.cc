#include <tilewise/device/copier.h>

#include <cstring>
#include <thread>

namespace tilewise::device {
namespace {
constexpr std::int64_t kCopyHereBytes = 256 << 10;  // below this a hand-over to another thread costs more
}

Device* Copier::device_for(Place to, Place from) const {
  const bool cuda = from.kind == Kind::kCuda || to.kind == Kind::kCuda;
  for (Device* device : devices_) {
    if ((device->info().kind == Kind::kCuda) == cuda) return device;
  }
  return nullptr;
}

void Copier::copy(Place to, Place from, std::int64_t bytes, Done done) {
  const bool host = from.kind == Kind::kHost && to.kind == Kind::kHost;
  Device* device = device_for(to, from);
  if (host && (bytes <= kCopyHereBytes || device == nullptr)) {
    if (bytes > 0) std::memcpy(to.data, from.data, static_cast<std::size_t>(bytes));
    return done({});
  }
  if (device == nullptr) return done(error(Errc::kUnavailable, "no device here can copy CUDA memory"));
  copy_on(device->copy_stream(), to.data, from.data, bytes, std::move(done));
}

void Copier::copy_on(Stream& stream, std::byte* to, const std::byte* from, std::int64_t bytes, Done done) {
  Status ok = stream.copy(to, from, static_cast<std::size_t>(bytes));
  const std::uint64_t sequence = stream.record();
  pending_.push_back({&stream, sequence, std::move(done), std::move(ok)});
}

void Copier::drain() {
  for (const Pending& p : pending_) {
    while (p.stream->completed() < p.sequence) std::this_thread::yield();
  }
}

bool Copier::poll() {
  if (pending_.empty()) return false;
  // All streams' ends first, then their failures: taking them drains the stream, so they are kept until their copy's turn.
  std::map<Stream*, std::uint64_t> completed;
  for (const Pending& p : pending_) completed.emplace(p.stream, p.stream->completed());
  std::vector<StepFailure> failures;
  for (const auto& [stream, sequence] : completed) {
    failures.clear();
    stream->take_failures(failures);
    for (StepFailure& f : failures) failed_.emplace(std::pair{stream, f.sequence}, std::move(f.error));
  }
  bool any = false;
  for (std::size_t i = 0; i < pending_.size();) {
    const auto end = completed.find(pending_[i].stream);  // a copy begun by a `done` has none, or an old one
    if (end == completed.end() || end->second < pending_[i].sequence) {
      ++i;
      continue;
    }
    const Pending over = std::move(pending_[i]);
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    Status status = over.status;
    if (const auto f = failed_.find({over.stream, over.sequence}); f != failed_.end()) {
      status = f->second;
      failed_.erase(f);
    }
    over.done(status);
    any = true;
  }
  return any;
}

}  // namespace tilewise::device
