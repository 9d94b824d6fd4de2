// What somebody who hears messages does with each of them: std::visit(Cases{[](const Log&) {...}, ..., Ignored<Ack>{}}, message). One that has
// no case, a new one too, does not compile.
#pragma once
#include <tilewise/msg/msg.h>

#include <concepts>

namespace tilewise::msg {

template <class... Case> struct Cases : Case... { using Case::operator()...; };
template <class... Case> Cases(Case...) -> Cases<Case...>;

// Nothing is done with these.
template <class... M> struct Ignored {
  template <class T>
  requires(std::same_as<T, M> || ...) void operator()(const T&) const {}
};

// What others say to the scheduler, or workers to each other: nobody hears it from the scheduler.
using NeverOfScheduler = Ignored<Join, Progress, TaskFailed, Stuck, Submit, ReleaseArrays, CancelRequest,
                                 StatusRequest, PeerHello, ArenaMap, PeerBatch, Explain, Held, Resume,
                                 Drained, DrainRequest, LastWords, Leave, Announce, LinkProbed>;

}  // namespace tilewise::msg
