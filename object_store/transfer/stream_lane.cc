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
constexpr std::size_t kPieces = 32;
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

void StreamLane::send(const BlockHeader& header, const std::byte* from) {
  outgoing_.push_back({header, from});
  if (!write_waits_) write();
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
    std::array<net::ByteStream::Piece, kPieces> pieces;
    std::size_t count = 0, bytes = 0;
    const auto add = [&](const std::byte* from, std::size_t size) {
      if (size == 0 || count == kPieces || bytes == kCallBytes) return;
      size = std::min(size, kCallBytes - bytes);
      pieces[count++] = {from, size};
      bytes += size;
    };
    for (auto out = outgoing_.begin(); out != outgoing_.end() && count + 2 <= kPieces; ++out) {
      const std::size_t begun = std::min(out->written, sizeof out->header);
      add(reinterpret_cast<const std::byte*>(&out->header) + begun, sizeof out->header - begun);
      const std::size_t payload = out->written - begun;
      if (out->header.bytes > payload) add(out->from + payload, out->header.bytes - payload);
      if (bytes == kCallBytes) break;
    }
    const auto written = stream_->try_write(std::span(pieces).first(count), {});
    if (!written) {
      broke(written.error());
      break;
    }
    if (*written > 0) wrote_at_ = monotonic_now();
    consume(*written);
    budget -= std::min(budget, *written);
    if (*written == bytes && budget > 0) continue;
    if (outgoing_.empty()) break;
    write_waits_ = true;
    stream_->wait_writable([this] {
      write_waits_ = false;
      write();
    });
    break;
  }
  writing_ = false;
}

void StreamLane::consume(std::size_t bytes) {
  while (!outgoing_.empty() && !broken_) {
    Outgoing& out = outgoing_.front();
    const std::size_t whole = sizeof out.header + out.header.bytes;
    const std::size_t some = std::min(bytes, whole - out.written);
    out.written += some;
    bytes -= some;
    if (out.written < whole) return;
    const BlockHeader header = out.header;
    outgoing_.pop_front();
    if (header != BlockHeader{}) handlers_.on_sent(header);
  }
}

// ---- receiving --------------------------------------------------------------------------------------------

void StreamLane::read() {
  std::vector<net::UniqueFd> fds;  // none come over TCP; others are closed
  for (std::size_t budget = kTurnBytes; budget > 0;) {
    if (!take_buffered()) return;
    std::span<std::byte> space;
    const bool in_place = incoming_ && to_ && left_ >= kBufferBytes;
    if (in_place) {
      space = {*to_, static_cast<std::size_t>(std::min<std::uint64_t>(left_, kCallBytes))};
    } else {
      if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= std::exchange(begin_, 0);
      space = std::span(buffer_).subspan(end_);
    }
    const auto got = stream_->try_read(space, fds);
    fds.clear();
    if (!got) {
      return broke(incoming_ ? error(got.error().code, got.error().message + " in the middle of a block")
                             : got.error());
    }
    if (in_place) {
      *to_ += *got;
      left_ -= *got;
    } else {
      end_ += *got;
    }
    if (*got == 0) break;
    read_at_ = monotonic_now();
    budget -= std::min(budget, *got);
  }
  if (!take_buffered()) return;
  stream_->wait_readable([this] { read(); });
}

// All that has come, up to a header or a block that is not whole. False: the lane has broken.
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
      to_ = handlers_.on_header(header);
    }
    const std::size_t some = static_cast<std::size_t>(std::min<std::uint64_t>(left_, end_ - begin_));
    if (to_ && some > 0) {
      std::memcpy(*to_, buffer_.data() + begin_, some);
      *to_ += some;
    }
    begin_ += some;
    left_ -= some;
    if (left_ > 0) return true;
    const BlockHeader header = *incoming_;
    incoming_.reset();
    if (std::exchange(to_, {})) handlers_.on_received(header);
  }
}

}  // namespace tilewise::transfer
