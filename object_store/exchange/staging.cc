#include <tilewise/exchange/staging.h>

#include <memory>
#include <new>

namespace tilewise::exchange {

using device::Kind;

namespace {

using Buffer = std::shared_ptr<std::byte[]>;

Result<Buffer> make_buffer(std::int64_t bytes) {
  Buffer buffer(new (std::nothrow) std::byte[static_cast<std::size_t>(bytes)]);
  if (buffer == nullptr)
    return error(Errc::kOutOfMemory, std::to_string(bytes) + " bytes of host memory to stage a transfer in");
  return buffer;
}

}  // namespace

// The receiver's to say, whose failure is heard of; and what goes from a GPU into a host's memory has to go there anyway.
Status Staging::allowed() const {
  if (!exchange_.strict_lanes()) return {};
  return error(Errc::kLaneDenied,
               std::string("a block for a GPU's memory would go through the host's: ") +
                   (exchange_.takes(Kind::kCuda) ? "data connections carry host memory only"
                                                 : "this UCX was built without CUDA"));
}

void Staging::transmit(WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                       Exchange::Done done) {
  if (!sending_.insert({to, transfer}).second) return;
  if (exchange_.in_chunks(to)) {
    return sends_.transmit(to, transfer, from, bytes,
                           [this, to, transfer, done = std::move(done)](Status status, msg::Lane lane) {
                             sending_.erase({to, transfer});
                             if (done) done(std::move(status), lane);
                           });
  }
  waiting_.push_back({to, transfer, from, bytes, std::move(done)});
  begin_sends();
}

// One that is larger than the limit goes alone. Sends that fail at once come back here: they leave the loop to the first.
void Staging::begin_sends() {
  if (beginning_) return;
  beginning_ = true;
  while (!waiting_.empty() && (held_ == 0 || held_ + waiting_.front().bytes <= limit_)) {
    Send send = std::move(waiting_.front());
    waiting_.pop_front();
    held_ += send.bytes;
    begin(std::move(send));
  }
  beginning_ = false;
}

void Staging::begin(Send send) {
  const Result<Buffer> made = make_buffer(send.bytes);
  if (!made) return end(send, made.error());
  const Buffer buffer = *made;
  const device::Place from{const_cast<std::byte*>(send.from), Kind::kCuda};
  const std::int64_t bytes = send.bytes;
  copier_.copy({buffer.get(), Kind::kHost}, from, bytes,
               [this, buffer, send = std::move(send)](const Status& ok) {
                 if (!ok) return end(send, ok);
                 exchange_.transmit(send.to, send.transfer, buffer.get(), send.bytes, Kind::kHost,
                                    [this, buffer, send](const Status& sent, msg::Lane) { end(send, sent); });
               });
}

void Staging::end(const Send& send, const Status& status) {
  held_ -= send.bytes;
  sending_.erase({send.to, send.transfer});
  if (send.done) send.done(status, msg::Lane::kStaged);
  begin_sends();
}

void Staging::receive(WorkerId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
                      Exchange::Done done) {
  if (const Status ok = allowed(); !ok) return done(ok, msg::Lane::kStaged);
  if (exchange_.in_chunks(from)) return receives_.receive(from, transfer, to, bytes, std::move(done));
  const Result<Buffer> made = make_buffer(bytes);
  if (!made) return done(made.error(), msg::Lane::kStaged);
  const Buffer buffer = *made;
  // UCX may hold the buffer for as long as it likes: the GPU's memory it has never seen.
  const auto told = std::make_shared<bool>(false);
  const auto held = [told, done](const Error& why) {
    *told = true;
    done(why, msg::Lane::kStaged);
  };
  const auto arrived = [this, to, bytes, buffer, told, done = std::move(done)](const Status& ok, msg::Lane) {
    if (*told) return;
    if (!ok) return done(ok, msg::Lane::kStaged);
    copier_.copy({to, Kind::kCuda}, {buffer.get(), Kind::kHost}, bytes,
                 [buffer, done](const Status& there) { done(there, msg::Lane::kStaged); });
  };
  exchange_.receive(from, transfer, buffer.get(), bytes, Kind::kHost, arrived, held);
}

}  // namespace tilewise::exchange
