#include <tilewise/base/prng.h>
#include <tilewise/net/fault_stream.h>

#include <algorithm>

namespace tilewise::net {
namespace {

class FaultStream : public ByteStream {
 public:
  FaultStream(EventLoop& loop, std::unique_ptr<ByteStream> inner, std::shared_ptr<Faults> faults)
      : loop_(loop), inner_(std::move(inner)), faults_(std::move(faults)), prng_(faults_->seed) {}
  ~FaultStream() override { close(); }

  Result<std::size_t> try_read(std::span<std::byte> into, std::vector<UniqueFd>& fds) override {
    if (received_ >= faults_->end_at) return error(Errc::kUnavailable, kEndOfStream);
    if (received_ >= faults_->stall_at) return std::size_t{0};
    std::uint64_t limit =
        std::min<std::uint64_t>(into.size(), std::min(faults_->end_at, faults_->stall_at) - received_);
    limit = std::min<std::uint64_t>(limit, 1 + prng_.below(faults_->max_read_bytes));
    Result<std::size_t> n = inner_->try_read(into.first(static_cast<std::size_t>(limit)), fds);
    if (!n || *n == 0) return n;
    if (faults_->flip_at >= received_ && faults_->flip_at < received_ + *n) {
      flip(into[static_cast<std::size_t>(faults_->flip_at - received_)]);
    }
    if (faults_->flip_chance > 0 && prng_.chance(faults_->flip_chance)) flip(into[prng_.below(*n)]);
    received_ += *n;
    return n;
  }

  Result<std::size_t> try_write(std::span<const Piece> pieces, std::span<const UniqueFd> fds) override {
    std::size_t limit = 1 + static_cast<std::size_t>(prng_.below(faults_->max_write_bytes));
    std::vector<Piece> shorter;
    for (Piece piece : pieces) {
      if (limit == 0) break;
      shorter.push_back(piece.first(std::min(limit, piece.size())));
      limit -= shorter.back().size();
    }
    return inner_->try_write(shorter, fds);
  }

  void wait_readable(EventLoop::Fn fn) override {
    if (received_ >= faults_->end_at) {  // the end was cut out of the stream: nothing will wake us for it
      timer_ = loop_.after(faults_->delay_ns, std::move(fn));
    } else if (received_ >=
               faults_->stall_at) {  // the inner one may be readable all the time; the fault may be lifted
      timer_ = loop_.after(kMillisecond, std::move(fn));
    } else if (faults_->delay_ns == 0) {
      inner_->wait_readable(std::move(fn));
    } else {
      inner_->wait_readable(
          [this, fn = std::move(fn)]() mutable { timer_ = loop_.after(faults_->delay_ns, std::move(fn)); });
    }
  }
  void wait_writable(EventLoop::Fn fn) override { inner_->wait_writable(std::move(fn)); }

  void shutdown_write() override { inner_->shutdown_write(); }
  void close() override {
    loop_.cancel(timer_);
    inner_->close();
  }
  bool can_pass_fds() const override { return inner_->can_pass_fds(); }
  std::string peer() const override { return inner_->peer() + " (with faults)"; }

 private:
  void flip(std::byte& byte) { byte ^= std::byte{1} << static_cast<int>(prng_.below(8)); }

  EventLoop& loop_;
  std::unique_ptr<ByteStream> inner_;
  std::shared_ptr<Faults> faults_;
  Prng prng_;
  std::uint64_t received_ = 0;
  TimerId timer_ = 0;
};

}  // namespace

std::unique_ptr<ByteStream> inject_faults(EventLoop& loop, std::unique_ptr<ByteStream> inner,
                                          std::shared_ptr<Faults> faults) {
  return std::make_unique<FaultStream>(loop, std::move(inner), std::move(faults));
}

}  // namespace tilewise::net
