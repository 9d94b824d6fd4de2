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

// Again and again, where the scheduler is away and may be started again with its state: until one has taken it or refused it, or for
// `patience_ns`. Each attempt has `timeout_ns`. Errors: as above, of the last attempt. Who is told twice counts once.
Status offer_last_words(const net::Address& scheduler, const net::Token& token, const msg::LastWords& words,
                        TimeNs timeout_ns, TimeNs patience_ns);

}  // namespace tilewise::worker
