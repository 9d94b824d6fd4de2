// Several hosts on one: network namespaces whose only way to each other is a bridge, on which packets can be lost. Processes of
// different hosts cannot share memory over sockets and reach each other over TCP alone. (UCX still finds out that the machine is the
// same: set UCX_TLS=tcp.)
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "packet_loss.h"

namespace tilewise::testing {

class Network {
 public:
  // None, and `why` says why, where this process may not make namespaces. Throws std::runtime_error where it may and it fails.
  static std::unique_ptr<Network> make(int hosts, std::string& why);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  const std::string& here() const { return here_; }  // this process's address, on the bridge
  const std::string& address(int host) const { return hosts_[static_cast<std::size_t>(host)].address; }
  int hosts() const { return static_cast<int>(hosts_.size()); }
  // What runs a program there: to be put before it.
  std::vector<std::string> prefix(int host) const;
  // What `from` sends to `to` is lost and nobody is told, until it is mended. The other way still works.
  void cut(int from, int to);
  void mend(int from, int to);
  // What `from` sends to `to` in packets above 1,000 bytes is lost, and nobody is told (an MTU black hole). False: this kernel cannot.
  bool lose_large(int from, int to);
  // All that the host sends and receives is lost, in silence, until it is joined again.
  void isolate(int host);
  void rejoin(int host);
  // TCP connections between the two end at once, at one of their ends, which says so to the other (ss -K). False: this kernel cannot.
  bool reset(int one, int two);
  // The same between a host and this one, but for those to a port here.
  bool reset_with_here(int host, std::uint16_t but_port);
  // What the host sends and receives goes through at so many bits a second each way; 0: as fast as can be. False: this kernel cannot.
  bool slow_down(int host, std::int64_t bits_per_s);
  // This share of the packets that it sends and receives is lost; 0: none. False: this kernel cannot.
  bool lose_some(int host, double share);

 private:
  bool reset(int host, const std::vector<std::string>& which);

  struct Host {
    std::string name, port, address;  // the port is the bridge's end of its cable
    PacketLoss sent = {}, received = {};
  };
  Network() = default;

  std::string bridge_, here_;
  std::vector<Host> hosts_;
};

}  // namespace tilewise::testing
