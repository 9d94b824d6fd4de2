#include "ring_stream.h"

#include <tilewise/base/check.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <utility>

namespace tilewise::net {
namespace {

static_assert(std::endian::native == std::endian::little, "words are copied as they are");
constexpr std::size_t kMaxWaitingSets = 256;  // of descriptors whose bytes were not read yet
constexpr int kMaxWordReads = 64;             // of the socket at a time

struct DescriptorSet {
  std::uint64_t position;
  std::vector<UniqueFd> fds;
};

class RingFence : public Fence {
 public:
  RingFence(std::shared_ptr<SharedRings> rings, RingHeader& ours, RingHeader& theirs)
      : rings_(std::move(rings)), ours_(ours), theirs_(theirs) {}
  void raise() override {
    ours_.disowned.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  bool is_up() const override {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return theirs_.disowned.load(std::memory_order_relaxed) != 0;
  }

 private:
  const std::shared_ptr<SharedRings> rings_;  // what the headers are in
  RingHeader &ours_, &theirs_;
};

// The loop polls this; it may outlive the stream by one call, while a callback destroys the stream.
class RingState : public Poller, public std::enable_shared_from_this<RingState> {
 public:
  RingState(EventLoop& loop, std::unique_ptr<ByteStream> socket, SharedRings rings, bool creator)
      : loop_(loop),
        socket_(std::move(socket)),
        rings_(std::make_shared<SharedRings>(std::move(rings))),
        in_(rings_->ring(creator ? 1 : 0)),
        out_(rings_->ring(creator ? 0 : 1)) {
    rings_->close_memfd();
  }

  void start() {
    loop_.add_poller(shared_from_this());
    watch_socket();
  }
  void close();

  Result<std::size_t> try_read(std::span<std::byte> into, std::vector<UniqueFd>& fds);
  Result<std::size_t> try_write(std::span<const ByteStream::Piece> pieces, std::span<const UniqueFd> fds);
  void shutdown_write();
  std::optional<pid_t> peer_process() const { return socket_->peer_process(); }
  bool peer_closed() const;
  std::shared_ptr<Fence> fence() { return std::make_shared<RingFence>(rings_, out_.header(), in_.header()); }
  void wait_readable(EventLoop::Fn fn) { on_readable_ = std::move(fn); }
  void wait_writable(EventLoop::Fn fn);

  bool poll() override;
  bool before_park() override;
  void after_park() override;

 private:
  static Error closed_here() { return error(Errc::kCancelled, "the stream was closed by this side"); }
  static Error ended() { return error(Errc::kUnavailable, ByteStream::kEndOfStream); }

  bool readable();
  bool writable();
  void fire(EventLoop::Fn& slot) {
    EventLoop::Fn call = std::exchange(slot, nullptr);  // may ask for the next one, or close
    call();
  }
  void watch_socket();
  void read_words();
  Status take_words(std::span<const std::byte> bytes);
  Status take_word(std::uint64_t word);
  Result<bool> send_fds(std::span<const UniqueFd> fds);
  Result<bool> send_word(std::uint64_t word, std::span<const UniqueFd> fds);
  void wake_peer() { (void)!send_word(0, {}); }  // a full socket holds words enough; a dead one is noticed

  EventLoop& loop_;
  std::unique_ptr<ByteStream> socket_;
  std::shared_ptr<SharedRings> rings_;
  RingEnd in_, out_;
  EventLoop::Fn on_readable_, on_writable_;
  std::deque<DescriptorSet> sets_;  // not yet given to the reader, by position
  std::vector<UniqueFd> raw_fds_;   // came with a word that is not complete
  std::array<std::byte, 8> word_{};
  std::size_t word_bytes_ = 0;
  std::uint64_t sets_taken_ = 0, sets_sent_ = 0;
  Status broken_;  // what the peer did on the socket
  bool dead_ = false;
  bool socket_full_ = false;  // descriptors did not fit
  bool shut_ = false, closed_ = false;
};

// ---- waiting ----

bool RingState::readable() {
  RingHeader& header = in_.header();
  return dead_ || !broken_ || header.tail.load(std::memory_order_acquire) != in_.position() ||
         header.ended.load(std::memory_order_acquire) != 0;
}

bool RingState::writable() {
  RingHeader& header = out_.header();
  if (dead_ || !broken_ || header.gone.load(std::memory_order_acquire) != 0) return true;
  return !socket_full_ && header.head.load(std::memory_order_acquire) != out_.position() - out_.capacity();
}

void RingState::wait_writable(EventLoop::Fn fn) {
  if (closed_) return;
  on_writable_ = std::move(fn);
  if (!socket_full_) return;
  socket_->wait_writable([this] { socket_full_ = false; });
}

bool RingState::poll() {
  const bool read = on_readable_ && readable();
  const bool write = on_writable_ && writable();
  if (!read && !write) return false;
  auto self = shared_from_this();
  if (read) fire(on_readable_);
  if (write && on_writable_) fire(on_writable_);
  return true;
}

bool RingState::before_park() {
  if (on_readable_) in_.header().consumer_sleeps.store(1, std::memory_order_relaxed);
  if (on_writable_) out_.header().producer_sleeps.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return (on_readable_ && readable()) || (on_writable_ && writable());
}

void RingState::after_park() {
  in_.header().consumer_sleeps.store(0, std::memory_order_relaxed);
  out_.header().producer_sleeps.store(0, std::memory_order_relaxed);
}

// ---- the socket ----

void RingState::watch_socket() {
  socket_->wait_readable([this] {
    auto self = shared_from_this();
    read_words();
    if (!closed_ && !dead_ && broken_) watch_socket();
  });
}

// Afterwards whoever waits is called by poll(), if there is anything for it.
void RingState::read_words() {
  std::array<std::byte, 512> bytes;
  for (int i = 0; i < kMaxWordReads && broken_ && !dead_; ++i) {
    auto got = socket_->try_read(bytes, raw_fds_);
    if (!got) {
      dead_ = true;
      if (got.error().message != ByteStream::kEndOfStream && got.error().code != Errc::kUnavailable)
        broken_ = got.error();
      return;
    }
    if (*got == 0) return;
    broken_ = take_words(std::span(bytes).first(*got));
  }
}

Status RingState::take_words(std::span<const std::byte> bytes) {
  for (std::byte byte : bytes) {
    word_[word_bytes_++] = byte;
    if (word_bytes_ < word_.size()) continue;
    word_bytes_ = 0;
    TW_TRY(take_word(std::bit_cast<std::uint64_t>(word_)));
  }
  return {};
}

Status RingState::take_word(std::uint64_t word) {
  if (word == 0) return {};  // descriptors may be there already, for the word behind it
  const std::size_t count = word & 0xff;
  const std::uint64_t position = word >> 8;
  const std::uint64_t earliest = sets_.empty() ? in_.position() : sets_.back().position;
  if (count == 0 || count > raw_fds_.size() || count > kMaxFdsPerFrame || position < earliest ||
      position - in_.position() > in_.capacity())
    return error(Errc::kCorruptData, "descriptors for no byte of the stream");
  if (sets_.size() == kMaxWaitingSets)
    return error(Errc::kLimitExceeded, "too many descriptors before their bytes");
  DescriptorSet set{position, {}};
  const auto end = raw_fds_.begin() + static_cast<std::ptrdiff_t>(count);
  set.fds.assign(std::make_move_iterator(raw_fds_.begin()), std::make_move_iterator(end));
  raw_fds_.erase(raw_fds_.begin(), end);
  sets_.push_back(std::move(set));
  ++sets_taken_;
  return {};
}

Result<bool> RingState::send_word(std::uint64_t word, std::span<const UniqueFd> fds) {
  const auto bytes = std::bit_cast<std::array<std::byte, 8>>(word);
  ByteStream::Piece piece(bytes);
  TW_ASSIGN(const std::size_t sent, socket_->try_write({&piece, 1}, fds));
  if (sent != 0 && sent != bytes.size())  // the kernel takes so few bytes whole or not at all
    return error(Errc::kInternal, "half a word was written to a socket");
  return sent != 0;
}

// ---- the stream ----

Result<std::size_t> RingState::try_read(std::span<std::byte> into, std::vector<UniqueFd>& fds) {
  if (closed_) return closed_here();
  // Before the tail: what was written before the end counts.
  const bool over = dead_ || in_.header().ended.load(std::memory_order_acquire) != 0;
  if (!broken_) return broken_.error();
  TW_ASSIGN(const std::size_t there, in_.available());
  if (there == 0) return over ? Result<std::size_t>(ended()) : Result<std::size_t>(std::size_t{0});
  // Told before the tail, so whatever belongs to these bytes is on the socket.
  if (in_.header().descriptors.load(std::memory_order_relaxed) != sets_taken_) {
    read_words();
    if (!broken_) return broken_.error();
  }
  const std::size_t bytes = std::min(there, into.size());
  in_.read(into.first(bytes));
  while (!sets_.empty() && sets_.front().position < in_.position()) {
    for (UniqueFd& fd : sets_.front().fds) fds.push_back(std::move(fd));
    sets_.pop_front();
  }
  if (must_wake(in_.header().producer_sleeps)) wake_peer();
  return bytes;
}

Result<std::size_t> RingState::try_write(std::span<const ByteStream::Piece> pieces,
                                         std::span<const UniqueFd> fds) {
  if (closed_ || shut_) return closed_here();
  if (!broken_) return broken_.error();
  if (dead_ || out_.header().gone.load(std::memory_order_acquire) != 0) return ended();
  TW_ASSIGN(std::size_t space, out_.space());
  if (space == 0) return std::size_t{0};
  if (!fds.empty()) {
    TW_ASSIGN(const bool sent, send_fds(fds));
    if (!sent) return std::size_t{0};
  }
  std::size_t written = 0;
  for (ByteStream::Piece piece : pieces) {
    const std::size_t bytes = std::min(space, piece.size());
    out_.write(piece.first(bytes));
    space -= bytes;
    written += bytes;
  }
  out_.publish();
  if (must_wake(out_.header().consumer_sleeps)) wake_peer();
  return written;
}

Result<bool> RingState::send_fds(std::span<const UniqueFd> fds) {
  if (fds.size() > kMaxFdsPerFrame) return error(Errc::kUnsupported, "cannot pass these descriptors");
  TW_ASSIGN(const bool sent, send_word(out_.position() << 8 | fds.size(), fds));
  socket_full_ = !sent;
  if (sent) out_.header().descriptors.store(++sets_sent_, std::memory_order_relaxed);
  return sent;
}

void RingState::shutdown_write() {
  if (closed_ || std::exchange(shut_, true)) return;
  out_.header().ended.store(1, std::memory_order_release);
  if (must_wake(out_.header().consumer_sleeps)) wake_peer();
}

bool RingState::peer_closed() const {
  std::atomic_thread_fence(std::memory_order_seq_cst);  // after whatever was read of the peer's memory
  return closed_ || dead_ || in_.header().ended.load(std::memory_order_relaxed) != 0 ||
         socket_->peer_closed();
}

void RingState::close() {
  if (std::exchange(closed_, true)) return;
  out_.header().ended.store(1, std::memory_order_release);
  in_.header().gone.store(1, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);  // before whatever becomes of this process's memory
  loop_.remove_poller(this);
  socket_->close();  // wakes the peer if it sleeps
  auto dropped = std::pair(std::move(on_readable_), std::move(on_writable_));
}

class RingStream : public ByteStream {
 public:
  RingStream(EventLoop& loop, std::unique_ptr<ByteStream> socket, SharedRings rings, bool creator)
      : state_(std::make_shared<RingState>(loop, std::move(socket), std::move(rings), creator)) {
    state_->start();
  }
  ~RingStream() override { state_->close(); }

  Result<std::size_t> try_read(std::span<std::byte> into, std::vector<UniqueFd>& fds) override {
    return state_->try_read(into, fds);
  }
  Result<std::size_t> try_write(std::span<const Piece> pieces, std::span<const UniqueFd> fds) override {
    return state_->try_write(pieces, fds);
  }
  void wait_readable(EventLoop::Fn fn) override { state_->wait_readable(std::move(fn)); }
  void wait_writable(EventLoop::Fn fn) override { state_->wait_writable(std::move(fn)); }
  void shutdown_write() override { state_->shutdown_write(); }
  void close() override { state_->close(); }
  bool can_pass_fds() const override { return true; }
  bool is_shared_memory() const override { return true; }
  std::optional<pid_t> peer_process() const override { return state_->peer_process(); }
  bool peer_closed() const override { return state_->peer_closed(); }
  std::shared_ptr<Fence> fence() override { return state_->fence(); }
  std::string peer() const override { return "shared memory"; }

 private:
  std::shared_ptr<RingState> state_;
};

}  // namespace

std::unique_ptr<ByteStream> make_ring_stream(EventLoop& loop, std::unique_ptr<ByteStream> socket,
                                             SharedRings rings, bool creator) {
  TW_CHECK(socket->can_pass_fds(), "rings go beside a Unix socket");
  return std::make_unique<RingStream>(loop, std::move(socket), std::move(rings), creator);
}

Result<StreamPair> make_ring_pair(EventLoop& first, EventLoop& second, std::size_t capacity_bytes) {
  TW_ASSIGN(StreamPair sockets, make_socket_pair(first, second));
  TW_ASSIGN(SharedRings ours, SharedRings::create(capacity_bytes));
  TW_ASSIGN(UniqueFd memfd, duplicate(ours.memfd()));
  TW_ASSIGN(SharedRings theirs, SharedRings::import(std::move(memfd), capacity_bytes));
  return StreamPair{make_ring_stream(first, std::move(sockets.first), std::move(ours), true),
                    make_ring_stream(second, std::move(sockets.second), std::move(theirs), false)};
}

}  // namespace tilewise::net
