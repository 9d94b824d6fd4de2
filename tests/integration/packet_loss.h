// Packets of a network interface that are lost at random, where the kernel has no netem: a program of six instructions in its receive
// path (XDP) throws them away.
#pragma once
#include <string>

namespace tilewise::testing {

class PacketLoss {
 public:
  PacketLoss() = default;
  // Of what `interface` receives, in the network namespace of that name ("": this one), this share is lost until the result is gone.
  // Empty where this process may not, or the kernel cannot.
  static PacketLoss at(const std::string& interface, const std::string& network_namespace, double share);
  PacketLoss(PacketLoss&& other) noexcept;
  PacketLoss& operator=(PacketLoss&& other) noexcept;
  ~PacketLoss();

  explicit operator bool() const { return link_ >= 0; }

 private:
  explicit PacketLoss(int link) : link_(link) {}

  int link_ = -1;  // ends with its last descriptor
};

}  // namespace tilewise::testing
