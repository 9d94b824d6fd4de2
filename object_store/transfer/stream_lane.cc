#include "stream_lane.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

namespace tilewise::transfer {

namespace {

using Kind = LaneWord::Kind;

constexpr std::size_t kBufferBytes = 64 << 10;
constexpr std::size_t kCallBytes = 1 << 20;  // of one system call: more would only leave the cache
constexpr std::size_t kTurnBytes = 8 << 20;  // each way, then others have their turn
constexpr std::size_t kPullBytes = 512 << 10;
constexpr TimeNs kTellEach = 200 * kMillisecond;  // that a block is being read
constexpr std::size_t kMostOutgoing = 256 << 10;  // more than blocks can be under way, and words of them
constexpr std::uint64_t kMaxBlockBytes = std::uint64_t{1} << 46;

// Bytes read, at least one; or errno.
struct Peeked {
  std::size_t bytes = 0;
  int errnum = 0;
};
Peeked read_of(pid_t process, std::uint64_t place, std::span<std::byte> into) {
  const iovec here{into.data(), into.size()};
  const iovec there{std::bit_cast<void*>(static_cast<std::uintptr_t>(place)), into.size()};
  for (;;) {
    const ssize_t got = ::process_vm_readv(process, &here, 1, &there, 1, 0);
    if (got > 0) return {static_cast<std::size_t>(got), 0};
    if (got == 0) return {0, EFAULT};
    if (errno != EINTR) return {0, errno};
  }
}

}  // namespace

Cookie random_cookie() {
  std::random_device random;
  Cookie cookie;
  for (std::byte& byte : cookie) byte = static_cast<std::byte>(random());
  return cookie;
}

StreamLane::StreamLane(std::unique_ptr<net::ByteStream> stream, bool dialled, Handlers handlers,
                       bool in_place)
    : stream_(std::move(stream)),
      handlers_(std::move(handlers)),
      proof_(random_cookie()),
      buffer_(kBufferBytes),
      in_place_(in_place && stream_->can_pass_fds()),  // else it is not of this host
      may_write_(dialled) {
  if (!in_place_) peer_reads_ = false;
  stream_->wait_readable([this] { read(); });
  LaneWord first{.block = {.cookie = proof_}};
  if (in_place_) first.place = std::bit_cast<std::uintptr_t>(proof_.data());
  add({first});
}

StreamLane::~StreamLane() { stream_->close(); }

void StreamLane::broke(const Error& why) {
  if (std::exchange(broken_, true)) return;
  stream_->close();
  outgoing_.clear();
  lent_.clear();
  incoming_.reset();
  if (!pulling_) pulls_.clear();
  handlers_.on_broken(why);
}

// ---- sending ----------------------------------------------------------------------------------------------

void StreamLane::send(const BlockHeader& block, const std::byte* from) {
  add({{.kind = Kind::kBlock, .block = block}, from});
}

void StreamLane::send(const BlockHeader& block, Source& from) {
  add({{.kind = Kind::kBlock, .block = block}, nullptr, &from});
}

void StreamLane::add(Outgoing out) {
  outgoing_.push_back(out);
  if (!write_waits_) write();
}

// Before blocks of which nothing is written.
void StreamLane::say(Kind kind, const BlockHeader& block) {
  if (broken_) return;
  const auto before = std::find_if(outgoing_.begin(), outgoing_.end(),
                                   [](const Outgoing& out) { return out.written == 0 && out.is_block(); });
  outgoing_.insert(before, {{.kind = kind, .block = block}});
  if (outgoing_.size() > kMostOutgoing)
    return broke(error(Errc::kLimitExceeded, "a peer that says much and does not listen"));
  if (!write_waits_) write();
}

// From inside one of the three it is said for when that has ended.
void StreamLane::resume() {
  if (writing_ || reading_ || pulling_) {
    resumed_ = true;
    return;
  }
  if (!write_waits_) write();
  if (std::exchange(no_room_, false)) read();
  if (!pulls_.empty() && !broken_) handlers_.on_pull();
}

// What of the payload is there and has not been written.
Result<std::span<const std::byte>> StreamLane::rest_of(const Outgoing& out) const {
  if (out.payload() == 0) return std::span<const std::byte>();
  if (out.source != nullptr) return out.source->next();
  const std::size_t written = out.written - std::min(out.written, sizeof out.word);
  return std::span(out.from + written, out.payload() - written);
}

// Those of which nothing has been sent yet: the stream goes on without them.
void StreamLane::refuse_failed() {
  for (auto out = outgoing_.begin(); out != outgoing_.end();) {
    const auto rest = rest_of(*out);
    if (rest || out->written > 0) {
      ++out;
      continue;
    }
    const BlockHeader block = out->word.block;
    out = outgoing_.erase(out);
    handlers_.on_refused(block, rest.error());
  }
}

// Its bytes are there, and it is known how they go.
bool StreamLane::is_ready(const Outgoing& out) const {
  if (out.may_be_read() && !peer_reads_) return false;
  return out.payload() == 0 || !rest_of(out)->empty();
}

// What has begun has to be finished. What has not lets others go first until it is ready.
void StreamLane::put_ready_first() {
  if (outgoing_.empty() || outgoing_.front().written > 0) return;
  const auto ready =
      std::find_if(outgoing_.begin(), outgoing_.end(), [this](const Outgoing& out) { return is_ready(out); });
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
    if (block->written == 0 && !is_ready(*block)) break;
    if (block->may_be_read() && *peer_reads_) {
      block->word.kind = Kind::kInPlace;
      block->word.place = std::bit_cast<std::uintptr_t>(block->from);
    }
    const std::size_t begun = std::min(block->written, sizeof block->word);
    const std::size_t missing = block->payload() - (block->written - begun);
    TW_ASSIGN(const auto rest, rest_of(*block));
    add(reinterpret_cast<const std::byte*>(&block->word) + begun, sizeof block->word - begun);
    add(rest.data(), rest.size());
    if (rest.size() < missing || out.bytes == kCallBytes) break;
  }
  return {};
}

bool StreamLane::withdraw(const BlockHeader& block) {
  const auto at = std::find_if(outgoing_.begin(), outgoing_.end(), [&](const Outgoing& out) {
    return out.is_block() && out.word.block == block;
  });
  if (at == outgoing_.end()) return !lent_at(block);
  if (at->written > 0) return false;
  outgoing_.erase(at);
  return true;
}

std::optional<TimeNs> StreamLane::lent_at(const BlockHeader& block) const {
  const auto at = std::find_if(lent_.begin(), lent_.end(), [&](const Lent& l) { return l.block == block; });
  return at == lent_.end() ? std::nullopt : std::optional(at->moved_at);
}

TimeNs StreamLane::received_at(const BlockHeader& block) const {
  if (incoming_ && incoming_->block == block) return read_at_;
  const auto at =
      std::find_if(pulls_.begin(), pulls_.end(), [&](const Incoming& in) { return in.block == block; });
  return at == pulls_.end() ? 0 : at->moved_at;
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
  if (!reading_ && !pulling_ && std::exchange(resumed_, false)) resume();
}

void StreamLane::consume(std::size_t bytes) {
  while (!outgoing_.empty() && !broken_) {
    Outgoing& out = outgoing_.front();
    const std::size_t whole = sizeof out.word + out.payload();
    const std::size_t some = std::min(bytes, whole - out.written);
    const std::size_t word_left = sizeof out.word - std::min(out.written, sizeof out.word);
    out.written += some;
    bytes -= some;
    if (out.source != nullptr && some > word_left) out.source->sent(some - word_left);
    if (out.written < whole) return;
    const Outgoing done = out;
    outgoing_.pop_front();
    if (done.word.kind == Kind::kBlock) handlers_.on_sent(done.word.block, via());
    if (done.word.kind == Kind::kInPlace) lent_.push_back({done.word.block, done.from});
  }
}

// The peer reads a block where it lies, is through with it, or cannot read it.
Status StreamLane::hear_of_lent(const LaneWord& word) {
  const auto at =
      std::find_if(lent_.begin(), lent_.end(), [&](const Lent& l) { return l.block == word.block; });
  if (at == lent_.end()) return error(Errc::kCorruptData, "word of a block that was not sent");
  wrote_at_ = at->moved_at = monotonic_now();
  if (word.kind == Kind::kReading) return {};
  const Lent lent = *at;
  lent_.erase(at);
  if (word.kind == Kind::kTaken) {
    handlers_.on_sent(lent.block, Via::kSharedMemory);
  } else {
    peer_reads_ = false;
    add({{.kind = Kind::kBlock, .block = lent.block}, lent.from});
  }
  return {};
}

// ---- receiving --------------------------------------------------------------------------------------------

std::optional<std::span<std::byte>> StreamLane::Incoming::room() {
  if (!to || unwanted) return std::nullopt;
  if (to->sink == nullptr) return std::span(to->memory, static_cast<std::size_t>(left));
  const auto room = to->sink->room();
  unwanted = !room;
  if (unwanted) return room;
  return room->first(static_cast<std::size_t>(std::min<std::uint64_t>(room->size(), left)));
}

void StreamLane::Incoming::came(std::size_t bytes) {
  left -= bytes;
  place += bytes;
  if (to->sink != nullptr)
    to->sink->came(bytes);
  else
    to->memory += bytes;
}

void StreamLane::drop(const BlockHeader& block) {
  if (incoming_ && incoming_->block == block) {
    incoming_->to.reset();
    if (std::exchange(no_room_, false)) read();
  } else if (remove_pull(block)) {
    say(Kind::kTaken, block);
  }
}

void StreamLane::read() {
  if (broken_ || std::exchange(reading_, true)) return;
  if (read_some()) stream_->wait_readable([this] { read(); });
  reading_ = false;
  if (!writing_ && std::exchange(resumed_, false)) resume();
}

// False: the lane has broken, or its sink has no room.
bool StreamLane::read_some() {
  pulled_ = 0;
  std::vector<net::UniqueFd> fds;  // those that come are closed
  for (std::size_t budget = kTurnBytes; budget > 0;) {
    if (!take_buffered()) return false;
    std::span<std::byte> space;
    bool in_place = incoming_ && incoming_->left >= kBufferBytes;
    if (in_place) {
      const auto place = incoming_->room();
      if (place && place->empty()) return no_room_ = true, false;
      in_place = place.has_value();
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
      incoming_->came(*got);
    else
      end_ += *got;
    read_at_ = monotonic_now();
    budget -= std::min(budget, *got);
  }
  return take_buffered();
}

// All that has come, up to a word or a block that is not whole. False: the lane has broken, or there is no room.
bool StreamLane::take_buffered() {
  for (;;) {
    if (broken_) return false;
    if (!incoming_) {
      if (end_ - begin_ < sizeof(LaneWord)) return true;
      LaneWord word;
      std::memcpy(&word, buffer_.data() + begin_, sizeof word);
      begin_ += sizeof word;
      if (!take_word(word)) return false;
      if (!incoming_) continue;
    }
    if (!take_payload()) return no_room_ = true, false;
    if (incoming_->left > 0) return true;
    const Incoming whole = *incoming_;
    incoming_.reset();
    if (whole.to) handlers_.on_received(whole.block, via());
  }
}

// False: the lane has broken.
bool StreamLane::take_word(const LaneWord& word) {
  Status ok;
  if (word.kind == Kind::kBegin || !began_) {
    ok = begin(word);
  } else if (word.block.bytes > kMaxBlockBytes) {
    ok = error(Errc::kCorruptData, "a block of " + std::to_string(word.block.bytes) + " bytes");
  } else {
    switch (word.kind) {
      case Kind::kBegin: break;
      case Kind::kReads:
      case Kind::kCopies:
        peer_reads_ = in_place_ && word.kind == Kind::kReads;
        if (!write_waits_) write();
        break;
      case Kind::kBlock:
        incoming_ =
            Incoming{.block = word.block, .to = handlers_.on_header(word.block), .left = word.block.bytes};
        break;
      case Kind::kInPlace: ok = take_place(word); break;
      case Kind::kReading:
      case Kind::kTaken:
      case Kind::kSendIt: ok = hear_of_lent(word); break;
      default:
        ok = error(Errc::kCorruptData,
                   "word of kind " + std::to_string(static_cast<std::uint32_t>(word.kind)) + " of a lane");
    }
  }
  if (!ok) broke(ok.error());
  return !broken_;
}

Status StreamLane::begin(const LaneWord& word) {
  if (word.kind != Kind::kBegin || std::exchange(began_, true))
    return error(Errc::kCorruptData, "a lane that does not begin as one");
  const std::optional<pid_t> process = stream_->peer_process();
  Cookie found{};
  // Somebody else's memory has other bytes there: the peer may be in another namespace, or not the one that began to listen.
  if (in_place_ && word.place != 0 && process && read_of(*process, word.place, found).bytes == found.size() &&
      found == word.block.cookie)
    peer_ = process;
  may_write_ = true;
  if (word.place != 0) say(peer_ ? Kind::kReads : Kind::kCopies, {});
  if (!write_waits_) write();
  return {};
}

// What has been buffered of it. False: there is no room.
bool StreamLane::take_payload() {
  while (incoming_->left > 0 && begin_ < end_) {
    std::size_t some = static_cast<std::size_t>(std::min<std::uint64_t>(incoming_->left, end_ - begin_));
    const auto place = incoming_->room();
    if (!place) {
      incoming_->left -= some;
      begin_ += some;
      continue;
    }
    if (place->empty()) return false;
    some = std::min(some, place->size());
    std::memcpy(place->data(), buffer_.data() + begin_, some);
    begin_ += some;
    incoming_->came(some);
  }
  return true;
}

// ---- reading the peer's memory ----------------------------------------------------------------------------

Status StreamLane::take_place(const LaneWord& word) {
  if (!peer_ || word.place == 0 || word.block.bytes == 0)
    return error(Errc::kCorruptData, "a block to be read in memory that was not shown");
  const auto to = handlers_.on_header(word.block);
  if (!to) {
    say(Kind::kTaken, word.block);
    return {};
  }
  pulls_.push_back({.block = word.block, .to = to, .left = word.block.bytes, .place = word.place});
  if (pulls_.size() == 1 && pulled_ < kTurnBytes) pull();
  if (!pulls_.empty() && !broken_) handlers_.on_pull();
  return {};
}

bool StreamLane::pull() {
  if (broken_ || std::exchange(pulling_, true)) return false;
  bool moved = false;
  for (std::size_t i = 0; i < pulls_.size() && !moved && !broken_; ++i) moved = pull_from(pulls_[i]);
  pulling_ = false;
  if (broken_) pulls_.clear();
  if (!writing_ && !reading_ && std::exchange(resumed_, false)) resume();
  return moved;
}

// False: there is no room for it.
bool StreamLane::pull_from(Incoming& in) {
  const BlockHeader block = in.block;
  const auto space = in.room();
  if (!space) {
    end_pull(block);
    return true;
  }
  if (space->empty()) return false;
  const Peeked got = read_of(*peer_, in.place, space->first(std::min(space->size(), kPullBytes)));
  if (got.errnum == ESRCH || (got.errnum != 0 && in.to->sink != nullptr)) {
    broke(error(Errc::kUnavailable, std::string("reading the peer's memory: ") + std::strerror(got.errnum)));
  } else if (got.errnum != 0) {
    remove_pull(block);
    handlers_.on_put_back(block);
    say(Kind::kSendIt, block);
  } else {
    in.came(got.bytes);
    pulled_ += got.bytes;
    read_at_ = in.moved_at = monotonic_now();
    if (in.left == 0) {
      end_pull(block);
    } else if (in.moved_at - in.told_at >= kTellEach) {
      if (std::exchange(in.told_at, in.moved_at) != 0) say(Kind::kReading, block);
    }
  }
  return true;
}

bool StreamLane::remove_pull(const BlockHeader& block) {
  return std::erase_if(pulls_, [&](const Incoming& in) { return in.block == block; }) > 0;
}

void StreamLane::end_pull(BlockHeader block) {
  // What was read is what was meant only if the peer's memory was still what it said it was.
  if (stream_->peer_closed()) return broke(error(Errc::kUnavailable, net::ByteStream::kEndOfStream));
  remove_pull(block);
  handlers_.on_received(block, Via::kSharedMemory);
  say(Kind::kTaken, block);
}

}  // namespace tilewise::transfer
