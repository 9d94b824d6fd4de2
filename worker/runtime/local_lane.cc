#include <tilewise/worker/local_lane.h>

namespace tilewise::worker {

void LocalLane::receive(WorkerId receiver, std::uint64_t transfer, device::Place to, std::int64_t bytes,
                        Done done) {
  armed_[{receiver.value, transfer}] = {to, bytes, std::move(done)};
}

void LocalLane::transmit(WorkerId receiver, std::uint64_t transfer, device::Place from, std::int64_t bytes,
                         Done sent) {
  const auto it = armed_.find({receiver.value, transfer});
  if (it == armed_.end()) return sent({});
  Armed armed = std::move(it->second);
  armed_.erase(it);
  if (armed.bytes != bytes) {
    armed.done(error(Errc::kCorruptData, "a transfer of " + std::to_string(bytes) + " bytes where " +
                                             std::to_string(armed.bytes) + " were granted"));
    return sent({});
  }
  copier_.copy(armed.to, from, bytes,
               [this, receiver, received = std::move(armed.done), sent = std::move(sent)](const Status& ok) {
                 if (!gone_.contains(receiver)) received(ok);
                 sent(ok);
               });
}

void LocalLane::refuse(WorkerId receiver, std::uint64_t transfer, const Error& why) {
  const auto it = armed_.find({receiver.value, transfer});
  if (it == armed_.end()) return;
  const Armed armed = std::move(it->second);
  armed_.erase(it);
  armed.done(why);
}

void LocalLane::forget(WorkerId client) {
  gone_.insert(client);
  std::erase_if(armed_, [&](const auto& entry) { return entry.first.first == client.value; });
  copier_.drain();
  copier_.poll();
}

}  // namespace tilewise::worker
