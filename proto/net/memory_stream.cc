#include <tilewise/net/byte_stream.h>

#include <algorithm>
#include <cstring>
#include <mutex>

namespace tilewise::net {
namespace {

// What one end waits for. Touched by its loop's thread only; `alive` ends with the stream.
struct Waiter {
  EventLoop::Fn fn;
  bool alive = true;

  void fire() {
    if (!alive || !fn) return;
    EventLoop::Fn call = std::move(fn);  // may set the next one
    fn = nullptr;
    call();
  }
};

// One side of a pipe as the other side sees it; `loop` is null once the side has closed.
struct Side {
  EventLoop* loop = nullptr;
  std::shared_ptr<Waiter> waiter = std::make_shared<Waiter>();
  bool waiting = false;

  void notify() {
    if (!waiting || loop == nullptr) return;
    waiting = false;
    loop->post([waiter = waiter] { waiter->fire(); });
  }
};

// Bytes in one direction. The mutex is held while the other side's loop is posted to, so that the
// loop cannot be destroyed meanwhile: closing takes the mutex too, and comes before.
struct Pipe {
  explicit Pipe(std::size_t capacity) : ring(capacity) {}

  std::size_t write(std::span<const std::byte> bytes) {
    std::size_t n = std::min(bytes.size(), ring.size() - used);
    std::size_t at = (head + used) % ring.size();
    std::size_t first = std::min(n, ring.size() - at);
    std::memcpy(ring.data() + at, bytes.data(), first);
    std::memcpy(ring.data(), bytes.data() + first, n - first);
    used += n;
    return n;
  }
  std::size_t read(std::span<std::byte> into) {
    std::size_t n = std::min(into.size(), used);
    std::size_t first = std::min(n, ring.size() - head);
    std::memcpy(into.data(), ring.data() + head, first);
    std::memcpy(into.data() + first, ring.data(), n - first);
    head = (head + n) % ring.size();
    used -= n;
    return n;
  }

  std::mutex mutex;
  std::vector<std::byte> ring;
  std::size_t head = 0, used = 0;
  bool ended = false;  // nothing more will be written
  Side reader, writer;
};

class MemoryStream : public ByteStream {
 public:
  MemoryStream(EventLoop& loop, std::shared_ptr<Pipe> in, std::shared_ptr<Pipe> out)
      : in_(std::move(in)), out_(std::move(out)) {
    in_->reader.loop = &loop;
    out_->writer.loop = &loop;
  }
  ~MemoryStream() override { close(); }

  Result<std::size_t> try_read(std::span<std::byte> into, std::vector<UniqueFd>&) override {
    std::lock_guard lock(in_->mutex);
    if (in_->reader.loop == nullptr) return closed_here();
    std::size_t n = in_->read(into);
    if (n > 0) in_->writer.notify();
    if (n == 0 && in_->ended) return error(Errc::kUnavailable, kEndOfStream);
    return n;
  }

  Result<std::size_t> try_write(std::span<const Piece> pieces, std::span<const UniqueFd> fds) override {
    if (!fds.empty()) return error(Errc::kUnsupported, "a stream in memory passes no descriptors");
    std::lock_guard lock(out_->mutex);
    if (out_->writer.loop == nullptr || out_->ended) return closed_here();
    if (out_->reader.loop == nullptr) return error(Errc::kUnavailable, kEndOfStream);
    std::size_t written = 0;
    for (Piece piece : pieces) written += out_->write(piece);
    if (written > 0) out_->reader.notify();
    return written;
  }

  void wait_readable(EventLoop::Fn fn) override {
    std::lock_guard lock(in_->mutex);
    wait(in_->reader, std::move(fn), in_->used > 0 || in_->ended);
  }
  void wait_writable(EventLoop::Fn fn) override {
    std::lock_guard lock(out_->mutex);
    wait(out_->writer, std::move(fn), out_->used < out_->ring.size() || out_->reader.loop == nullptr);
  }

  void shutdown_write() override { end(*out_); }

  void close() override {
    end(*out_);
    leave(*out_, out_->writer);
    {
      std::lock_guard lock(in_->mutex);
      in_->writer.notify();  // it will see that nobody reads
    }
    leave(*in_, in_->reader);
  }

  bool can_pass_fds() const override { return false; }
  std::string peer() const override { return "in memory"; }

 private:
  static Error closed_here() { return error(Errc::kCancelled, "the stream was closed by this side"); }

  static void wait(Side& side, EventLoop::Fn fn, bool ready) {
    if (side.loop == nullptr) return;
    side.waiter->fn = std::move(fn);
    side.waiting = true;
    if (ready) side.notify();
  }
  static void end(Pipe& pipe) {
    std::lock_guard lock(pipe.mutex);
    pipe.ended = true;
    pipe.reader.notify();
  }
  static void leave(Pipe& pipe, Side& side) {
    EventLoop::Fn dropped;  // destroyed without the mutex
    std::lock_guard lock(pipe.mutex);
    side.loop = nullptr;
    side.waiter->alive = false;
    dropped.swap(side.waiter->fn);
  }

  std::shared_ptr<Pipe> in_, out_;
};

}  // namespace

StreamPair make_memory_pair(EventLoop& first, EventLoop& second, std::size_t capacity_bytes) {
  auto there = std::make_shared<Pipe>(std::max<std::size_t>(capacity_bytes, 1));
  auto back = std::make_shared<Pipe>(std::max<std::size_t>(capacity_bytes, 1));
  return {std::make_unique<MemoryStream>(first, back, there),
          std::make_unique<MemoryStream>(second, there, back)};
}

}  // namespace tilewise::net
