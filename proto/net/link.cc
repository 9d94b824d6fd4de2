#include <tilewise/base/check.h>
#include <tilewise/net/link.h>

#include <iterator>
#include <utility>

#include "out_queue.h"

namespace tilewise::net {
namespace {
// One busy peer must not keep the loop from the others: so many chunks, then it waits its turn.
constexpr int kReadsPerEvent = 8;
constexpr int kWritesPerFlush = 16;
constexpr int kDrainPasses = 256;  // more than any transport buffers
}  // namespace

// The stream is ours and calls nothing after close(), so its callbacks may hold a plain `this`; they take a
// shared pointer first, because the user's handlers may destroy the Link. What is deferred to the loop
// holds one too.
class Link::Core : public std::enable_shared_from_this<Link::Core> {
 public:
  Core(EventLoop& loop, std::unique_ptr<ByteStream> stream, const Cookie& cookie, LinkOptions options)
      : loop_(loop),
        stream_(std::move(stream)),
        reader_(options.version, options.max_frame_bytes),
        options_(options),
        cookie_(cookie),
        peer_(stream_->peer()),
        last_receive_ns_(monotonic_now()) {}

  void start(Handlers handlers) {
    TW_CHECK(!started_, "Link::start called twice");
    started_ = true;
    handlers_ = std::move(handlers);
    TW_CHECK(handlers_.on_frame && handlers_.on_close, "a Link needs on_frame and on_close");
    if (state_ == State::kFailed) {
      report();  // the transport failed before anyone listened
    } else {
      arm_read();
    }
  }

  Status send(std::uint16_t type, std::span<const ByteStream::Piece> pieces, std::vector<UniqueFd> fds);
  void flush();
  void detach();
  void retire(TimeNs linger_ns);
  Result<std::unique_ptr<ByteStream>> into_stream();

  bool is_open() const { return state_ == State::kOpen; }
  std::size_t outgoing_bytes() const { return out_.bytes(); }
  TimeNs last_receive_ns() const { return last_receive_ns_; }
  const Cookie& cookie() const { return cookie_; }
  const std::string& peer() const { return peer_; }
  bool can_pass_fds() const { return stream_ && stream_->can_pass_fds(); }
  bool is_shared_memory() const { return stream_ && stream_->is_shared_memory(); }
  std::shared_ptr<Fence> fence() const { return stream_ ? stream_->fence() : nullptr; }
  const LinkCounters& counters() const { return counters_; }

 private:
  enum class State : std::uint8_t { kOpen, kRetired, kFailed, kDetached };

  void arm_read() {
    if (read_armed_) return;
    read_armed_ = true;
    stream_->wait_readable([this] {
      read_armed_ = false;
      if (reading()) on_readable();
    });
  }
  void on_readable();
  bool deliver();
  Status take_fds(std::size_t count, std::vector<UniqueFd>& into);
  void schedule_flush();
  void on_write_error(Error error);
  void fail(Error error);
  void report();
  bool reading() const { return state_ == State::kOpen || state_ == State::kRetired; }

  EventLoop& loop_;
  std::unique_ptr<ByteStream> stream_;
  Handlers handlers_;
  FrameReader reader_;
  OutQueue out_;
  std::vector<UniqueFd> fds_in_;  // came with bytes whose frame is not complete yet, in order
  LinkOptions options_;
  Cookie cookie_;
  std::string peer_;
  LinkCounters counters_;
  TimeNs last_receive_ns_;
  Error failure_;
  TimerId linger_ = 0;
  State state_ = State::kOpen;
  bool started_ = false;
  bool read_armed_ = false;
  bool flush_scheduled_ = false;  // or waiting for the stream to take more
  bool refused_ = false;          // a send, since on_drained was last called
  bool write_failed_ = false;
};

// ---- sending ----

Status Link::Core::send(std::uint16_t type, std::span<const ByteStream::Piece> pieces,
                        std::vector<UniqueFd> fds) {
  TW_CHECK(type < kFirstReservedType, "frame type " + std::to_string(type) + " is reserved");
  if (state_ != State::kOpen || write_failed_)
    return error(Errc::kUnavailable, "the link to " + peer_ + " is closed");
  std::size_t payload_bytes = 0;
  for (ByteStream::Piece piece : pieces) payload_bytes += piece.size();
  if (payload_bytes > options_.max_frame_bytes) {
    return error(Errc::kLimitExceeded, "a frame of " + std::to_string(payload_bytes) +
                                           " bytes, above the limit of " +
                                           std::to_string(options_.max_frame_bytes));
  }
  if (fds.size() > kMaxFdsPerFrame) return error(Errc::kLimitExceeded, "too many descriptors for one frame");
  if (!fds.empty() && !stream_->can_pass_fds()) {
    return error(Errc::kUnsupported, "the link to " + peer_ + " passes no descriptors");
  }
  if (out_.bytes() + kFrameHeaderBytes + padded(payload_bytes) > options_.max_outgoing_bytes) {
    refused_ = true;
    return error(Errc::kLimitExceeded, "the outgoing queue to " + peer_ + " is full (" +
                                           std::to_string(out_.bytes()) + " bytes wait)");
  }
  FrameHeader header{.version = options_.version,
                     .type = type,
                     .payload_bytes = static_cast<std::uint32_t>(payload_bytes),
                     .fds = static_cast<std::uint8_t>(fds.size())};
  out_.append(header, pieces, std::move(fds));
  ++counters_.frames_out;
  schedule_flush();
  return {};
}

void Link::Core::schedule_flush() {
  if (flush_scheduled_) return;
  flush_scheduled_ = true;
  loop_.defer([self = shared_from_this()] {
    self->flush_scheduled_ = false;
    self->flush();
  });
}

void Link::Core::flush() {
  if (!reading() || write_failed_) return;
  for (int writes = 0; out_.bytes() > 0; ++writes) {
    if (writes == kWritesPerFlush) return schedule_flush();
    OutQueue::Batch batch = out_.batch();
    auto written = stream_->try_write(std::span(batch.pieces).first(batch.count), batch.fds);
    if (!written) return on_write_error(written.error());
    out_.consume(*written);
    counters_.bytes_out += *written;
    counters_.writes += *written > 0;
    if (*written < batch.bytes) {
      if (flush_scheduled_) return;  // an explicit flush: the scheduled one waits for the stream
      flush_scheduled_ = true;
      stream_->wait_writable([this] {
        auto self = shared_from_this();
        flush_scheduled_ = false;
        flush();
      });
      break;
    }
  }
  if (refused_ && state_ == State::kOpen && out_.bytes() <= options_.max_outgoing_bytes / 2) {
    refused_ = false;
    loop_.defer([self = shared_from_this()] {
      if (self->state_ == State::kOpen && self->handlers_.on_drained) self->handlers_.on_drained();
    });
  }
  if (state_ == State::kRetired && out_.bytes() == 0) stream_->shutdown_write();
}

// The peer may have said why it left before it closed: what has arrived is delivered before the error is.
void Link::Core::on_write_error(Error why) {
  write_failed_ = true;
  out_.clear();
  loop_.defer([self = shared_from_this(), why = std::move(why)] {
    std::uint64_t before = ~std::uint64_t{0};
    for (int i = 0;
         i < kDrainPasses && self->started_ && self->reading() && self->counters_.bytes_in != before; ++i) {
      before = self->counters_.bytes_in;
      self->on_readable();
    }
    self->fail(why);
  });
}

// ---- receiving ----

void Link::Core::on_readable() {
  auto self = shared_from_this();
  for (int reads = 0; reads < kReadsPerEvent && reading(); ++reads) {
    std::span<std::byte> space = reader_.space();
    auto got = stream_->try_read(space, fds_in_);
    if (!got) {
      Error why = got.error();
      if (reader_.mid_frame()) why.message += " in the middle of a frame";
      return fail(std::move(why));
    }
    if (*got == 0) break;
    counters_.bytes_in += *got;
    ++counters_.reads;
    last_receive_ns_ = monotonic_now();
    reader_.commit(*got);
    if (!deliver()) return;
    if (*got < space.size()) break;  // the transport is empty, most likely
  }
  if (reading()) arm_read();
}

bool Link::Core::deliver() {
  for (;;) {
    auto view = reader_.next();
    if (!view) {
      fail(view.error());
      return false;
    }
    if (!*view) break;
    Frame frame{.type = (*view)->header.type, .payload = (*view)->payload};
    if (Status taken = take_fds((*view)->header.fds, frame.fds); !taken) {
      fail(taken.error());
      return false;
    }
    ++counters_.frames_in;
    if (state_ == State::kRetired) continue;
    handlers_.on_frame(frame);
    if (!reading()) return false;
  }
  // What is left can only belong to the one frame that is incomplete.
  if (fds_in_.size() <= kMaxFdsPerFrame && (fds_in_.empty() || reader_.mid_frame())) return true;
  fail(error(Errc::kCorruptData, "descriptors that no frame announced"));
  return false;
}

Status Link::Core::take_fds(std::size_t count, std::vector<UniqueFd>& into) {
  if (count == 0) return {};
  if (count > fds_in_.size())
    return error(Errc::kCorruptData, "a frame announced descriptors that did not come");
  auto end = fds_in_.begin() + static_cast<std::ptrdiff_t>(count);
  into.assign(std::make_move_iterator(fds_in_.begin()), std::make_move_iterator(end));
  fds_in_.erase(fds_in_.begin(), end);
  return {};
}

// ---- ending ----

void Link::Core::fail(Error why) {
  if (!reading()) return;
  bool retired = state_ == State::kRetired;
  state_ = retired ? State::kDetached : State::kFailed;
  loop_.cancel(std::exchange(linger_, 0));
  stream_->close();
  out_.clear();
  fds_in_.clear();
  failure_ = std::move(why);
  if (!retired && started_) report();
}

// Deferred, so that it never comes from inside send() or another callback of the same link.
void Link::Core::report() {
  loop_.defer([self = shared_from_this()] {
    if (self->state_ == State::kFailed) self->handlers_.on_close(self->failure_);
  });
}

void Link::Core::detach() {
  if (state_ == State::kRetired) return;
  if (state_ == State::kOpen) flush();
  state_ = State::kDetached;  // the handlers stay: one of them may be running
  if (stream_) stream_->close();
}

// What the stream still calls of ours finds another state, or is replaced when its next owner waits.
Result<std::unique_ptr<ByteStream>> Link::Core::into_stream() {
  if (state_ != State::kOpen || write_failed_)
    return error(Errc::kUnavailable, "the link to " + peer_ + " is closed");
  if (out_.bytes() > 0 || reader_.mid_frame() || !fds_in_.empty())
    return error(Errc::kCorruptData, "the link to " + peer_ + " is in the middle of something");
  state_ = State::kDetached;
  return std::move(stream_);
}

void Link::Core::retire(TimeNs linger_ns) {
  if (state_ != State::kOpen) return;
  state_ = State::kRetired;
  // This timer is what keeps a retired core alive.
  linger_ = loop_.after(linger_ns, [self = shared_from_this()] {
    self->flush();
    self->fail(error(Errc::kTimeout, "lingered"));
  });
  if (!started_) {
    started_ = true;
    arm_read();
  }
  schedule_flush();
}

// ---- the handle ----

Link::Link(std::shared_ptr<Core> core) : core_(std::move(core)) {}
Link::~Link() { core_->detach(); }

std::unique_ptr<Link> Link::adopt(EventLoop& loop, std::unique_ptr<ByteStream> stream, const Cookie& cookie,
                                  LinkOptions options) {
  return std::unique_ptr<Link>(new Link(std::make_shared<Core>(loop, std::move(stream), cookie, options)));
}

void Link::start(Handlers handlers) { core_->start(std::move(handlers)); }

Status Link::send(std::uint16_t type, std::span<const std::byte> payload, std::vector<UniqueFd> fds) {
  return core_->send(type, std::span(&payload, 1), std::move(fds));
}
Status Link::send(std::uint16_t type, std::span<const std::span<const std::byte>> pieces,
                  std::vector<UniqueFd> fds) {
  return core_->send(type, pieces, std::move(fds));
}
void Link::flush() { core_->flush(); }

Result<std::unique_ptr<ByteStream>> Link::into_stream(std::unique_ptr<Link> link) {
  return link->core_->into_stream();
}

void Link::retire(std::unique_ptr<Link> link, TimeNs linger_ns) { link->core_->retire(linger_ns); }

bool Link::is_open() const { return core_->is_open(); }
std::size_t Link::outgoing_bytes() const { return core_->outgoing_bytes(); }
TimeNs Link::last_receive_ns() const { return core_->last_receive_ns(); }
const Cookie& Link::cookie() const { return core_->cookie(); }
const std::string& Link::peer() const { return core_->peer(); }
bool Link::can_pass_fds() const { return core_->can_pass_fds(); }
bool Link::is_shared_memory() const { return core_->is_shared_memory(); }
std::shared_ptr<Fence> Link::fence() const { return core_->fence(); }
const LinkCounters& Link::counters() const { return core_->counters(); }

}  // namespace tilewise::net
