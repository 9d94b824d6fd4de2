// The engine behind ucx_engine.h. Three sources: ucx_engine.cc (life), ucx_peers.cc (connections), ucx_ops.cc
// (transfers).
//
// An op is in exactly one state: kWaiting (a receive of which UCX knows nothing), kActive (UCX holds its
// memory), or finished, which means that it left `ops` and lies in `finished` until progress() delivers it. A
// given-up active op (failure set) stays active until UCX completes it: that is the quarantine.
//
// UCX calls back inside ucp_worker_progress(), ucp_ep_close_nbx() and the posting calls. Those callbacks only
// touch tables; closing, connecting and calling `done` happen in progress() after UCX has returned.
#pragma once
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

// First bytes of every data message, in the sender's byte order (all supported hosts are little-endian).
struct AmHeader {
  Cookie cookie{};
  std::uint64_t transfer = 0;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(AmHeader) == 32);

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

struct Op {
  UcxEngine::Impl* engine = nullptr;
  AmHeader header;  // a sender's must live until completion
  bool sending = false, active = false, bulk = false, forced = false;
  device::Kind kind = device::Kind::kHost;
  std::byte* data = nullptr;
  TimeNs deadline = 0;           // of the transfer
  TimeNs wake = 0;               // its entry in `alarms`
  Error failure{Errc::kOk, {}};  // set when given up: what `done` will hear
  void* request = nullptr;
  Done done;
};

struct Peer {
  Cookie cookie{};
  std::string address;  // raw, padded; empty: cannot connect
  ucp_ep_h ep = nullptr;
  Lanes lanes;
  int lanes_read = 0;
};

struct Finished {
  Done done;
  Status status;
  Cookie cookie{};
  bool bulk = false;
  device::Kind kind = device::Kind::kHost;
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

  ~Impl();
  Status init();

  // ucx_peers.cc
  Status connect(Peer& peer);
  void close(Peer& peer, const Error& why);  // waiting receives go on
  void fail_waiting(const Cookie& cookie, const Error& why);
  void handle_broken();
  void reap_closes();
  Via via_of(Peer& peer, bool bulk, device::Kind kind);

  // ucx_ops.cc
  Result<Op*> add_op(const OpKey& key, std::byte* data, std::int64_t bytes, device::Kind kind, Done& done);
  void post_send(Op& op, Peer& peer);
  ucs_status_t on_message(const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                          bool bulk);
  void take_result(Op& op, ucs_status_ptr_t result);  // of a posting call
  void complete(Op& op, ucs_status_t status);         // UCX has let go
  void finish(Op& op, Status status);
  void give_up(Op& op, const Error& why);
  void expire(TimeNs now);
  bool deliver();
};

Error ucx_error(const std::string& what, ucs_status_t status);

}  // namespace tilewise::transfer
