#include <tilewise/base/check.h>
#include <tilewise/net/handshake.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tilewise::net {
namespace {

constexpr std::uint16_t kHelloType = kFirstReservedType;
constexpr std::uint16_t kProofType = kFirstReservedType + 1;

struct Hello {
  std::array<std::byte, 32> nonce;
  Role role;
  std::array<std::byte, 7> zeros{};
};
static_assert(sizeof(Hello) == 40 && alignof(Hello) == 1, "sent as it lies in memory");

using HelloFrame = std::array<std::byte, kFrameHeaderBytes + sizeof(Hello)>;
using ProofFrame = std::array<std::byte, kFrameHeaderBytes + sizeof(Token::Mac)>;
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
    Hello hello{.role = role_};
    TW_CHECK(fill_random(hello.nonce), "the operating system has no randomness");
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
  enum class Expect : std::uint8_t { kHello, kProof, kNothing };

  void queue(std::span<const std::byte> frame) { out_.insert(out_.end(), frame.begin(), frame.end()); }
  void advance();
  bool write_some();
  bool read_some();
  Status on_header() const;
  Status on_hello();
  Status on_proof();
  Token::Mac mac(std::string_view label) const;
  void end(Result<std::unique_ptr<Link>> result);
  std::size_t expected_bytes() const {
    return expect_ == Expect::kHello ? sizeof(HelloFrame) : sizeof(ProofFrame);
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
  std::array<std::byte, std::max(sizeof(HelloFrame), sizeof(ProofFrame))> in_{};
  std::size_t have_ = 0;
};

// Writes and reads until one of them has to wait. Each helper returns false when there is nothing more to
// do now.
void Handshake::Core::advance() {
  auto self = shared_from_this();
  while (!done_called_) {
    if (!out_.empty()) {
      if (!write_some()) return;
    } else if (expect_ == Expect::kNothing) {
      Token::Mac secret = mac("tilewise cookie");
      Cookie cookie;
      std::copy_n(secret.begin(), cookie.size(), cookie.begin());
      return end(Link::adopt(loop_, std::move(stream_), cookie, options_.link));
    } else if (!read_some()) {
      return;
    }
  }
}

bool Handshake::Core::write_some() {
  ByteStream::Piece piece(out_);
  auto written = stream_->try_write({&piece, 1}, {});
  if (!written) {
    end(written.error());
    return false;
  }
  out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(*written));
  if (*written > 0) return true;
  stream_->wait_writable([this] { advance(); });
  return false;
}

bool Handshake::Core::read_some() {
  // The header first: a peer of another version may send a longer or shorter hello.
  std::size_t until = have_ < kFrameHeaderBytes ? kFrameHeaderBytes : expected_bytes();
  std::vector<UniqueFd> fds;
  auto got = stream_->try_read(std::span(in_).subspan(have_, until - have_), fds);
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
  if (!fds.empty()) {
    status = error(Errc::kUnauthenticated, "descriptors came before authentication");
  } else if (have_ == kFrameHeaderBytes) {
    status = on_header();
  } else if (have_ == expected_bytes()) {
    have_ = 0;
    status = expect_ == Expect::kHello ? on_hello() : on_proof();
  }
  if (!status) end(status.error());
  return !done_called_;
}

Status Handshake::Core::on_header() const {
  auto header = FrameHeader::decode(std::span(in_).first<kFrameHeaderBytes>(), options_.link.version,
                                    expected_bytes() - kFrameHeaderBytes);
  if (!header && header.error().code == Errc::kVersionMismatch) return header.error();
  if (!header) return error(Errc::kUnauthenticated, "no valid handshake: " + header.error().message);
  bool fits = header->payload_bytes == expected_bytes() - kFrameHeaderBytes && header->fds == 0 &&
              header->type == (expect_ == Expect::kHello ? kHelloType : kProofType);
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
  expect_ = Expect::kNothing;
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
