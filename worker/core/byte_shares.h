// How sessions share the memory of one device. Nobody's memory is set aside: who is alone may have it all. Where several want it, the one
// whose blocks have less for its weight goes before the one whose blocks have more (weighted max-min fairness): it is served
// first when memory comes free, and where there is a tier below, the other's blocks leave for it.
//
// A session that waits for memory has a *claim*: the least that something of it waits for and has been refused. While it has one, a
// session that would have more with what it asks for than the claimant with its claim is *put off*. A claim ends when as much has
// been given to somebody of the session who waited, or when a round of asking is over in which all of the session asked and nothing that
// waits was refused. Who was put off asks again as soon as it no longer has to be, whatever the cause.
#pragma once
#include <tilewise/worker/core.h>

#include <cstdint>
#include <vector>

namespace tilewise::worker {

class ByteShares {
 public:
  struct Share {
    SessionId session;
    std::uint32_t weight = msg::kDefaultWeight;  // at least 1
    int queues = 0;                              // with work to do here
    std::int64_t bytes = 0;                      // of its blocks in this memory
    std::int64_t leaving = 0;                    // of these, being written to a tier below
    std::int64_t claim = 0;                      // or none
    std::uint64_t refused = 0;                   // in which round, last
    std::int64_t put_off = 0;                    // the least that it was put off with in this round, or 0
    double usage(std::int64_t more = 0) const {
      return static_cast<double>(bytes - leaving + more) / static_cast<double>(weight);
    }
  };

  // A queue of the session has come, with the session's weight from now on; one has gone.
  void add_queue(SessionId session, std::uint32_t weight);
  void remove_queue(SessionId session);
  // A block of the session has got memory, or has it no more. `weight` counts for one that had nothing here.
  void add_bytes(SessionId session, std::uint32_t weight, std::int64_t bytes);
  void remove_bytes(SessionId session, std::int64_t bytes);
  void begin_leaving(SessionId session, std::int64_t bytes);
  void end_leaving(SessionId session, std::int64_t bytes);

  // One session, or none: then nobody has to give way, and nothing below need be asked.
  bool alone() const { return shares_.size() < 2; }
  const std::vector<Share>& all() const { return shares_; }  // by session
  // The sessions, those that have most for their weight first.
  std::vector<SessionId> by_usage() const;

  // May a block of `victim` leave for the sake of `claimant`, which wants so many bytes? Only if it still has as much for
  // its weight afterwards as the other then has: so the same two never do it to each other in turn.
  bool gives_way(SessionId victim, std::int64_t block_bytes, SessionId claimant, std::int64_t wanted) const;

  // Somebody else has a claim, and would have less with it than `asker` with what it wants: that one is first.
  bool must_wait(SessionId asker, std::int64_t wanted) const;
  // It was, and did not get so much. Nothing in a session without work or blocks here.
  void put_off(SessionId session, std::int64_t bytes);
  // Something of the session that waits for so much has been refused it, for whatever reason but its own order; has got it.
  void refuse(SessionId session, std::int64_t bytes);
  void serve(SessionId session, std::int64_t bytes);

  // A round: memory has come free, and all that wait for it ask again. Who was not refused again in it waits for nothing (its task
  // has gone, or waits for something else) and has no claim any more, unless `still_asks(session)`: not all of it has asked, for want
  // of room in the device's streams.
  void begin_round();
  template <class StillAsks> void end_round(const StillAsks& still_asks) {
    for (Share& share : shares_)
      if (share.claim > 0 && share.refused != round_ && !still_asks(share.session)) share.claim = 0;
  }
  // Who was put off in this round, and would not be now: another round is due.
  bool any_put_off() const;
  bool may_go_on() const;

 private:
  const Share* find(SessionId session) const;
  Share& get(SessionId session, std::uint32_t weight);
  Share* find(SessionId session);
  Share& known(SessionId session);
  void drop_if_empty(const Share& share);
  double usage(SessionId session, std::int64_t more) const;
  std::vector<Share> shares_;  // of sessions with work or blocks here, rising
  std::uint64_t round_ = 1;
};

}  // namespace tilewise::worker
