// The growing graph of a session: which ops were recorded, which arrays somebody still wants, and what the scheduler
// already holds. No threads and no messages: SessionState guards it and sends what it makes.
//
// An array is *wanted* while a user's handle names it, a request runs on it, or a wanted op reads it. An array is
// *remote* while the scheduler holds it for this session. Every submission names its arrays anew: a number is sent as
// an output once, so that an op computed again is another array, and only remote ones are named by later submissions.
//
// Nothing here recurses: graphs are as deep as users' loops are long.
#pragma once
#include <tilewise/ir/geometry.h>
#include <tilewise/ir/op.h>

#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "programs.h"

namespace tilewise::client {

// One array of a session: node number * kMaxOutputs + output; 0 is none.
using Key = std::uint64_t;

// Bytes of a kProvide array, C order. Never written; alive as long as anything needs them.
struct Memory {
  std::shared_ptr<const void> owner;
  const std::byte* data = nullptr;
  bool adoptable = false;  // workers of this process may have their blocks there, for as long as these live
};

// What one Submit carries, and what its numbers mean.
struct Submission {
  struct Named {
    Key key = 0;
    std::uint64_t number = 0;
  };
  struct Provided {
    std::uint64_t number = 0;
    ir::SourceArray array;
    std::shared_ptr<const Memory> memory;
  };

  std::size_t op_count = 0;
  std::vector<ir::Op> ops;    // or, where the scheduler keeps them:
  std::uint64_t program = 0;  // Submit::program and what goes with it
  std::uint64_t first_output = 0;
  std::vector<std::uint64_t> inputs;
  ir::Constants constants;
  std::uint64_t kept_by = 0;   // not 0: the request that brings or brought this program to be kept
  std::uint32_t keep_as = 0;   // Submit::keep_as
  std::vector<Named> fetches;  // in the order asked for; equal keys share a number
  std::vector<Named> holds;    // newly held by this submission
  std::vector<Provided> provided;
  std::vector<std::uint64_t> named;  // arrays of earlier submissions
};

struct Wish {
  std::vector<Key> fetch;  // send me its blocks
  bool lend = false;       // rather: let me read those that I can map where they lie
  std::vector<Key> hold;   // keep it until no longer wanted
  std::vector<Key> run;    // of ops with an effect: compute it
};

class Graph {
 public:
  // Records an op whose operands name Keys. Each output has one handle from now on; output o has key + o.
  Key add(ir::Op op, std::shared_ptr<const Memory> memory = nullptr);

  const ir::OutputSpec& output(Key key) const;
  ir::SourceArray source(Key key) const;
  const ir::Op& op(Key key) const { return node(key).op; }
  // Explicit placement of the op. False: the op has been submitted, so it is too late. kPlacementConflict if it has
  // another one, naming both; `name` turns a device into text.
  Result<bool> place(Key key, const ir::DeviceHint& hint, const std::function<std::string(DeviceId)>& name);

  void label(Key key, const std::string& label) { node(key).op.label = label; }

  // Handles and requests; the last one gone frees the array and what only it needed.
  void pin(Key key) { ++out(key).pins; }
  void unpin(Key key);

  // The ops needed for the wish that the scheduler does not hold, each once, producers before users.
  // kLimitExceeded past kMaxOpsPerSubmit.
  // `request`: its number; a program that the scheduler keeps is named instead of sent, and others may be kept. 0: sent as it is.
  // `only_look`: nothing is remembered; the numbers are those that a submission would use.
  Result<Submission> submit(const Wish& wish, std::uint64_t request = 0, bool only_look = false);
  // An array that the scheduler holds already, under this number (next_number()): with a handle, without operands, never computed
  // again.
  std::uint64_t next_number() { return next_number_++; }
  Key adopt(ir::SourceArray array, std::uint64_t number);
  // It could not be had after all: whoever asks for it is told why.
  void fail(Key key, Error why);
  // How a submission ended: arrays held by it are there, and what they were computed from is forgotten; or they are
  // not, and may be submitted again.
  void held(const Submission& submission, bool ok);
  // It was not accepted: as held(), and what it had the scheduler keep may not be there.
  void refused(const Submission& submission);

  bool remote(Key key) const { return remote_number(key) != 0; }
  std::uint64_t remote_number(Key key) const { return outputs(key)[key % limits::kMaxOutputs].remote; }
  // Numbers the scheduler may let go; empties the list.
  std::vector<std::uint64_t> take_released() { return std::exchange(released_, {}); }
  std::size_t released() const { return released_.size(); }
  std::size_t size() const { return nodes_.size(); }

 private:
  struct Output {
    std::uint32_t pins = 0, users = 0;  // users: operands of nodes
    std::uint64_t remote = 0;           // its number at the scheduler; 0: not held there
    std::uint64_t visited = 0;          // number of the last submission that named it ...
    std::uint64_t place = 0;            // ... and its place in that, as in msg::Program
  };
  struct Node {
    ir::Op op;
    std::vector<Output> outputs;
    std::shared_ptr<const Memory> memory;
    std::uint64_t visited = 0;  // number of the last submission that reached it
    bool submitted = false;
    std::optional<Error> failed;
  };

  Node& node(Key key) { return nodes_.at(key / limits::kMaxOutputs); }
  const Node& node(Key key) const { return nodes_.at(key / limits::kMaxOutputs); }
  Output& out(Key key) { return node(key).outputs[key % limits::kMaxOutputs]; }
  const std::vector<Output>& outputs(Key key) const { return node(key).outputs; }
  void settle(Key key);  // frees what is no longer wanted, from here on
  void collect(const std::vector<Key>& roots, std::vector<Node*>& order);
  struct Draft;
  void lay_out(Draft& draft);
  bool same(Draft& draft, const msg::Program& program) const;
  std::uint64_t write_ops(const Draft& draft, std::vector<ir::Op>& ops) const;

  std::unordered_map<std::uint64_t, Node> nodes_;
  std::uint64_t next_node_ = 1, next_number_ = 1, visit_ = 0;
  std::vector<std::uint64_t> released_;
  Programs programs_;
};

}  // namespace tilewise::client
