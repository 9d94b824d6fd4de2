#include "stream_lane.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace tilewise::transfer {

namespace {

constexpr std::size_t kBufferBytes = 64 << 10;
constexpr std::size_t kCallBytes = 1 << 20;  // of one system call: more would only leave the cache
constexpr std::size_t kTurnBytes = 8 << 20;  // each way, then others have their turn
constexpr std::uint64_t kMaxBlockBytes = std::uint64_t{1} << 46;

}  // namespace

StreamLane::StreamLane(std::unique_ptr<net::ByteStream> stream, bool dialled, Handlers handlers)
    : stream_(std::move(stream)), handlers_(std::move(handlers)), buffer_(kBufferBytes), may_write_(dialled) {
  stream_->wait_readable([this] { read(); });
  if (dialled) send({}, nullptr);
}

StreamLane::~StreamLane() { stream_->close(); }

void StreamLane::broke(const Error& why) {
  if (std::exchange(broken_, true)) return;
  stream_->close();
  outgoing_.clear();
  incoming_.reset();
  handlers_.on_broken(why);
}

// ---- sending ----------------------------------------------------------------------------------------------

void StreamLane::add(Outgoing out) {
  outgoing_.push_back(out);
  if (!write_waits_) write();
}

// From inside one of the two it is said for when that has ended.
void StreamLane::resume() {
  if (writing_ || reading_) {
    resumed_ = true;
    return;
  }
  if (!write_waits_) write();
  if (std::exchange(no_room_, false)) read();
}

// What of the payload is there and has not been written.
Result<std::span<const std::byte>> StreamLane::rest_of(const Outgoing& out) const {
  if (out.source != nullptr && out.header.bytes > 0) return out.source->next();
  const std::size_t payload = out.written - std::min(out.written, sizeof out.header);
  return std::span(out.from + payload, out.header.bytes - payload);
}

// Those of which nothing has been sent yet: the stream goes on without them.
void StreamLane::refuse_failed() {
  for (auto out = outgoing_.begin(); out != outgoing_.end();) {
    const auto rest = rest_of(*out);
    if (rest || out->written > 0) {
      ++out;
      continue;
    }
    const BlockHeader header = out->header;
    out = outgoing_.erase(out);
    handlers_.on_refused(header, rest.error());
  }
}

// What has begun has to be finished. What has not lets others go first until its bytes are there.
void StreamLane::put_ready_first() {
  if (outgoing_.empty() || outgoing_.front().written > 0) return;
  const auto ready = std::find_if(outgoing_.begin(), outgoing_.end(), [this](const Outgoing& out) {
    return out.header.bytes == 0 || !rest_of(out)->empty();
  });
  if (ready != outgoing_.end()) std::rotate(outgoing_.begin(), ready, ready + 1);
}

// The beginning of all that can be written now, in order.
Status StreamLane::gather(Gathered& out) {
  refuse_failed();
  put_ready_first();
  const auto add = [&out](const std::byte* from, std::size_t size) {
    if (size == 0 || out.count == out.pieces.size() || out.bytes == kCallBytes) return;
    size = std::min(size, kCallBytes - out.bytes);
    out.pieces[out.count++] = {from, size};
    out.bytes += size;
  };
  for (auto block = outgoing_.begin(); block != outgoing_.end() && out.count + 2 <= out.pieces.size();
       ++block) {
    const std::size_t begun = std::min(block->written, sizeof block->header);
    const std::size_t missing = block->header.bytes - (block->written - begun);
    TW_ASSIGN(const auto rest, rest_of(*block));
    if (block->written == 0 && rest.empty() && missing > 0) break;
    add(reinterpret_cast<const std::byte*>(&block->header) + begun, sizeof block->header - begun);
    add(rest.data(), rest.size());
    if (rest.size() < missing || out.bytes == kCallBytes) break;
  }
  return {};
}

bool StreamLane::withdraw(const BlockHeader& header) {
  const auto at = std::find_if(outgoing_.begin(), outgoing_.end(),
                               [&](const Outgoing& out) { return out.header == header; });
  if (at == outgoing_.end()) return true;
  if (at->written > 0) return false;
  outgoing_.erase(at);
  return true;
}

void StreamLane::write() {
  if (!may_write_ || broken_ || std::exchange(writing_, true)) return;
  for (std::size_t budget = kTurnBytes; !outgoing_.empty() && !broken_;) {
    Gathered some;
    if (const Status gathered = gather(some); !gathered) {
      broke(gathered.error());
      break;
    }
    if (some.count == 0) break;  // until resume()
    const auto written = stream_->try_write(std::span(some.pieces).first(some.count), {});
    if (!written) {
      broke(written.error());
      break;
    }
    if (*written > 0) wrote_at_ = monotonic_now();
    consume(*written);
    budget -= std::min(budget, *written);
    if (*written == some.bytes && budget > 0) continue;
    if (outgoing_.empty()) break;
    write_waits_ = true;
    stream_->wait_writable([this] {
      write_waits_ = false;
      write();
    });
    break;
  }
  writing_ = false;
  if (!reading_ && std::exchange(resumed_, false)) resume();
}

void StreamLane::consume(std::size_t bytes) {
  while (!outgoing_.empty() && !broken_) {
    Outgoing& out = outgoing_.front();
    const std::size_t whole = sizeof out.header + out.header.bytes;
    const std::size_t some = std::min(bytes, whole - out.written);
    const std::size_t header_left = sizeof out.header - std::min(out.written, sizeof out.header);
    out.written += some;
    bytes -= some;
    if (out.source != nullptr && some > header_left) out.source->sent(some - header_left);
    if (out.written < whole) return;
    const BlockHeader header = out.header;
    outgoing_.pop_front();
    if (header != BlockHeader{}) handlers_.on_sent(header);
  }
}

// ---- receiving --------------------------------------------------------------------------------------------

std::optional<std::span<std::byte>> StreamLane::room() const {
  if (to_->sink == nullptr) return std::span(to_->memory, static_cast<std::size_t>(left_));
  const auto room = to_->sink->room();
  if (!room) return room;
  return room->first(static_cast<std::size_t>(std::min<std::uint64_t>(room->size(), left_)));
}

void StreamLane::came(std::size_t bytes) {
  left_ -= bytes;
  if (to_->sink != nullptr)
    to_->sink->came(bytes);
  else
    to_->memory += bytes;
}

void StreamLane::drop_incoming() {
  to_.reset();
  if (std::exchange(no_room_, false)) read();
}

void StreamLane::read() {
  if (broken_ || std::exchange(reading_, true)) return;
  if (read_some()) stream_->wait_readable([this] { read(); });
  reading_ = false;
  if (!writing_ && std::exchange(resumed_, false)) resume();
}

// False: the lane has broken, or its sink has no room.
bool StreamLane::read_some() {
  std::vector<net::UniqueFd> fds;  // none come over TCP; others are closed
  for (std::size_t budget = kTurnBytes; budget > 0;) {
    if (!take_buffered()) return false;
    std::span<std::byte> space;
    bool in_place = incoming_ && to_ && !unwanted_ && left_ >= kBufferBytes;
    if (in_place) {
      const auto place = room();
      unwanted_ = !place;
      in_place = place.has_value();
      if (place && place->empty()) return no_room_ = true, false;
      if (place) space = place->first(std::min(place->size(), kCallBytes));
    }
    if (!in_place) {
      if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= std::exchange(begin_, 0);
      space = std::span(buffer_).subspan(end_);
    }
    const auto got = stream_->try_read(space, fds);
    fds.clear();
    if (!got) {
      broke(incoming_ ? error(got.error().code, got.error().message + " in the middle of a block")
                      : got.error());
      return false;
    }
    if (*got == 0) break;
    if (in_place)
      came(*got);
    else
      end_ += *got;
    read_at_ = monotonic_now();
    budget -= std::min(budget, *got);
  }
  return take_buffered();
}

// All that has come, up to a header or a block that is not whole. False: the lane has broken, or there is no room.
bool StreamLane::take_buffered() {
  for (;;) {
    if (!incoming_) {
      if (end_ - begin_ < sizeof(BlockHeader)) return true;
      BlockHeader header;
      std::memcpy(&header, buffer_.data() + begin_, sizeof header);
      begin_ += sizeof header;
      if (!std::exchange(may_write_, true)) {
        if (header != BlockHeader{}) {
          broke(error(Errc::kCorruptData, "a lane that does not begin as one"));
          return false;
        }
        write();
        if (broken_) return false;
        continue;
      }
      if (header == BlockHeader{}) continue;
      if (header.bytes > kMaxBlockBytes) {
        broke(error(Errc::kCorruptData, "a block of " + std::to_string(header.bytes) + " bytes"));
        return false;
      }
      incoming_ = header;
      left_ = header.bytes;
      unwanted_ = false;
      to_ = handlers_.on_header(header);
    }
    if (!take_payload()) return no_room_ = true, false;
    if (left_ > 0) return true;
    const BlockHeader header = *incoming_;
    incoming_.reset();
    if (std::exchange(to_, {})) handlers_.on_received(header);
  }
}

// What has been buffered of it. False: there is no room.
bool StreamLane::take_payload() {
  while (left_ > 0 && begin_ < end_) {
    std::size_t some = static_cast<std::size_t>(std::min<std::uint64_t>(left_, end_ - begin_));
    const auto place = to_ && !unwanted_ ? room() : std::nullopt;
    if (!place) {
      unwanted_ = true;
      left_ -= some;
      begin_ += some;
      continue;
    }
    if (place->empty()) return false;
    some = std::min(some, place->size());
    std::memcpy(place->data(), buffer_.data() + begin_, some);
    begin_ += some;
    came(some);
  }
  return true;
}

}  // namespace tilewise::transfer
