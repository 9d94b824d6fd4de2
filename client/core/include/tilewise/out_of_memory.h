// What is thrown where memory does not suffice, with the figures.
#pragma once
#include <tilewise/error.h>
#include <tilewise/msg/account.h>

#include <functional>
#include <vector>

namespace tilewise {

// Before anything ran: the request can never fit, even with what lies below devices' memory. Or a request that ran and came to
// a point at which nothing could make room any more. Where the scheduler told no figures, a plain ArrayError is thrown.
class OutOfMemoryError : public ArrayError {
 public:
  OutOfMemoryError(const Error& error, std::vector<msg::NeedAccount> needs,
                   const std::function<std::string(DeviceId)>& name_of);

  // What devices would have to hold at once, and what they have: one entry a device, or one for several together.
  const std::vector<msg::NeedAccount>& needs() const { return needs_; }

 private:
  std::vector<msg::NeedAccount> needs_;
};

// A line for each: "  w1/host:0: 3.0 MiB at once (2.0 MiB to read, 1.0 MiB to write) by op 3 (matmul); there: 2.0 MiB".
std::string needs_text(const std::vector<msg::NeedAccount>& needs,
                       const std::function<std::string(DeviceId)>& name_of);

}  // namespace tilewise
