#include <tilewise/codec/codec.h>
#include <tilewise/courier/courier.h>

#include <algorithm>
#include <limits>

namespace tilewise::courier {
namespace {

constexpr TimeNs kFirstRetryNs = 50 * kMillisecond, kLastRetryNs = kSecond;
constexpr TimeNs kLongestBeatNs = kSecond;
// A scheduler is missed later than anybody else: who leaves one that was merely stopped is lost when it goes on.
constexpr int kSilences = 3;
constexpr TimeNs kNever = std::numeric_limits<TimeNs>::max();

}  // namespace

Courier::Courier(net::EventLoop& loop, Options options, Handlers handlers, std::unique_ptr<net::Link> link)
    : loop_(loop),
      options_(std::move(options)),
      handlers_(std::move(handlers)),
      beat_ns_(std::clamp<TimeNs>(options_.silence_ns / 8, kMillisecond, kLongestBeatNs)),
      up_since_(monotonic_now()) {
  start(std::move(link));
}

Courier::~Courier() {
  if (timer_ != 0) loop_.cancel(timer_);
  if (beat_ != 0) loop_.cancel(beat_);
}

void Courier::start(std::unique_ptr<net::Link> link) {
  link_ = std::move(link);
  link_->start(
      {[this](net::Frame& frame) { on_frame(frame); }, [this](const Error& why) { on_close(why); }, {}});
}

TimeNs Courier::patience_left(TimeNs since, TimeNs patience_ns, TimeNs now) const {
  return up_since_ > now ? patience_ns : std::max(since, up_since_) + patience_ns - now;
}

// ---- sending -------------------------------------------------------------------------------------------------------

Status Courier::send(std::uint16_t type, std::span<const std::byte> bytes) {
  if (lost_) return error(Errc::kUnavailable, "the scheduler is gone");
  if (keeps_ && !sent_.push(type, bytes)) {
    return error(Errc::kLimitExceeded, std::to_string(sent_.messages().size()) + " messages of " +
                                           std::to_string(sent_.bytes()) +
                                           " bytes wait for the scheduler, the limit");
  }
  if (!link_ || resuming_) return {};
  const Status sent = link_->send(type, bytes);
  if (sent || state_ == 0) return sent;
  // It cannot take more: kept, and sent again when there is a link that can.
  later([this, why = sent.error()] {
    if (link_) down(why);
  });
  return {};
}

// At the end of this turn, if we are still there.
void Courier::later(std::function<void()> what) {
  loop_.defer([alive = std::weak_ptr<bool>(alive_), what = std::move(what)] {
    if (alive.lock()) what();
  });
}

void Courier::flush() {
  if (link_) link_->flush();
}

Status Courier::write(const msg::Message& message) {
  codec::Buffer buffer;
  TW_TRY(codec::encode(message, buffer));
  return link_->send(codec::frame_type(message), buffer.bytes());
}

// ---- receiving -----------------------------------------------------------------------------------------------------

void Courier::on_frame(const net::Frame& frame) {
  if (lost_) return;
  auto message = codec::decode(frame.payload);
  if (!message)
    return lose(
        error(message.error().code, "the scheduler sent what cannot be read: " + message.error().message));
  if (const auto* resumed = std::get_if<msg::Resumed>(&*message)) return on_resumed(*resumed);
  if (resuming_)
    return lose(error(Errc::kCorruptData, "the scheduler sent a " + std::string(msg::name_of(*message)) +
                                              " before it said how far it is"));
  if (const auto* ack = std::get_if<msg::Ack>(&*message)) {
    if (!sent_.acknowledge(ack->received))
      lose(error(Errc::kCorruptData, "the scheduler acknowledges what was never sent"));
    return;
  }
  received_.add(frame.payload.size());
  if (const auto* welcome = std::get_if<msg::Welcome>(&*message); welcome != nullptr && !me_) {
    me_ = welcome->you;
    state_ = welcome->state;
    durable_ = welcome->durable;
    term_ = welcome->term;
    keeps_ = state_ != 0;
    if (!keeps_) sent_ = {};
    if (beat_ == 0) beat_ = loop_.after(beat_ns_, [this] { beat(); });
  }
  if (std::holds_alternative<msg::Shutdown>(*message)) state_ = 0;  // it will not be back
  if (state_ != 0 && received_.due()) {
    received_.told();
    (void)write(msg::Ack{received_.total()});  // a link that cannot take it is about to close
  }
  handlers_.on_message(std::move(*message));
}

// A host that vanishes closes nothing, nor does a process that is stopped.
void Courier::beat() {
  beat_ = loop_.after(beat_ns_, [this] { beat(); });
  const TimeNs now = monotonic_now();
  // Who has been busy elsewhere has not read what may be there.
  const bool late = now - std::exchange(beat_at_, now) > 3 * beat_ns_;
  if (lost_ || !link_) return;
  if (resuming_) {
    if (now >= resumed_by_ && !late)
      down(error(Errc::kTimeout, "it proved who it is and did not say how far it is"));
    return;
  }
  const TimeNs silent = now - std::max(link_->last_receive_ns(), up_since_);
  if (silent >= kSilences * options_.silence_ns && !late) {
    const Error why =
        error(Errc::kTimeout, "nothing was heard from it for " +
                                  std::to_string(static_cast<double>(silent / kMillisecond) / 1e3) + " s");
    return state_ == 0 ? lose(why) : down(why);
  }
  if (silent < 2 * beat_ns_) return;
  codec::Buffer buffer;
  const msg::Message ping = msg::Ping{0};
  if (codec::encode(ping, buffer)) (void)send(codec::frame_type(ping), buffer.bytes());
}

// ---- breaks --------------------------------------------------------------------------------------------------------

void Courier::on_close(const Error& why) {
  if (lost_) return;
  if (state_ == 0) return lose(why);
  down(why);
}

void Courier::down(const Error& why) {
  const bool first = !resuming_;
  link_.reset();
  resuming_ = false;
  if (first) {
    up_since_ = kNever;
    patience_ns_ = durable_ ? options_.reconnect_ns : options_.lease_ns;
    give_up_at_ = monotonic_now() + patience_ns_;
    retry_ns_ = kFirstRetryNs;
    if (handlers_.on_down) handlers_.on_down(why);
  }
  retry(why);
}

void Courier::retry(const Error& why) {
  if (lost_) return;
  if (monotonic_now() + retry_ns_ > give_up_at_) {
    return lose(error(Errc::kUnavailable, "it did not come back within " +
                                              std::to_string(patience_ns_ / kSecond) + " s: " + why.message));
  }
  timer_ = loop_.after(retry_ns_, [this] {
    timer_ = 0;
    attempt();
  });
  retry_ns_ = std::min(2 * retry_ns_, kLastRetryNs);
}

void Courier::attempt() {
  net::HandshakeOptions handshake{.token = options_.token, .silence_ns = options_.silence_ns};
  handshake.deadline_ns = std::clamp<TimeNs>(give_up_at_ - monotonic_now(), kFirstRetryNs, 5 * kSecond);
  attempt_ = net::connect(loop_, options_.scheduler, handshake,
                          [this](Result<std::unique_ptr<net::Link>> link) { on_connected(std::move(link)); });
}

void Courier::on_connected(Result<std::unique_ptr<net::Link>> link) {
  if (lost_) return;
  // Whatever it is may be a scheduler that dies in the middle of the handshake, or a way that is broken.
  if (!link) return retry(link.error());
  resuming_ = true;
  // As long as a silence is borne, but not beyond the time it has to come back by more than one attempt's.
  const TimeNs now = monotonic_now(), left = std::max(give_up_at_ - now, options_.silence_ns);
  resumed_by_ = now + std::min(kSilences * options_.silence_ns, left);
  start(std::move(*link));
  if (const Status sent = write(msg::Resume{state_, me_, received_.total(), term_}); !sent)
    down(sent.error());
}

void Courier::on_resumed(const msg::Resumed& resumed) {
  if (!resuming_) return lose(error(Errc::kCorruptData, "the scheduler resumes what was not broken"));
  if (resumed.term < term_)  // it slept while another one took over
    return down(error(Errc::kUnavailable, "a scheduler of an earlier life answers there"));
  if (!resumed.refused.ok())
    return lose({resumed.refused.code, "it does not take us back: " + resumed.refused.message});
  if (resumed.received < sent_.first()) {
    // Another one, from a copy of the same state, had them.
    return lose(error(Errc::kCorruptData, "the scheduler has " + std::to_string(resumed.received) +
                                              " of our messages, and acknowledged " +
                                              std::to_string(sent_.first())));
  }
  if (!sent_.acknowledge(resumed.received))
    return lose(error(Errc::kCorruptData, "the scheduler acknowledges what was never sent"));
  term_ = resumed.term;
  resuming_ = false;
  received_.told();
  up_since_ = monotonic_now();
  for (const Outstanding::Message& message : sent_.messages()) {
    const Status sent = link_->send(message.type, std::as_bytes(std::span(message.bytes)));
    if (sent) continue;
    return later([this, why = sent.error()] {
      if (link_ && !lost_) down(why);
    });
  }
  if (handlers_.on_back) handlers_.on_back(term_);
}

void Courier::lose(Error why) {
  if (std::exchange(lost_, true)) return;
  up_since_ = kNever;
  // Not now: we may be inside the link, or in a call.
  later([this, why = std::move(why)] { handlers_.on_lost(why); });
}

}  // namespace tilewise::courier
