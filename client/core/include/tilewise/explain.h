// What the scheduler says it would do, or is doing, about a graph.
#pragma once
#include <tilewise/msg/msg.h>
#include <tilewise/types.h>

#include <map>
#include <string>
#include <vector>

namespace tilewise {

// A value. The account has the figures (msg/account.h says what each is); the rest shows them.
class Explanation {
 public:
  Explanation(msg::Explanation account, const std::vector<Device>& devices);

  const msg::Explanation& account() const { return account_; }
  bool refused() const { return !account_.outcome.ok(); }  // account().outcome says why

  // For people: a table of ops, then devices, links and the critical path. `passes`: the graph after each pass too.
  std::string text(bool passes = false) const;
  // All figures as one JSON object; seconds and bytes as numbers, devices by name.
  std::string json() const;
  // Where the blocks of the explained arrays are, or would be.
  std::string drawing() const;

  std::string name_of(DeviceId device) const;

 private:
  msg::Explanation account_;
  std::map<DeviceId, std::string> names_;
};

}  // namespace tilewise
