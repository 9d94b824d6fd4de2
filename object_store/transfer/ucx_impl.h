// The engine behind ucx_engine.h. Four sources: ucx_engine.cc (life), ucx_peers.cc (connections), ucx_ops.cc
// (transfers), streams.cc (host memory over streams of our own).
//
// An op is in exactly one state: kWaiting (a receive of which UCX knows nothing), kActive (UCX holds its
// memory), or finished, which means that it left `ops` and lies in `finished` until progress() delivers it. A
// given-up active op (failure set) stays active until UCX completes it: that is the quarantine. What goes over a stream
// is let go at once, but for sends of which a part has been written, or which the peer reads in place.
//
// UCX calls back inside ucp_worker_progress(), ucp_ep_close_nbx() and the posting calls. Those callbacks only
// touch tables; closing, connecting and calling `done` happen in progress() after UCX has returned.
#pragma once
#include "stream_lane.h"
#include "ucx_lanes.h"

#include <tilewise/base/check.h>

#include <ucp/api/ucp.h>

#include <cstring>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tilewise::transfer {

constexpr TimeNs kNever = TimeNs{1} << 62;
constexpr unsigned kAmId = 7;  // of data messages

// A receiver may read the sender's memory directly. It counts from before the sender does and distrusts what
// came after its own deadline; the sender keeps the bytes in place until well after that. (Over a stream the receiver looks whether the
// sender has closed it.)
constexpr TimeNs kSenderMargin = kSecond;

using AmHeader = BlockHeader;  // first bytes of every data message

struct CookieHash {
  std::size_t operator()(const Cookie& cookie) const {  // random already
    std::size_t h;
    std::memcpy(&h, cookie.data(), sizeof h);
    return h;
  }
};
struct OpKey {
  Cookie cookie{};
  std::uint64_t transfer = 0;
  bool sending = false;
  friend bool operator==(const OpKey&, const OpKey&) = default;
};
struct OpKeyHash {
  std::size_t operator()(const OpKey& key) const {
    return CookieHash{}(key.cookie) ^ (key.transfer * 2 + key.sending) * 0x9E3779B97F4A7C15ull;
  }
};

struct Peer;
struct Op {
  UcxEngine::Impl* engine = nullptr;
  AmHeader header;  // a sender's must live until completion
  bool sending = false, active = false, bulk = false, forced = false;
  device::Kind kind = device::Kind::kHost;
  std::byte* data = nullptr;
  Source* source = nullptr;  // instead, as is the next: over a stream only
  Sink* sink = nullptr;
  TimeNs began = 0;
  TimeNs deadline = 0;           // of the transfer; over a stream it moves while that does
  TimeNs wake = 0;               // its entry in `alarms`
  Error failure{Errc::kOk, {}};  // set when given up: what `done` will hear
  void* request = nullptr;
  ucp_ep_h ep = nullptr;   // that it was posted on; none once that was closed
  Peer* stream = nullptr;  // whose stream moves it, or will
  Via via = Via::kNone;    // that it went over a stream
  Done done;
  OnHeld held;
  bool cut_off = false;  // given up, and what could make UCX let go has been done
};

struct Peer {
  Cookie cookie{};
  std::string address;  // raw, padded; empty: cannot connect
  ucp_ep_h ep = nullptr;
  Lanes lanes;
  int lanes_read = 0;
  bool other_ucx = false;     // its UCX and ours do not understand each other
  bool fast_network = false;  // its UCX has more than TCP between hosts
  // Host memory to and from it goes over a stream, if there is one; what is sent waits for it.
  bool streams = false;
  std::unique_ptr<StreamLane> lane;
  std::deque<Op*> waiting;  // sends, while there is no lane
  bool had_lane = false;
  Error why_none{Errc::kOk, {}};  // what kept the last one that was tried from being made

  bool streams_kind(device::Kind kind) const { return streams && kind == device::Kind::kHost; }
};

struct Finished {
  Done done;
  Status status;
  Cookie cookie{};
  bool bulk = false;
  device::Kind kind = device::Kind::kHost;
  Via via = Via::kNone;  // over a stream; none: as UCX's endpoint says
};

struct UcxEngine::Impl {
  UcxOptions options;
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  int event_fd = -1;
  std::uint64_t memory_types = 0;
  std::string address;
  UcxCounters counters;
  std::unordered_map<Cookie, std::unique_ptr<Peer>, CookieHash> peers;
  std::unordered_map<ucp_ep_h, Cookie> peer_by_ep;
  std::unordered_map<OpKey, std::unique_ptr<Op>, OpKeyHash> ops;
  std::set<std::pair<TimeNs, Op*>> alarms;  // one entry an op
  std::vector<Finished> finished, delivering;
  std::vector<std::pair<ucp_ep_h, Error>> broken;  // reported by UCX, to be closed
  std::vector<void*> closing;                      // requests of closes
  std::vector<ucp_mem_h> registered;
  bool progressing = false;  // progress() must not be entered from a callback
  bool fast_network = false;
  StreamHooks hooks;
  std::vector<std::pair<Cookie, Error>> broken_streams;  // to be closed
  std::set<Peer*> pulling;                               // whose lanes have something to pull()

  ~Impl();
  Status init();

  // ucx_peers.cc
  Status connect(Peer& peer);
  void close(Peer& peer, const Error& why);  // waiting receives go on
  // Receives; of those that come over a stream only where `streamed`.
  void fail_waiting(const Cookie& cookie, const Error& why, bool streamed);
  void handle_broken();
  void reap_closes();
  Via via_of(Peer& peer, bool bulk, device::Kind kind);

  // streams.cc
  void stream_send(Op& op, Peer& peer);
  void put_into_lane(Op& op, Peer& peer);
  Op* on_stream(const AmHeader& header, bool sending);
  void streamed(const AmHeader& header, bool sending, Via via);
  bool pull();
  std::optional<Place> stream_header(Peer& peer, const AmHeader& header);
  void stream_let_go(Op& op, const Error& why);
  bool makes_headway(Op& op, TimeNs now);
  TimeNs later_deadline(const Op& op, TimeNs now) const;
  void withdraw_sends(Peer& peer, const Error& why);
  void close_stream(Peer& peer, const Error& why);
  void handle_broken_streams();

  // ucx_ops.cc
  Op* wanted(const AmHeader& header, bool streamed);
  Result<Peer*> streaming(const Cookie& cookie);
  Result<Op*> add_op(const OpKey& key, std::byte* data, std::int64_t bytes, device::Kind kind, Done& done);
  void post_send(Op& op, Peer& peer);
  ucs_status_t on_message(const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                          bool bulk);
  void take_result(Op& op, ucs_status_ptr_t result);  // of a posting call
  void complete(Op& op, ucs_status_t status);         // UCX has let go
  void finish(Op& op, Status status);
  void give_up(Op& op, const Error& why);
  void expire(TimeNs now);
  std::string why_no_stream(const Op& op) const;
  bool deliver();
};

Error ucx_error(const std::string& what, ucs_status_t status);

}  // namespace tilewise::transfer
