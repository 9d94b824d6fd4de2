// One submission in flight, shared by the futures that wait for it and the session that answers them.
#pragma once
#include <tilewise/future.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <variant>
#include <vector>

#include <tilewise/ir/element_types.h>
#include <tilewise/msg/ranges.h>

#include "graph.h"
#include "loans.h"
#include "provider.h"

namespace tilewise::client {

// A whole array in the client's memory, C order; bool as bytes.
struct Bools : std::vector<std::uint8_t> {
  using std::vector<std::uint8_t>::vector;
};
using Buffer =
    std::variant<Bools, std::vector<std::int8_t>, std::vector<std::int16_t>, std::vector<std::int32_t>,
                 std::vector<std::int64_t>, std::vector<std::uint8_t>, std::vector<std::uint16_t>,
                 std::vector<std::uint32_t>, std::vector<std::uint64_t>, std::vector<ir::Float16>,
                 std::vector<ir::BFloat16>, std::vector<float>, std::vector<double>,
                 std::vector<std::complex<float>>, std::vector<std::complex<double>>>;
Buffer make_buffer(ir::DType dtype, std::int64_t elements);  // throws ArrayError: kOutOfMemory
std::byte* bytes_of(Buffer& buffer);

enum class BlockState : std::uint8_t { kWanted, kReceiving, kFilled };

// One fetched array.
struct Target {
  std::uint64_t number = 0;  // as the submission names it
  ArrayId array;             // as the scheduler does, from its reply on
  ir::DType dtype = ir::DType::kFloat64;
  ir::Grid grid;
  ir::Shape shape;
  Buffer buffer;  // written by the endpoint's thread until the request is finished, then the future's
  std::vector<BlockState> blocks;
  std::int64_t left = 0;
  std::size_t takers = 0;        // results that show this array and were not taken
  std::shared_ptr<Loans> loans;  // given: blocks are not copied into `buffer` but lent

  std::vector<msg::Range> missing() const {  // blocks that are not here, rising
    std::vector<msg::Range> ranges;
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i] != BlockState::kFilled) msg::append(ranges, static_cast<std::int64_t>(i));
    }
    return ranges;
  }
};

// A request that waits for other sessions: an Announce.
struct Announced {
  ir::DType dtype = ir::DType::kFloat64;
  ir::Shape shape;
  std::uint64_t number = 0;  // of the array
  std::vector<Provider::Piece> pieces;
  Key key = 0;  // once it was answered well
};

struct Request {
  std::uint64_t number = 0;
  bool needs_done = false;           // holds or effects: the data alone is not the end of it
  std::vector<Target> targets;       // each array once
  std::vector<std::size_t> results;  // position of result i in `targets`
  Submission submission;             // without its ops
  std::optional<Announced> announced;

  bool computes = false;  // it has tasks, beside what it fetches
  std::int32_t priority = 0;
  std::size_t ahead = 0;  // its part of SessionOptions::look_ahead

  std::int64_t targets_left = 0;  // the endpoint's callbacks only
  TimeNs moved_at = 0;            // likewise: its begin, or when a block or word of progress last came

  // Under the session's mutex; graph_done is written by callbacks alone, which so may read it without.
  bool graph_done = false;
  std::vector<bool> taken;  // by result
  Progress progress;
  Error error{Errc::kOk, {}};
  std::vector<msg::NeedAccount> needs;  // of an error for want of memory
  bool replied = false;
  GraphId graph;  // once it was accepted
  std::condition_variable changed;

  // It waits for an array that the other one was to make and hold.
  bool fetches_from(const Request& other) const {
    return std::ranges::any_of(other.submission.holds, [this](const Submission::Named& held) {
      return std::ranges::any_of(
          targets, [&](const Target& target) { return target.left > 0 && target.number == held.number; });
    });
  }

  // Set once, after `error`; then buffers belong to whoever waits.
  std::atomic<bool> finished{false};
};

}  // namespace tilewise::client
