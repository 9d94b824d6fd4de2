// Private. Eight sources: exchange.cc (the public face), channels.cc (links until they are a peer's), peers.cc
// (peers and what is sent to them), frames.cc (what they send), breaks.cc (links that are made again), relays.cc (links
// that go through a third process), lanes.cc (the copying lane), streams.cc (its connections).
//
// A channel is a link, from its making to its end; it belongs to a stranger until a hello has named its peer.
// Connector: the process with the lower id, or the one that does not listen. It says hello first, over TCP followed by a
// Resume, and so does the other. Each side that has both sent and received these sends an ArenaMap, then batches; so the
// first thing a peer hears after our hello is our ArenaMap.
#pragma once
#include <tilewise/base/check.h>
#include <tilewise/codec/codec.h>
#include <tilewise/courier/outstanding.h>
#include <tilewise/exchange/exchange.h>
#include <tilewise/transfer/mapped_slab.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "relays.h"

namespace tilewise::exchange {

using ChannelId = std::uint64_t;

// Before attempts to reach a peer again: each waits twice as long as the one before.
inline constexpr TimeNs kFirstPause = 100 * kMillisecond, kLastPause = kSecond;

struct Channel {
  std::unique_ptr<net::Link> link;
  WorkerId peer;  // none: a stranger's
  std::optional<msg::PeerHello>
      hello;  // what it said first: a stranger's may wait for its peer to be announced
  std::optional<msg::Resume> resume;  // over TCP what it said next
  net::TimerId deadline = 0;          // a stranger's
  bool streams = false;               // it becomes a data connection, or a way to somebody else
  bool tcp() const { return !link->can_pass_fds(); }
};

struct Receive {
  std::uint64_t transfer = 0;
  std::byte* to = nullptr;
  transfer::Sink* sink = nullptr;  // instead
  std::int64_t bytes = 0;
  device::Kind kind = device::Kind::kHost;
  Exchange::Done done;
  transfer::OnHeld on_held;
};

struct Peer {
  enum class State : std::uint8_t {
    kConnecting,  // we do
    kAwaiting,    // it does
    kGreeting,    // a link is there, its hello is not
    kUp,
    kFailed,  // told to the owner, who will say peer_lost
  };
  msg::PeerInfo info;
  bool dials = false;  // we connect, now and after breaks
  State state = State::kAwaiting;
  std::vector<net::Address> targets;  // where to connect, best first
  std::size_t next_target = 0;
  std::optional<Error> unauthenticated;  // of some target in this round
  std::unique_ptr<net::ConnectAttempt> attempt;
  ChannelId channel = 0;
  bool would_map = false;     // it and we are on one host and wish to read each other's memory
  bool maps = false;          // each of us reads the other's slabs in place
  bool ready = false;         // its first ArenaMap came
  bool data = false;          // the engine knows it, by `cookie`
  net::Cookie cookie{};       // of the link that it is up on, or was
  std::size_t announced = 0;  // of our slabs
  bool address_sent = false;
  std::size_t slabs = 0;                                     // of its own, mapped here
  std::deque<std::pair<msg::PeerBatch, std::size_t>> queue;  // with their approximate bytes
  std::size_t queued_bytes = 0;
  net::TimerId timer = 0;  // the deadline until it is ready, or until a broken link must have been made again
  net::TimerId retry = 0;
  // Of links that are made again (breaks.cc).
  bool resumes = false;          // its links are such
  std::uint64_t attempt_no = 0;  // of the connector's latest link, or the latest that we took
  courier::Outstanding sent;     // ArenaMaps and batches
  courier::Received received;    // likewise
  TimeNs pause_ns = 0;           // before the next attempt
  std::optional<Error> broken;   // why; until it is up again
  TimeNs give_up_at = 0;         // the end of the patience since something last arrived; 0: all is well
  bool ack_next = false;         // the first message of a link that was made again: the peer waits for a sign
  std::uint64_t breaks = 0;      // so far
  TimeNs back_at = 0;            // when it was up again
  bool cut_off = false;          // the patience is over; attempts go on
  std::deque<Receive> held;      // they begin when the link is there, or there again
  // Ways through a third process (relays.cc); only who dials has these.
  WorkerId via, last_relay;  // of the link there is, or was; asked last
  TimeNs sought_since = 0;   // that there is no link
  std::unique_ptr<Passage> passage, stream_passage;
  WorkerId stream_via, stream_trying;           // of the data connection there is, or was; of the attempt
  std::unique_ptr<net::ConnectAttempt> direct;  // beside a link that goes through another process
  net::TimerId direct_timer = 0;
  TimeNs direct_pause_ns = 0;
  std::size_t next_direct = 0;  // of `targets`
  // The connection for blocks (streams.cc); only who dials has these.
  std::optional<net::Address> trying, reached;  // the target of the attempt, of the link
  std::unique_ptr<net::ConnectAttempt> stream_attempt;
  std::unique_ptr<net::Link> stream_link;  // waits for its answer
  net::TimerId stream_timer = 0;           // before the next attempt, or the end of this one
  TimeNs stream_pause_ns = 0;
  bool had_stream = false;  // on either side

  bool owns(DeviceId device) const {
    return std::find(info.devices.begin(), info.devices.end(), device) != info.devices.end();
  }
  bool is_host(DeviceId device) const {  // one of its own
    const auto at = static_cast<std::size_t>(std::find(info.devices.begin(), info.devices.end(), device) -
                                             info.devices.begin());
    return at >= info.descriptions.size() ||
           info.descriptions[at].kind == static_cast<std::uint8_t>(device::Kind::kHost);
  }
};

// What is to pass through this process, and what does.
struct Relaying {
  WorkerId asker;
  std::unique_ptr<net::ConnectAttempt> target;
};
struct Relayed {
  WorkerId asker, to;
  std::unique_ptr<Splice> bytes;
};

struct OwnSlab {
  msg::SlabDesc desc;
  int memfd = -1;  // the device's; a GPU's slab has a handle instead
};

struct Exchange::Impl {
  net::EventLoop& loop;
  Options options;
  Callbacks callbacks;
  WorkerId self;
  bool listening = false;  // this process has addresses
  std::vector<std::unique_ptr<net::Listener>> listeners;
  std::map<ChannelId, Channel> channels;
  ChannelId last_channel = 0;
  std::map<WorkerId, std::unique_ptr<Peer>> peers;
  std::set<WorkerId> lost;  // bounded; ids rise, so the oldest go first
  std::map<WorkerId, std::pair<std::vector<DeviceId>, net::TimerId>> unmapping;
  std::map<WorkerId, std::shared_ptr<net::Fence>> fences;  // of who maps our memory, or whose we map
  std::vector<OwnSlab> slabs;                              // that may be lent
  std::map<std::pair<DeviceId, std::uint32_t>, std::shared_ptr<const transfer::MappedSlab>> mapped;
  std::map<std::pair<DeviceId, std::uint32_t>, std::int64_t> lent;  // bytes of peers' GPU slabs
  std::vector<std::byte> proof_memory;                              // UCX's, where the proof failed
  std::unique_ptr<transfer::UcxEngine> engine;
  std::array<bool, 2> proven{};  // by kind of memory
  std::unique_ptr<net::FdWatch> watch;
  net::TimerId tick = 0;
  bool driving = false;  // drive() is deferred
  codec::Buffer buffer;
  Counters counters;
  std::map<ChannelId, Relaying> relaying;  // for strangers
  std::map<std::uint64_t, Relayed> relayed;
  std::uint64_t last_relayed = 0;
  std::shared_ptr<char> alive = std::make_shared<char>();  // deferred functions look whether we still are

  Impl(net::EventLoop& l, Options o, Callbacks c) : loop(l), options(std::move(o)), callbacks(std::move(c)) {}
  ~Impl();
  void later(net::EventLoop::Fn fn);
  void stop(net::TimerId& timer);
  net::HandshakeOptions handshake() const;

  // lanes.cc
  Status start_ucx();
  void give_to_ucx(const device::Slab& memory, device::Kind kind, bool registers);
  void drive();
  void kick();
  void arm_tick();
  transfer::Done translate(WorkerId peer, Done done);
  bool is_near(const msg::PeerInfo& peer) const;  // on this host
  Done judged(WorkerId from, Done done);
  void judge(WorkerId from, std::uint64_t breaks, Status status, msg::Lane lane, const Done& done, bool late);
  void receive(WorkerId from, Receive receive);        // now, or when its link is there again
  void begin_receive(WorkerId from, Receive receive);  // now
  void end(Receive& held, const Error& why);

  // streams.cc
  void want_stream(Peer& peer);
  void dial_stream(Peer& peer);
  void retry_stream(Peer& peer, const Error& why);
  void want_stream_later(Peer& peer);
  Status attach(Peer& peer, std::unique_ptr<net::ByteStream> stream);
  void stream_broke(Peer& peer);
  void stream_silent(Peer& peer, const Error& why);
  void stop_stream(Peer& peer);
  void stream_connected(Peer& peer, std::unique_ptr<net::Link> link);
  void stream_answered(Peer& peer, net::Frame& frame);
  void stream_lost(const transfer::Cookie& cookie, const Error& why);
  void take_stream(ChannelId id, const net::Frame& frame);

  // channels.cc
  ChannelId open_channel(std::unique_ptr<net::Link> link, WorkerId peer);
  void accepted(std::unique_ptr<net::Link> link);
  void close_stranger(ChannelId id);
  void match_strangers();
  void on_closed(ChannelId id, const Error& why);
  bool may_take(const Peer& peer, const Channel& channel) const;
  void connect(Peer& peer);
  void connect_after(Peer& peer, TimeNs pause_ns);
  void connected(WorkerId id, Result<std::unique_ptr<net::Link>> link, WorkerId through = {});

  // relays.cc
  Peer* relay_for(const Peer& peer);
  bool connect_through(Peer& peer);
  std::unique_ptr<Passage> through(const Peer& relay, WorkerId to, net::Handshake::Done done);
  void try_direct(Peer& peer);
  void take_direct(Peer& peer, std::unique_ptr<net::Link> link, const net::Address& target);
  void take_relay(ChannelId id, const net::Frame& frame);
  void refuse_relay(ChannelId id, Errc why);
  bool may_relay(WorkerId asker) const;
  void begin_relay(ChannelId id, WorkerId asker, WorkerId to, std::unique_ptr<net::ByteStream> target);
  void end_relays(WorkerId lost_peer);

  // peers.cc
  Peer* find(WorkerId id);
  bool has_ring(const Peer& peer) const {
    const auto at = channels.find(peer.channel);
    return at != channels.end() && at->second.link->is_shared_memory();
  }
  void say_hello(Peer& peer);
  void greeted(Peer& peer);
  void fail(Peer& peer, const Error& why);
  void shut(Peer& peer, const Error& why);  // link, transfers, timers; tells nobody
  Status announce(Peer& peer);
  Status write(Peer& peer, const msg::Message& message, std::vector<net::UniqueFd> fds = {});
  Status write_batch(Peer& peer, msg::PeerBatch& batch);
  void flush(Peer& peer);
  void unmap(WorkerId id);

  // breaks.cc
  void down(Peer& peer, const Error& why);
  void drop_link(Peer& peer);
  void give_up_after(Peer& peer, TimeNs ns, TimeNs patience_ns);
  void give_up(Peer& peer, const Error& why);
  void got_through(Peer& peer);
  bool resume(Peer& peer);
  Status put(Peer& peer, std::uint16_t type, std::span<const std::byte> bytes,
             std::vector<net::UniqueFd> fds = {});
  void take_in(Peer& peer, std::size_t bytes);
  Status acknowledged(Peer& peer, const msg::Ack& ack);
  void close_lane(Peer& peer, const Error& why);

  // frames.cc
  void greeting(ChannelId id, msg::Message& message);
  void on_frame(ChannelId id, net::Frame& frame);
  void broke_protocol(ChannelId id, const Error& why);
  Status take_map(Peer& peer, const msg::ArenaMap& map, std::vector<net::UniqueFd>& fds);
  Status check(const Peer& peer, const msg::PeerBatch& batch) const;
  std::int64_t slab_bytes(DeviceId device, std::uint32_t slab) const;
};

std::string text_of(WorkerId id);

// Frames of a data connection before it is one; no message has this type.
constexpr std::uint16_t kStreamFrame = 0x7D00;

}  // namespace tilewise::exchange
