#include <tilewise/base/check.h>
#include <tilewise/net/handshake.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "ring_stream.h"

namespace tilewise::net {
namespace {

constexpr std::uint16_t kHelloType = kFirstReservedType;
constexpr std::uint16_t kProofType = kFirstReservedType + 1;
constexpr std::uint16_t kRingsType = kFirstReservedType + 2;
constexpr std::uint16_t kProbeType = kFirstReservedType + 3;

struct Hello {
  std::array<std::byte, 32> nonce;
  Role role;
  std::uint8_t shares = 0;  // 1: would talk through shared memory
  std::uint8_t probes = 0;  // 1: would try whether large packets arrive
  std::array<std::byte, 5> zeros{};
};
static_assert(sizeof(Hello) == 40 && alignof(Hello) == 1, "sent as it lies in memory");

using HelloFrame = std::array<std::byte, kFrameHeaderBytes + sizeof(Hello)>;
using ProofFrame = std::array<std::byte, kFrameHeaderBytes + sizeof(Token::Mac)>;
using RingsFrame = std::array<std::byte, kFrameHeaderBytes + sizeof(std::uint64_t)>;
static_assert(sizeof(RingsFrame) < sizeof(ProofFrame));
static_assert(sizeof(HelloFrame) <= kMaxUnauthenticatedBytes &&
              sizeof(ProofFrame) <= kMaxUnauthenticatedBytes);

template <class Body> auto make_frame(std::uint16_t version, std::uint16_t type, const Body& body) {
  std::array<std::byte, kFrameHeaderBytes + sizeof(Body)> frame;
  auto header = FrameHeader{.version = version, .type = type, .payload_bytes = sizeof(Body)}.encode();
  std::memcpy(frame.data(), header.data(), header.size());
  std::memcpy(frame.data() + header.size(), &body, sizeof(Body));
  return frame;
}

std::span<const std::byte> text_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

Role other(Role role) { return role == Role::kConnector ? Role::kAcceptor : Role::kConnector; }

}  // namespace

class Handshake::Core : public std::enable_shared_from_this<Handshake::Core> {
 public:
  Core(EventLoop& loop, std::unique_ptr<ByteStream> stream, Role role, const HandshakeOptions& options,
       Done done)
      : loop_(loop), stream_(std::move(stream)), role_(role), options_(options), done_(std::move(done)) {}

  void begin() {
    if (!stream_->can_pass_fds()) options_.ring_bytes = 0;
    if (stream_->can_pass_fds()) options_.probes_path = false;
    Hello hello{.role = role_};
    hello.shares = options_.ring_bytes > 0;
    hello.probes = options_.probes_path;
    const bool filled = fill_random(hello.nonce);
    TW_CHECK(filled, "the operating system has no randomness");
    our_hello_ = make_frame(options_.link.version, kHelloType, hello);
    queue(our_hello_);
    deadline_ = loop_.after(options_.deadline_ns, [this] {
      auto self = shared_from_this();
      end(error(Errc::kTimeout, "no complete authentication in time"));
    });
    loop_.defer([self = shared_from_this()] { self->advance(); });
  }

  void abandon() {
    done_called_ = true;
    loop_.cancel(std::exchange(deadline_, 0));
    if (stream_) stream_->close();
  }

 private:
  enum class Expect : std::uint8_t { kHello, kProof, kRings, kProbe, kNothing };

  void queue(std::span<const std::byte> frame) { out_.insert(out_.end(), frame.begin(), frame.end()); }
  void advance();
  bool write_some();
  bool read_some();
  Status on_header() const;
  Status on_hello();
  Status on_proof();
  Status on_rings();
  void offer_rings();
  void queue_rings(std::uint64_t capacity, std::uint8_t fds);
  void queue_probe();
  Status on_probe();
  void finish();
  Token::Mac mac(std::string_view label) const;
  void end(Result<std::unique_ptr<Link>> result);
  std::size_t expected_bytes() const {
    return expect_ == Expect::kHello   ? sizeof(HelloFrame)
           : expect_ == Expect::kProof ? sizeof(ProofFrame)
           : expect_ == Expect::kRings ? sizeof(RingsFrame)
                                       : kFrameHeaderBytes + kPathProbeBytes;
  }
  std::uint16_t expected_type() const {
    return expect_ == Expect::kHello   ? kHelloType
           : expect_ == Expect::kProof ? kProofType
           : expect_ == Expect::kRings ? kRingsType
                                       : kProbeType;
  }

  EventLoop& loop_;
  std::unique_ptr<ByteStream> stream_;
  Role role_;
  HandshakeOptions options_;
  Done done_;
  TimerId deadline_ = 0;
  bool done_called_ = false;
  Expect expect_ = Expect::kHello;
  HelloFrame our_hello_{}, their_hello_{};
  std::vector<std::byte> out_;
  std::vector<std::byte> in_ = std::vector<std::byte>(std::max(sizeof(HelloFrame), sizeof(ProofFrame)));
  std::size_t have_ = 0;
  std::vector<UniqueFd> out_fds_, in_fds_;
  std::optional<SharedRings> rings_;
};

// Writes and reads until one of them has to wait. Each helper returns false when there is nothing more to
// do now.
void Handshake::Core::advance() {
  auto self = shared_from_this();
  while (!done_called_) {
    if (!out_.empty()) {
      if (!write_some()) return;
    } else if (expect_ == Expect::kNothing) {
      return finish();
    } else if (!read_some()) {
      return;
    }
  }
}

void Handshake::Core::finish() {
  if (rings_) {
    stream_ = make_ring_stream(loop_, std::move(stream_), std::move(*rings_), role_ == Role::kConnector);
  }
  Token::Mac secret = mac("tilewise cookie");
  Cookie cookie;
  std::copy_n(secret.begin(), cookie.size(), cookie.begin());
  end(Link::adopt(loop_, std::move(stream_), cookie, options_.link));
}

bool Handshake::Core::write_some() {
  ByteStream::Piece piece(out_);
  auto written = stream_->try_write({&piece, 1}, out_fds_);
  if (!written) {
    end(written.error());
    return false;
  }
  out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(*written));
  if (*written > 0) {
    out_fds_.clear();
    return true;
  }
  stream_->wait_writable([this] { advance(); });
  return false;
}

bool Handshake::Core::read_some() {
  // The header first: a peer of another version may send a longer or shorter hello.
  std::size_t until = have_ < kFrameHeaderBytes ? kFrameHeaderBytes : expected_bytes();
  auto got = stream_->try_read(std::span(in_).subspan(have_, until - have_), in_fds_);
  if (!got) {
    // The peer tells a failure by closing; before its hello it may just have been too busy.
    Errc code = expect_ == Expect::kProof ? Errc::kUnauthenticated : got.error().code;
    end(error(code, got.error().message + " during authentication" +
                        (expect_ == Expect::kProof ? " (is the token the same on both sides?)" : "")));
    return false;
  }
  if (*got == 0) {
    stream_->wait_readable([this] { advance(); });
    return false;
  }
  have_ += *got;
  Status status;
  const bool rings_come = expect_ == Expect::kRings && role_ == Role::kAcceptor;
  if (in_fds_.size() > (rings_come ? 1 : 0)) {
    status = error(Errc::kUnauthenticated, "descriptors came during authentication");
  } else if (have_ == kFrameHeaderBytes) {
    status = on_header();
  } else if (have_ == expected_bytes()) {
    have_ = 0;
    status = expect_ == Expect::kHello   ? on_hello()
             : expect_ == Expect::kProof ? on_proof()
             : expect_ == Expect::kRings ? on_rings()
                                         : on_probe();
  }
  if (!status) end(status.error());
  return !done_called_;
}

Status Handshake::Core::on_header() const {
  auto header = FrameHeader::decode(std::span(in_).first<kFrameHeaderBytes>(), options_.link.version,
                                    expected_bytes() - kFrameHeaderBytes);
  if (!header && header.error().code == Errc::kVersionMismatch) return header.error();
  if (!header) return error(Errc::kUnauthenticated, "no valid handshake: " + header.error().message);
  bool fits = header->payload_bytes == expected_bytes() - kFrameHeaderBytes &&
              header->fds == in_fds_.size() && header->type == expected_type();
  if (!fits) return error(Errc::kUnauthenticated, "no valid handshake: an unexpected frame");
  return {};
}

Status Handshake::Core::on_hello() {
  std::copy_n(in_.begin(), their_hello_.size(), their_hello_.begin());
  Hello theirs;
  std::memcpy(&theirs, their_hello_.data() + kFrameHeaderBytes, sizeof(theirs));
  bool own_nonce =
      std::equal(theirs.nonce.begin(), theirs.nonce.end(), our_hello_.begin() + kFrameHeaderBytes);
  if (theirs.role != other(role_) || own_nonce) {
    return error(Errc::kUnauthenticated, "no valid handshake: the peer claims our role or nonce");
  }
  if (theirs.shares == 0) options_.ring_bytes = 0;
  if (theirs.probes == 0) options_.probes_path = false;
  expect_ = Expect::kProof;
  if (role_ == Role::kConnector) {
    queue(make_frame(options_.link.version, kProofType, mac("tilewise connector proof")));
  }
  return {};
}

Status Handshake::Core::on_proof() {
  bool connector = role_ == Role::kConnector;
  Token::Mac right = mac(connector ? "tilewise acceptor proof" : "tilewise connector proof");
  if (!equal_secrets(right, std::span(in_).subspan(kFrameHeaderBytes, right.size()))) {
    return error(Errc::kUnauthenticated, "the peer does not hold this cluster's token");
  }
  if (!connector) queue(make_frame(options_.link.version, kProofType, mac("tilewise acceptor proof")));
  expect_ = options_.ring_bytes > 0 ? Expect::kRings
            : options_.probes_path  ? Expect::kProbe
                                    : Expect::kNothing;
  if (connector && expect_ == Expect::kRings) offer_rings();
  if (connector && expect_ == Expect::kProbe) queue_probe();
  if (expect_ == Expect::kProbe) in_.resize(expected_bytes());
  return {};
}

// ---- large packets, after both have proven themselves ----

void Handshake::Core::queue_probe() {
  queue(FrameHeader{.version = options_.link.version, .type = kProbeType, .payload_bytes = kPathProbeBytes}
            .encode());
  out_.resize(out_.size() + kPathProbeBytes);
}

Status Handshake::Core::on_probe() {
  expect_ = Expect::kNothing;
  if (role_ == Role::kAcceptor) queue_probe();
  return {};
}

// ---- shared memory, after both have proven themselves ----

void Handshake::Core::queue_rings(std::uint64_t capacity, std::uint8_t fds) {
  RingsFrame frame = make_frame(options_.link.version, kRingsType, capacity);
  const FrameHeader header{
      .version = options_.link.version, .type = kRingsType, .payload_bytes = sizeof(capacity), .fds = fds};
  std::ranges::copy(header.encode(), frame.begin());
  queue(frame);
}

void Handshake::Core::offer_rings() {
  auto rings = SharedRings::create(options_.ring_bytes);
  auto memfd = rings ? duplicate(rings->memfd()) : Result<UniqueFd>(rings.error());
  if (!memfd) return queue_rings(0, 0);
  rings_.emplace(std::move(*rings));
  out_fds_.push_back(std::move(*memfd));
  queue_rings(rings_->capacity(), 1);
}

Status Handshake::Core::on_rings() {
  expect_ = Expect::kNothing;
  std::uint64_t capacity = 0;
  std::memcpy(&capacity, in_.data() + kFrameHeaderBytes, sizeof(capacity));
  if (role_ == Role::kConnector) {
    if (capacity == 0) {
      rings_.reset();
    } else if (!rings_ || capacity != rings_->capacity()) {
      return error(Errc::kCorruptData, "the peer took memory that it was not given");
    }
    return {};
  }
  if (in_fds_.empty()) {
    if (capacity != 0) return error(Errc::kCorruptData, "the peer announced memory that did not come");
  } else {
    // Memory that does not fit ends the link: a peer that hands it over is broken. No room to map it does not.
    auto rings = SharedRings::import(std::move(in_fds_.front()), capacity);
    in_fds_.clear();
    if (rings) {
      rings_.emplace(std::move(*rings));
    } else if (rings.error().code == Errc::kCorruptData) {
      return rings.error();
    }
  }
  queue_rings(rings_ ? capacity : 0, 0);
  return {};
}

Token::Mac Handshake::Core::mac(std::string_view label) const {
  bool connector = role_ == Role::kConnector;
  std::span<const std::byte> pieces[] = {text_bytes(label), connector ? our_hello_ : their_hello_,
                                         connector ? their_hello_ : our_hello_};
  return options_.token.hmac(pieces);
}

void Handshake::Core::end(Result<std::unique_ptr<Link>> result) {
  if (done_called_) return;
  abandon();
  Done done = std::move(done_);  // may destroy the Handshake
  done(std::move(result));
}

Handshake::Handshake(std::shared_ptr<Core> core) : core_(std::move(core)) {}
Handshake::~Handshake() { core_->abandon(); }

std::unique_ptr<Handshake> Handshake::start(EventLoop& loop, std::unique_ptr<ByteStream> stream, Role role,
                                            const HandshakeOptions& options, Done done) {
  auto core = std::make_shared<Core>(loop, std::move(stream), role, options, std::move(done));
  core->begin();
  return std::unique_ptr<Handshake>(new Handshake(std::move(core)));
}

}  // namespace tilewise::net
