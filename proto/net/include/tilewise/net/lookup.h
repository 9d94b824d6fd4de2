// Names of hosts, looked up with an end: nothing ends the system's resolver before it ends itself (resolv.conf: some 5 s a try and a
// server), so it is asked by a thread that owns all it uses. Whoever has waited long enough goes, and leaves it behind.
#pragma once
#include <tilewise/net/address.h>
#include <tilewise/net/event_loop.h>

#include <functional>
#include <memory>
#include <vector>

namespace tilewise::net {

// Threads of one loop that ask; further names wait for one of them.
constexpr int kMaxLookupThreads = 8;
// What a name to listen at is given: one of our own, looked up once, when a program starts.
constexpr TimeNs kListenLookupNs = 10 * kSecond;

class Lookup {
 public:
  // TCP addresses with numeric hosts, at least one; kNotFound.
  using Done = std::function<void(Result<std::vector<Address>>)>;

  // done is called once, from the loop and never from inside the call, unless the look-up is destroyed before. There is no deadline:
  // destroying it is free at any time. A numeric host needs no thread. `address` is a TCP one.
  Lookup(EventLoop& loop, const Address& address, Done done);
  ~Lookup();  // allowed inside done
  Lookup(const Lookup&) = delete;
  Lookup& operator=(const Lookup&) = delete;

 private:
  struct Request;
  friend struct Lookups;
  std::shared_ptr<Request> request_;
};

// The same for who has no loop: waits. kTimeout.
Result<std::vector<Address>> look_up(const Address& address, TimeNs timeout_ns);

}  // namespace tilewise::net
