// One bit that each of two processes of a host has about the other, in memory that both have mapped. It outlives their link, and
// is seen whatever either is doing: a process that was stopped, or has not looked at its sockets, finds it when it looks.
//
// Whoever lets others read its memory in place raises the fence against a reader that was declared lost, before the memory is given
// to anything else. A reader looks after it has read and before it tells anybody what it has made of that: if no fence is up then,
// what it read was what it was meant to read (as in a seqlock).
#pragma once

namespace tilewise::net {

class Fence {
 public:
  virtual ~Fence() = default;
  // Against the other side; it stays up. What this thread writes afterwards, and others whom it tells, is seen later than that.
  virtual void raise() = 0;
  // Against this side. What was read before, by this thread and by others that it has heard of, was read earlier than that.
  virtual bool is_up() const = 0;
};

}  // namespace tilewise::net
