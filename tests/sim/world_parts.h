// The simulated processes. Private to the simulator.
#pragma once
#include "world.h"

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <set>

namespace tilewise::sim {

constexpr std::uint32_t kSupervisors = 5'000'000;  // links from here on

// What an extent of a device's memory holds.
struct World::Cell {
  std::int64_t bytes = 0;
  std::uint64_t array = 0;
  std::int64_t block = 0;
  std::uint64_t value = 0;
  bool complete = false;
  bool rubbish = false;       // a failed step has left it, or one that had read such
  std::uint8_t left_by = 0;   // that step's stream
  std::uint64_t left_at = 0;  // and sequence
};

struct World::Worker {
  scheduler::Conn conn;
  msg::Welcome welcome;
  std::unique_ptr<worker::Core> core;
  std::vector<msg::Log> early;       // before the welcome was read
  std::vector<worker::Event> heard;  // in its turn that has not come yet
  bool alive = true;
  bool cut_off = false, declared_lost = false;  // it lives, and the scheduler does not hear it; and knows
  std::int64_t crawls = 1;                      // its steps take so many times as long
  bool takes_part() const { return alive && !cut_off; }

  struct Stream {
    std::deque<worker::Launch> queue;
    std::uint64_t completed = 0;
    bool busy = false;
    std::uint64_t accumulated = 0;
    bool spoilt = false;   // what runs has read what was another's by then
    bool rubbish = false;  // or what a failed step has left
  };
  std::vector<std::vector<Stream>> streams;  // [device][stream]
  struct Unheard {                           // of a device's streams, by the core
    std::vector<worker::StepFailed> failures;
    std::map<std::uint8_t, std::uint64_t> completions, seen, told;
  };
  std::map<std::uint16_t, Unheard> unheard;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::map<std::int64_t, Cell>>
      memory;                                                      // (device, slab) -> offset
  std::map<std::uint64_t, worker::Receive> armed;                  // transfer -> where
  std::set<std::uint64_t> failed_receives;                         // by transfer
  std::vector<worker::Transmit> telling;                           // under way, to be told of their ends
  std::set<WorkerId> lost;                                         // nothing goes to them any more
  std::set<WorkerId> ready;                                        // links to them have been up
  std::array<std::map<std::int64_t, Cell>, worker::kTiers> below;  // by tier and offset there
  std::vector<std::uint32_t> slabs;                                // per device
  std::map<std::uint64_t, worker::ProbeReceive> probes;            // armed
  TimeNs timer = kNoTimer;
  bool closed = false;        // the scheduler knows that it is lost
  std::uint64_t left_at = 0;  // not 0: it was let go, with this version of losses
  std::map<TaskId, Ran> ran;  // where the minimum is asked for
  struct Told {               // what it had when it answered to this loss
    std::uint64_t version = 0;
    std::map<BlockId, std::set<DeviceId>> here;
    std::set<BlockId> used_up;
    std::map<TaskId, Ran> ran;
  };
  Told told;

  std::map<std::int64_t, Cell>& in(worker::Tier tier) { return below[static_cast<std::size_t>(tier)]; }
  void begin(const Knobs& knobs, int index);
};

struct World::Client {
  scheduler::Conn conn;
  msg::Welcome welcome;
  bool welcomed = false, dead = false;
  bool declared_lost = false;  // it lives, and the scheduler has given it up
  std::set<WorkerId> lost;
  std::uint64_t next_array = 1, next_request = 1;
  struct Request {
    std::uint64_t number = 0;
    GraphId graph;
    bool replied = false, refused = false, done = false, failed = false, cancelled = false, delivered = false;
    std::map<std::uint64_t, std::set<std::int64_t>> wanted;  // ArrayId -> blocks not here yet
    std::vector<std::uint64_t> fetched;                      // session numbers
    std::string why;
    std::vector<msg::Keep> keeps;
    TimeNs sent = 0;
    bool early = false;           // it came to the scheduler before any worker did
    int living = 0, gone = 0;     // workers that there were when it was sent, and that had been
    std::uint64_t announced = 0;  // the array's number, of an announcement; and what was announced
    std::vector<ir::Box> pieces;
  };
  std::map<std::uint64_t, Request> requests;
  struct Told {  // what it had not got when it answered to this loss, of requests that it spoke of
    std::uint64_t version = 0;
    std::map<std::uint64_t, std::map<std::uint64_t, std::set<std::int64_t>>> missing;
  };
  Told told;
  struct Held {
    std::uint64_t number = 0;
    ir::DType dtype = ir::DType::kFloat64;
    ir::Grid grid;
  };
  std::vector<Held> held;
  struct Last {  // program, to be submitted again
    std::vector<ir::Op> ops;
    std::vector<std::uint64_t> holds, fetches;
    std::vector<Held> made, read;
    std::uint64_t first = 0, next = 0;  // numbers of its own arrays
    int repeats = 0;                    // times that it came again
    std::uint64_t kept_by = 0;          // the request with which the scheduler was to keep it, or 0
  };
  std::optional<Last> last;
  struct Kept {  // an array that is on several workers
    std::uint64_t array = 0;
    int wanted = 0;
    int copies = 0, gone = 0;  // how many there were at least, when so many workers had gone
  };
  std::map<std::uint64_t, Kept> kept;  // by number
  std::map<std::uint64_t, int>
      copies_asked;  // the most copies that any request asked for, also one that failed; by number
  bool resting = false, rested = false;
  struct Gathered {
    ir::Grid grid;
    std::vector<ir::Box> pieces;  // its own
  };
  std::map<std::uint64_t, Gathered> gathered;              // by the ArrayId under which pieces are asked for
  std::set<std::pair<std::uint64_t, std::int64_t>> asked;  // of it, by workers
  std::map<std::uint64_t, std::uint64_t> ids;              // session number -> ArrayId
  std::map<std::uint32_t, WorkerId> owner_of;              // device -> process
  std::vector<DeviceId> places;                            // workers' devices
  std::set<std::pair<msg::BlockRef, std::uint64_t>> taking, took;  // (block, fetch op)
  std::set<std::tuple<msg::BlockRef, std::uint64_t, DeviceId>> lent;
  std::vector<std::pair<WorkerId, msg::Offer>> early;
  std::vector<std::pair<WorkerId, msg::Offer>> again;  // of a block that is being taken from elsewhere
  std::map<std::uint64_t, msg::Offer> granted;         // transfer -> offer
  std::uint64_t next_transfer = 1;
};

}  // namespace tilewise::sim
