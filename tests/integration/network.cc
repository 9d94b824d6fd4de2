#include "network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>
#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>

#include "harness.h"

namespace tilewise::testing {
namespace {

const std::string kIp = "/usr/sbin/ip", kTc = "/usr/sbin/tc", kSs = "/usr/bin/ss";

void ip(const std::vector<std::string>& arguments) {
  std::vector<std::string> command{kIp};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const Ran ran = run(command);
  if (ran.code == 0) return;
  std::string line;
  for (const std::string& word : command) line += word + " ";
  throw std::runtime_error(line + ": " + ran.errors);
}

bool is_here(const std::string& address) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return false;
  bool found = false;
  for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_in where{};
    std::memcpy(&where, at->ifa_addr, sizeof where);
    char text[INET_ADDRSTRLEN] = {};
    found = found || (inet_ntop(AF_INET, &where.sin_addr, text, sizeof text) != nullptr && address == text);
  }
  freeifaddrs(all);
  return found;
}

}  // namespace

std::unique_ptr<Network> Network::make(int hosts, std::string& why) {
  if (access(kIp.c_str(), X_OK) != 0) {
    why = "there is no " + kIp + " (package iproute2)";
    return nullptr;
  }
  // Other tests may do the same now: names by process and number, addresses by chance. 198.18.0.0/15 is for such tests (RFC 2544).
  static int count = 0;
  const std::string id = "tw" + std::to_string(getpid()) + "n" + std::to_string(++count);
  std::random_device chance;
  std::string net;
  do {
    net = "198.18." + std::to_string(chance() % 256) + ".";
  } while (is_here(net + "254"));  // of a test beside this one, or of one that was killed
  std::unique_ptr<Network> network(new Network);
  try {
    ip({"link", "add", id + "b", "type", "bridge"});
    network->bridge_ = id + "b";
    ip({"netns", "add", id + "h0"});
    network->hosts_.push_back({id + "h0", id + "p0", net + "1"});
  } catch (const std::runtime_error& e) {
    why = e.what();
    return nullptr;
  }
  network->here_ = net + "254";
  ip({"addr", "add", network->here_ + "/24", "dev", network->bridge_});
  ip({"link", "set", network->bridge_, "up"});
  for (int i = 1; i < hosts; ++i) {
    const std::string number = std::to_string(i);
    ip({"netns", "add", id + "h" + number});
    network->hosts_.push_back({id + "h" + number, id + "p" + number, net + std::to_string(i + 1)});
  }
  for (const Host& host : network->hosts_) {
    ip({"link", "add", host.port, "type", "veth", "peer", "name", "eth0", "netns", host.name});
    ip({"link", "set", host.port, "master", network->bridge_, "up"});
    ip({"-n", host.name, "link", "set", "lo", "up"});
    ip({"-n", host.name, "addr", "add", host.address + "/24", "dev", "eth0"});
    ip({"-n", host.name, "link", "set", "eth0", "up"});
  }
  return network;
}

// A namespace that still has a process goes when that does; the port on our side must not wait for it.
Network::~Network() {
  for (const Host& host : hosts_) {
    (void)run({kIp, "link", "del", host.port});
    (void)run({kIp, "netns", "del", host.name});
  }
  if (!bridge_.empty()) (void)run({kIp, "link", "del", bridge_});
}

std::vector<std::string> Network::prefix(int host) const {
  return {kIp, "netns", "exec", hosts_[static_cast<std::size_t>(host)].name};
}

// A neighbour at an address that nobody has.
void Network::cut(int from, int to) {
  ip({"-n", hosts_[static_cast<std::size_t>(from)].name, "neigh", "replace", address(to), "lladdr",
      "02:00:00:00:00:01", "dev", "eth0", "nud", "permanent"});
}

void Network::mend(int from, int to) {
  ip({"-n", hosts_[static_cast<std::size_t>(from)].name, "neigh", "del", address(to), "dev", "eth0"});
}

// Over a cable of its own, whose bucket is too small for them.
bool Network::lose_large(int from, int to) {
  const std::string name = "large" + std::to_string(to);
  const std::string &one = hosts_[static_cast<std::size_t>(from)].name,
                    &other = hosts_[static_cast<std::size_t>(to)].name;
  ip({"-n", one, "link", "add", name, "type", "veth", "peer", "name", "small" + std::to_string(from), "netns",
      other});
  ip({"-n", other, "link", "set", "small" + std::to_string(from), "up"});
  ip({"-n", one, "link", "set", name, "up"});
  std::vector<std::string> command = prefix(from);
  command.insert(command.end(), {kTc, "qdisc", "add", "dev", name, "root", "tbf", "rate", "10gbit", "burst",
                                 "1000", "latency", "400ms"});
  if (run(command).code != 0) return false;
  ip({"-n", one, "route", "add", address(to), "dev", name, "src", address(from)});
  return true;
}

void Network::isolate(int host) { ip({"link", "set", hosts_[static_cast<std::size_t>(host)].port, "down"}); }

void Network::rejoin(int host) { ip({"link", "set", hosts_[static_cast<std::size_t>(host)].port, "up"}); }

bool Network::reset(int one, int two) { return reset(one, {"dst", address(two)}); }

bool Network::reset_with_here(int host, std::uint16_t but_port) {
  std::string port = ":";
  port += std::to_string(but_port);
  return reset(host, {"dst", here_, "and", "dport", "!=", port});
}

bool Network::reset(int host, const std::vector<std::string>& which) {
  std::vector<std::string> command = prefix(host);
  command.insert(command.end(), {kSs, "-K", "-H"});
  command.insert(command.end(), which.begin(), which.end());
  const Ran ran = run(command);
  return ran.code == 0 && !ran.output.empty();  // it lists those that it ended
}

// A token bucket at each end of its cable, of which each limits what goes in.
bool Network::slow_down(int host, std::int64_t bits_per_s) {
  const Host& h = hosts_[static_cast<std::size_t>(host)];
  std::vector<std::string> in_host = prefix(host);
  in_host.push_back(kTc);
  // What a slow modem keeps in its queue, and what a switch does. A burst is what comes in 4 ms, for timers are no finer everywhere.
  constexpr std::int64_t kFast = 100'000'000;
  const std::int64_t burst = std::max<std::int64_t>(32 << 10, bits_per_s / 8 / 250);
  bool can = true;
  for (std::vector<std::string> command : {std::vector<std::string>{kTc}, in_host}) {
    const std::string end = command.size() == 1 ? h.port : "eth0";
    if (bits_per_s == 0)
      command.insert(command.end(), {"qdisc", "del", "dev", end, "root"});
    else
      command.insert(command.end(), {"qdisc", "replace", "dev", end, "root", "tbf", "rate",
                                     std::to_string(bits_per_s) + "bit", "burst", std::to_string(burst),
                                     "latency", bits_per_s < kFast ? "400ms" : "10ms"});
    can = run(command).code == 0 && can;
  }
  return can;
}

bool Network::lose_some(int host, double share) {
  Host& h = hosts_[static_cast<std::size_t>(host)];
  h.sent = share == 0 ? PacketLoss() : PacketLoss::at(h.port, "", share);
  h.received = share == 0 ? PacketLoss() : PacketLoss::at("eth0", h.name, share);
  return share == 0 || (h.sent && h.received);
}

}  // namespace tilewise::testing
