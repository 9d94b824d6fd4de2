// Which transports UCX chose for an endpoint, read from its own description: this UCX has no other way to
// tell.
#pragma once
#include <tilewise/transfer/ucx_engine.h>

#include <string_view>

namespace tilewise::transfer {

struct Lanes {
  Via eager = Via::kNone;      // small messages, of host memory
  Via bulk = Via::kNone;       // rendezvous of host memory
  Via bulk_cuda = Via::kNone;  // rendezvous of CUDA memory
};

// From the text of ucp_ep_print_info(); everything kNone if it is not understood.
Lanes read_lanes(std::string_view description);

// From the text of ucp_context_print_info(): there is more than TCP to other hosts.
bool lists_fast_network(std::string_view context);

}  // namespace tilewise::transfer
