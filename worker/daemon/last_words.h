// What a supervisor tells the scheduler of its worker's end.
#pragma once
#include <tilewise/base/time.h>
#include <tilewise/msg/msg.h>
#include <tilewise/net/address.h>
#include <tilewise/net/token.h>

namespace tilewise::worker {

// Returns when the scheduler has taken it. Blocks, on a loop of its own. Errors: kTimeout, or why it could not be told.
Status tell_last_words(const net::Address& scheduler, const net::Token& token, const msg::LastWords& words,
                       TimeNs timeout_ns);

}  // namespace tilewise::worker
