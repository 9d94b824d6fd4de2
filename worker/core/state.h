// The worker core's tables. Everything is indexed by slot; slots are reused, ids are not.
//
//   ops      one entry per planned op, until retired      arrays   one per output of those
//   entries  what ops have in common with their replays   kept_plans   what may be replayed
//   copies   blocks (expected, here, or on their way) that something on this worker needs, per device
//   uses     who still needs a copy: (op, this device, reads left) or (op, other device)
//   tasks    points between expansion and completion      queues   per device and graph: order, window, ready list (queues.cc)
//
// Invariants (checked by check_invariants()):
//   * A copy is in its device's index under (array, block) and in its array's list, exactly once.
//   * Uses of a copy have distinct (op, device). A local use counts reads not yet enqueued.
//   * A copy without uses and without hold exists only while expected, receiving, or not yet complete; a replica also
//     while its array is held and its device is to keep copies, by its array's placement or by an op of its own (keep.cc).
//   * Memory of copies, of results made a second time to be dropped, and the reserve is what the arena says is in use; places in
//     the tiers below likewise.
//   * A spilled copy is in one tier below and has no memory; one that is being written or brought back keeps both until that
//     is over, as one that moves within memory does its two places.
//   * After a loss, until the Recover that answers it: a copy expected from a lost device has no source and waits; copies of
//     pinned arrays stay.
//   * Others are sent to a copy (Copy::relays) only while it is whole or its bytes are on their way; it is a spare like others.
//   * An offered copy stands in one place: its device's list of those that want memory, or the window's queue. What the window
//     counts is what copies are receiving from peers, or were from a living one when the owner was lost, and while somebody waits there, nobody who waits could begin.
//   * A queue stands in its device's lists of those that have something to do if it has, and is looked at after whatever may give it that.
//   * A waiting task hangs on exactly one unready copy; a ready one is in its queue's ready list exactly once.
#pragma once
#include "copy.h"
#include "device_state.h"
#include "shared.h"
#include "work.h"

#include <tilewise/base/check.h>
#include <tilewise/base/digest.h>
#include <tilewise/ir/cost.h>
#include <tilewise/ir/donation.h>
#include <tilewise/ir/geometry_cache.h>
#include <tilewise/ir/ready_order.h>
#include <tilewise/worker/core.h>

#include <array>
#include <boost/unordered/unordered_flat_map.hpp>
#include <deque>
#include <map>
#include <optional>
#include <tuple>

namespace tilewise::worker {

// This worker's own way out (drain.cc).
enum class Stage : std::uint8_t {
  kWorks,
  kStops,  // begins nothing new
  kStill,  // runs nothing, and keeps every block that it has
  kGoes    // only what is on its way to clients is waited for
};

struct Core::Impl {
  explicit Impl(Options o);

  // Entry points (core.cc)
  void step(std::vector<Event>& events, TimeNs now, Actions& out);
  TimeNs next_deadline() const;
  void drain_loopback();
  msg::PeerBatch& batch_to(DeviceId device);
  Slot outcome(msg::Outcome why);
  int local(DeviceId id) const;  // position of a local device, or -1
  std::vector<DeviceId> local_ids() const;

  // The log (log.cc)
  void on_log(msg::Log& log);
  void apply(msg::LogEntry& entry);
  void apply_plan(msg::Plan& plan);
  void apply_replay(const msg::Replay& replay);
  void set_constants(KeptPlan& kept, const ir::Constants& constants);
  Slot add_op(const Standing& standing, msg::PlannedOp& planned, std::uint64_t version = 0);
  Result<Slot> entry_of(msg::PlannedOp& planned);
  ir::Placement shared_placement(ir::Placement placement);
  void let_go_of_entry(Slot shared);
  Slot place_op(Slot shared, OpId id, std::int64_t level_ns, const Standing& standing, std::uint64_t shift);
  void read_from(Slot op, Slot array);
  void refuse(OpId op, const std::string& why);
  void keep_plan(const msg::Plan& plan);
  void forget_plan(std::uint64_t number);
  std::uint32_t family(const ir::Op& op);
  void enqueue_op(Slot op, const Standing& standing);
  void apply_release(const msg::Release& release);
  void release_some();
  void release_soon(Slot array);
  void apply_cancel(const msg::CancelGraph& cancel);
  void cancel_op(Slot op, Slot why);
  void apply_retire(const msg::Retire& retire);
  void maybe_forget(Slot op);
  void forget_retired();
  void forget(Slot op);
  void on_peer_lost(const msg::PeerLost& lost);
  void unpark();

  // After a loss (recovery.cc)
  Slot maker(Slot array, std::int64_t block) const;
  DeviceId owner_of(Slot array, std::int64_t block) const;
  bool reads_ahead(User user, std::int64_t block, std::uint16_t device);
  void pin(const msg::PeerLost& lost);
  void orphan(Slot copy);
  void answer(const msg::PeerLost& lost);
  void apply_recover(msg::Recover& recover);
  void settle_block(Slot op, Slot array, std::int64_t block, DeviceId owner);
  void adopt(Slot op, Slot copy);
  bool made_before(Slot task) const;
  bool is_coming(Slot task, std::size_t output) const;
  // A result that is made again though it is here, because others of its task are not: memory to make it in.
  struct Dropped {
    std::size_t output = 0;
    alloc::Extent extent;
  };
  static const Dropped* drops(const std::vector<Dropped>& results, std::size_t output);
  const Dropped* drops(Slot task, std::size_t output) const;
  void free_dropped(Slot task);
  void end_pins(std::uint64_t version);

  // Points that are to be made elsewhere (replace.cc)
  void hold(const msg::PeerLost& lost);
  void take_back(Slot op, std::uint16_t device, std::int64_t from);
  bool has_begun(Slot task) const;
  void requeue(Slot op, std::uint16_t device);
  void end_holds(std::uint64_t version);
  void give_away(const std::vector<msg::Tail>& moved);
  void discharge_moved(Slot op, std::uint16_t device, std::int64_t from, std::int64_t to);
  void disown(Slot copy);
  std::int64_t points_left(const OpState& op, std::uint16_t device, const ir::Box& box) const;

  // A worker is to leave (drain.cc)
  void apply_drain(const msg::Drain& drain);
  void keep(Slot array, std::int64_t block, std::uint16_t device, DeviceId from, WorkerId leaver);
  void kept_here(Slot copy);
  void end_keeping(WorkerId leaver, bool lost);
  void end_keeping_for_the_lost();
  void go_on();
  bool at_rest();
  bool owes_clients() const;
  bool lends_gpus() const;
  void watch_leaving();
  TimeNs leaving_deadline() const;

  // Copies that stay (keep.cc)
  bool is_asked(const Copy& copy) const;
  bool take_copy(Slot task, Slot copy);
  void end_keep(Slot op);

  // Copies and uses (copies.cc)
  Slot find_copy(Slot array, std::int64_t block, std::uint16_t device) const;
  static std::int64_t bytes_of(const ArrayState& array, std::int64_t block);
  Slot make_copy(Slot array, std::int64_t block, std::uint16_t device, DeviceId owner, bool of_task = false);
  void count_uses(Slot copy);
  void add_uses(Slot copy, User user, bool here = true, bool elsewhere = true);
  void add_use(Slot copy, Slot op, DeviceId device, std::int64_t reads);
  Slot last_uses_without(const Copy& copy, Slot before, Slot next) const;
  void drop_use(Slot copy, Slot op, DeviceId device);
  void discharge_read(Slot copy, Slot op);
  void owe_done(const Copy& copy, Slot op);
  void send_done(const Copy& copy, Slot op);
  msg::Done done_of(const Copy& copy, OpId op) const;
  bool needed(const Copy& copy) const;
  bool stays_for_its_task(const Copy& copy) const;
  bool tied(const Copy& copy) const;
  static bool whole(const Copy& copy);
  bool keeps(const Copy& copy) const;
  void forget_spares(std::uint16_t device);
  void maybe_release(Slot copy);
  void free_memory(Slot copy);
  void destroy_copy(Slot copy);
  void seal(Slot copy);
  void fail_copy(Slot copy, Slot why);
  void wake(Slot copy);
  void offer(Slot copy, Use& use, DeviceId via = {});
  void offer_wanted(Slot copy);
  void flush_pending_dones(std::uint16_t device);

  // Queues, and which of them have something to do (queues.cc)
  Slot queue_for(std::uint16_t device, const Standing& plan);
  Slot queue_of(const DeviceState& device, GraphId graph) const;
  std::int64_t queue_position(const DeviceState& device, GraphId graph) const;
  void relist(Slot queue);
  void look_at(Slot queue);
  void look_at_all_of(Slot op);
  void may_have_ended(Slot queue);
  void drop_ended_queues();
  void retry_blocked(std::uint16_t device);
  void check_queues(const DeviceState& device) const;

  // Tasks (tasks.cc)
  void expand_all();
  void put_in_order(Queue& queue, Slot t);
  bool expand_one(std::uint16_t device, Slot queue);
  bool has_room(std::uint16_t device, const Queue& queue) const;
  bool expand_eager(std::uint16_t device, Slot queue);
  Slot expand_task(std::uint16_t device, Slot queue, Slot op, Slot& missing);
  void wait_for(Slot task, Slot copy);
  bool awaited_elsewhere(const Task& task) const;
  bool look_ahead(const Task& task, std::int64_t& level) const;
  static constexpr std::int64_t kNothingCame = -1;
  void make_ready(Slot task, std::int64_t came_bytes);
  std::int64_t growth_of(const Task& task);
  bool short_of_memory(std::uint16_t device) const;
  void next_op(std::uint16_t device, Queue& queue);
  bool all_here(Slot op, std::uint16_t device, std::int64_t& bytes);
  void usable(Slot copy);
  void leave_eager(Slot task);
  void advance(std::uint16_t device);
  void launch_alone();
  bool held_back(const Task& task) const;
  enum class Launched { kYes, kWaiting, kBlocked, kFinished };
  Launched launch_steps(Slot task);
  void enqueue_step(Slot task, const std::vector<Slot>& inputs, Launch& launch);
  std::span<const BlockRead> reads_of(const OpState& op, const Task& task, std::int64_t step);
  ir::Donors donors_of(Slot task, const std::vector<Slot>& inputs, std::span<const BlockRead> reads);
  // Clients' memory (adopt.cc)
  bool lent_by_client(const Copy& copy) const;
  bool adopt(Slot task, const std::vector<Slot>& inputs, std::span<const BlockRead> reads);
  void give_back(Slot copy);
  void tell_done(const msg::Done& done, bool foreign);
  bool give_results_memory(Slot task, const std::vector<Slot>& inputs, const ir::Donors& donors,
                           const Asker& asker, alloc::Fence& wait_for);
  bool admits_task(Slot task, const std::vector<Slot>& inputs, const ir::Donors& donors, Asker& asker);
  void run_failed(Slot task);
  void finish_task(Slot task);
  void fail_task(Slot task, Slot why);
  Slot lowest_task(const DeviceState& device) const;
  bool is_lowest(Slot task) const;
  bool has_enough(const StreamState& stream) const;
  double note_time(DeviceState& device, const StreamState& stream, const StreamCompleted& event);
  int pick_stream(std::uint16_t device) const;
  void on_completed(const StreamCompleted& event);
  void on_step_failed(const StepFailed& event);
  void explain_failures(DeviceState& device, const StreamCompleted& event);
  void fail_step(const StepFailed& event);

  // Whose turn it is (fair_share.cc)
  void join_share(DeviceState& device, SessionId session, std::uint32_t weight);
  void leave_share(DeviceState& device, SessionId session);
  static FairShare& share_of(DeviceState& device, SessionId session);
  void charge(DeviceState& device, Slot queue, double ns);
  Slot next_queue(DeviceState& device);

  // Memory (memory.cc)
  std::optional<alloc::Extent> take(std::uint16_t device, std::int64_t bytes, bool settled,
                                    const Asker& asker, alloc::Fence& wait_for);
  bool awaits_slab(std::uint16_t device, std::int64_t bytes);
  std::optional<alloc::Extent> find_memory(std::uint16_t device, std::int64_t bytes, bool settled,
                                           const Asker& asker, alloc::Fence& wait_for);
  Obstacle obstacle(std::uint16_t device, const Asker& asker);
  bool admits(std::uint16_t device, const Asker& asker, Obstacle obstacle);
  std::int64_t freed_by(const Task& task, const std::vector<Slot>& inputs) const;
  static void served(DeviceState& device, const Asker& asker);
  bool still_asks(const DeviceState& device, SessionId session) const;
  std::optional<alloc::Extent> take_reserved(DeviceState& device, std::int64_t bytes, bool settled,
                                             alloc::Fence& wait_for);
  bool roomy(const DeviceState& device, std::int64_t bytes) const;
  bool owes_reserve(const DeviceState& device, std::int64_t bytes) const;
  bool crowds_out(std::uint16_t device, std::int64_t bytes, const NextUse& use);
  std::optional<std::int64_t> wanted_by(const Queue& queue, const NextUse& use, std::int64_t enough);
  std::int64_t wanted_before(std::uint16_t device, const NextUse& use, std::int64_t enough);
  std::int64_t grows_by(Slot op);
  NextUse first_reader(const Copy& copy) const;
  bool evict(std::uint16_t device, std::int64_t bytes);
  std::int64_t step_bytes(std::uint16_t device, const OpEntry& entry) const;
  std::vector<std::int64_t> step_pieces(const OpEntry& entry) const;
  void want_reserve(std::uint16_t device, const OpEntry& entry);
  void drop_reserve(DeviceState& device);
  static std::int64_t reserved(const DeviceState& device);
  static bool has_reserve(const DeviceState& device);
  void restore_reserve(std::uint16_t device);
  bool idle(const DeviceState& device) const;
  Slot starved_task(const DeviceState& device) const;
  TimeNs last_hope(const DeviceState& device) const;
  Slot stuck_task(const DeviceState& device) const;
  void check_stuck();
  bool others_may_free_a_place(const DeviceState& device) const;

  // Who may send (grants.cc)
  Turn turn_of(const Copy& copy);
  void list_ungranted(Slot copy);
  void list_fresh(Slot copy);
  void grant_fresh();
  void open_window();
  void try_offer(Slot copy, bool has_turn);
  void try_grants(std::uint16_t device);
  bool grant(Slot copy, bool lowest, bool has_turn);
  void leave_window(Copy& copy);
  void end_offer(Slot copy);
  bool lowest_waits(Slot copy) const;
  Slot ungranted_input(const DeviceState& device, Slot task) const;

  // Tiers (tiers.cc)
  void give_memory(Slot copy, const alloc::Extent& extent);
  alloc::Extent lose_memory(Slot copy);
  alloc::Fence readers_of(const Copy& copy) const;
  void refix(Slot copy);
  void lend(Slot copy, DeviceId to);
  void send_from_below(Slot copy, DeviceId to);
  bool may_lend(const Copy& copy) const;
  void let_go(Slot copy);
  void forget_below(Copy& copy);
  void maybe_leave_place(Slot copy);
  bool spillable(Slot copy) const;
  std::int64_t next_point(const Copy& copy, const OpState& op);
  NextUse next_use(const Copy& copy);
  NextUse use_of(Slot task) const;
  void lock_lowest(std::uint16_t device);
  void find_victims(std::uint16_t device);
  void add_victim(DeviceState& device, Slot copy);
  Slot pop_victim(std::uint16_t device, Victims& from, const NextUse& later_than);
  Slot best_victim(std::uint16_t device, const Asker& asker, std::int64_t bytes);
  Slot next_victim(std::uint16_t device, const Asker& asker, std::int64_t bytes);
  bool drop_clean(std::uint16_t device, const Asker& asker, std::int64_t bytes);
  void make_room(std::uint16_t device, std::int64_t bytes, bool settled, const Asker& asker);
  bool write_out(Slot copy);
  // From pinned memory to disk (demotion.cc)
  void list_spilled(Slot copy);
  void unlist_spilled(Slot copy);
  bool demotable(Slot copy) const;
  std::vector<Slot> used_later(const NextUse& use, std::int64_t bytes, std::int64_t ahead, std::size_t most);
  bool makes_place(Slot copy, std::int64_t ahead);
  void demote(Slot copy, const alloc::Extent& place);
  void demoted(const Io& io, const IoDone& event);
  // In the memory of a neighbour (guests.cc)
  static Tier tier_of_place(const Copy& copy);
  MemoryRef lodging_of(const Copy& copy) const;
  bool takes_guest(const DeviceState& host, std::int64_t bytes) const;
  bool lodge(Slot copy);
  void list_guest(Slot copy);
  void unlist_guest(const Copy& copy);
  void touch_host(const Lodging& lodging);
  static bool rests(const Copy& copy);
  std::optional<alloc::Extent> promise(const DeviceState& device, const DeviceState& host, std::int64_t bytes,
                                       Tier& tier);
  bool send_away(Slot copy);
  std::int64_t dismiss_guests(std::uint16_t host, std::int64_t bytes);
  bool forget_clean_guest(DeviceState& host);
  void dismissed(const Io& io, const IoDone& event);
  void begin_io(Slot copy, Way way);
  // Within memory (compaction.cc)
  bool may_move(const Copy& copy) const;
  bool compact(std::uint16_t device, std::int64_t bytes, Room of);
  void relocate(Slot copy, const alloc::Extent& to);
  void let_go_moving(Slot copy);
  void relocated(const Io& io, const IoDone& event);
  void maybe_end_clearing(std::uint16_t device);
  static bool open_cleared(DeviceState& device);
  std::int64_t kept_for_room(std::uint16_t device) const;
  void may_move_now(DeviceState& device);
  struct Store;
  bool may_use(const DeviceState& device, Tier tier) const;
  std::optional<alloc::Extent> find_place(DeviceState& device, Tier tier, std::int64_t bytes);
  void place_freed(Tier tier);
  void free_place(Tier tier, const alloc::Extent& below, const Lodging& lodging);
  void free_place(Tier tier, const alloc::Extent& place);
  bool forget_clean(Tier tier, std::int64_t bytes);
  void leave(Slot copy);
  void want_back(Slot task);
  void try_returns(std::uint16_t device);
  static bool comes_before(const DeviceState& device, const Asker& asker);
  bool bring_back(Slot copy, const Asker& asker);
  Asker asker_of(const Copy& copy, Claim claim);
  void on_io(const IoDone& event);
  Store& store(Tier tier) { return stores[static_cast<std::size_t>(tier)]; }
  const Store& store(Tier tier) const { return stores[static_cast<std::size_t>(tier)]; }
  bool asks_disk_again() const { return store(Tier::kDisk).refuses && store(Tier::kDisk).tries < 2; }
  void retry_disk();
  static constexpr int kSlabTries = 2;
  bool asks_slab_again(const DeviceState& device) const;
  void retry_slabs();

  // Peers (peers.cc)
  void on_batch(WorkerId from, msg::PeerBatch& batch);
  void unpark_batches();
  void on_subscribe(const msg::Subscribe& m);
  void on_offer(msg::Offer& m);
  void on_grant(const msg::Grant& m);
  void on_done(const msg::Done& m);
  void on_gone(const msg::Gone& m);
  void on_not_sent(const NotSent& event);
  void on_transfer(const TransferDone& event);
  void end_claims(Slot copy, const std::vector<Slot>& claims, DeviceId device);
  void subscribe(Slot copy, Slot op, DeviceId via = {});
  using Word = std::variant<msg::Subscribe, msg::Done>;
  void park(Word word, OpId op);
  bool claims(Slot copy, Slot op) const;
  bool owes(int device, const msg::BlockRef& block, OpId op, DeviceId owner) const;
  bool valid_block(const msg::BlockRef& block, Slot array) const;
  bool to_come(Slot array, std::int64_t block, DeviceId owner) const;

  // Where the owner's way has failed (detours.cc)
  void go_round(Slot copy, Slot op);
  Slot sibling_of(Slot copy) const;
  DeviceId another_holder(Slot copy, Use& use);

  // Whose memory can be read from here (reach.cc)
  enum class Reach : std::uint8_t {
    kNone,
    kCopies,
    kReads
  };  // kCopies: by the reader, who is its own sender
  void on_slab_reached(const SlabReached& e);
  void forget_slabs(DeviceId from);
  Reach reach(DeviceId from, std::uint32_t slab, std::uint16_t to) const;
  bool lends(std::uint16_t from, DeviceId to) const;
  bool is_copied_to(std::uint16_t device) const;

  // Trees over hosts (trees.cc)
  struct Route {
    bool wait = false;    // until a leader has the block, or will not have it
    DeviceId via;         // none: from the owner
    bool relays = false;  // others are to get it from there
  };
  std::uint32_t number_of_host(const std::string& id);
  bool is_far(DeviceId device) const;
  void say(DeviceId from, DeviceId to, const msg::BlockRef& block, msg::RelayWord word,
           std::uint64_t transfer = 0);
  Route route(Slot copy, const Use& use);
  std::size_t fan_out_of(const Copy& copy) const;
  bool passes_on(const Copy& copy, std::size_t leader) const;
  void dismiss(const Copy& copy, Leader& leader);
  void end_tree(Copy& copy);
  void claim_dropped(Slot copy, DeviceId device);
  void leaders_lost(Slot copy, const std::vector<DeviceId>& dead);
  void on_relay(const msg::Relay& m);
  void answer_relays(const msg::Offer& m);
  void stop_relaying(Slot copy);
  void set_relays(Slot copy, bool relays);
  void decline_ungranted(std::uint16_t device);
  void end_relays(Slot array);
  void on_part(const PartArrived& event);
  bool is_followed(std::uint64_t transfer) const;
  void abandoned_over(std::uint64_t transfer);
  static bool has_some(const Copy& copy);
  void on_relayed_grant(const msg::Grant& m);
  void on_sent(const Sent& event);
  DeviceId sender_of(const Copy& copy) const;
  void turn_to_owner(Slot copy);

  // Speeds of links (links.cc)
  static constexpr std::size_t kMaxLinks = 16'384;
  struct LinkState {
    msg::LinkStats stats;
    std::int32_t under_way = 0;
    TimeNs since = 0;  // counted up to here
    bool dirty = false;
  };
  void transfer_began(Copy& copy);
  void transfer_ended(Copy& copy, bool arrived);
  void report_links(std::vector<msg::LinkStats>& out_links);
  void forget_links(WorkerId peer);

  // Measuring links (probes.cc)
  struct Probing {
    msg::LinkProbe asked;
    std::uint16_t device = 0;
    WorkerId peer;
    TimeNs until = 0;          // given up then
    bool begun = false;        // the peer's link is up
    TimeNs since = 0;          // of the first arrival
    TimeNs asked_at = 0;       // for what is on its way
    std::size_t size = 0;      // of the table of sizes
    std::vector<TimeNs> took;  // of this size
    msg::LinkProbed told;
  };
  bool has_work() const;
  void on_link_probe(const msg::LinkProbe& m);
  void begin_probe();
  void ask_for_probe();
  void probe_arrived(const TransferDone& event);
  void end_probe(msg::ProbeEnd end, std::string why);
  void check_probe();
  void on_probe(WorkerId from, const msg::Probe& m);
  void forget_probes(WorkerId peer);

  // For people (notes.cc)
  static constexpr std::size_t kMaxPairs = 16'384;
  struct PairState {
    msg::PairStats stats;
    bool dirty = false;
  };
  void took_in(Slot copy, msg::Lane lane);
  void wrote_or_read(const Io& io);  // that of a copy, to or from below
  void transfer_failed(msg::Lane lane);
  Wait why_idle(const DeviceState& device) const;
  void note_waits();
  msg::TracedStep note_of(const DeviceState& device, TimeNs until) const;
  void report_pairs(std::vector<msg::PairStats>& out_pairs);

  // Reports (report.cc)
  bool has_news() const;
  void report();
  std::uint64_t log_told();
  void mark_dirty(Slot op, std::uint16_t device);
  std::vector<msg::DeviceStats> device_stats() const;

  // Self-checks (check.cc)
  struct Tiers {  // of a device, counted anew
    std::size_t resident = 0, wanted = 0, pinned = 0;
    std::int64_t writing = 0, ios = 0;
    std::array<std::int64_t, kTiers> reading{}, spilled{}, below{};
    std::map<SessionId, std::int64_t> bytes, leaving;
    std::vector<std::int64_t> lodged;  // by host
  };
  void check_tiers(Slot copy, Tiers& tiers) const;
  void check_shares(const DeviceState& device, const Tiers& tiers) const;
  void check_tree(const Copy& copy) const;
  void check_window(const std::map<WorkerId, std::int64_t>& on_their_way, std::int64_t waiting) const;
  void check_below(const std::vector<Tiers>& tiers) const;
  void check_invariants() const;
  std::uint64_t digest() const;
  std::string describe() const;

  Options options;
  TimeNs now = 0;
  Actions* out = nullptr;

  std::vector<DeviceState> devices;
  Pool<SharedEntry> entries;
  ir::GeometryCache geometries;
  TaskTables tables;
  static constexpr std::size_t kSharedPlacements = 16;
  std::vector<ir::Placement> placements;  // of the last ops, each once
  Pool<OpState> ops;
  Pool<ArrayState> arrays;
  Pool<Copy> copies;
  Pool<Use> uses;
  Pool<Tree> trees;
  Pool<Task> tasks;
  Pool<Queue> queues;
  std::vector<msg::Outcome> outcomes;
  boost::unordered_flat_map<std::uint64_t, Slot> op_by_id, array_by_id;  // looked up, never walked
  boost::unordered_flat_map<std::uint32_t, RemoteDevice> remote;         // DeviceId -> where
  std::map<std::uint32_t, PeerState> peers;                              // WorkerId -> peer

  std::map<std::uint64_t, KeptPlan> kept_plans;  // by number
  std::uint64_t log_next = 1;
  std::map<std::uint64_t, msg::LogEntry> log_early;  // arrived before its turn
  // Cancellations that were applied while steps of theirs ran: not told before these are over, so that whoever hears of it may
  // take away what they use.
  struct Ending {
    std::uint64_t entry = 0;
    std::vector<OpId> ops;
  };
  std::deque<Ending> ending;
  std::map<OpId, std::vector<Word>> parked;  // about ops not known yet
  std::size_t words_parked = 0;
  std::deque<PeerBatchReceived> parked_batches;  // from peers not announced yet
  OpId last_op;                                  // the highest planned: ids rise along the log
  WorkerId last_joined;                          // ids rise: an unknown one above it will be announced
  std::map<std::tuple<DeviceId, std::uint32_t, std::uint16_t>, Reach>
      reached;                              // (of a peer's GPU, slab, by our device)
  std::map<std::uint64_t, Slot> transfers;  // nonce -> copy
  Window window;                            // of what peers have been granted
  std::vector<Slot> fresh_offers;           // of this step, until all that it brings is known
  std::uint64_t next_transfer = 1;
  struct Relaying {
    Slot copy = kNone;          // being passed on
    std::uint64_t follows = 0;  // the transfer that brought it, where it was sent on while that went on
  };
  std::map<std::pair<WorkerId, std::uint64_t>, Relaying> relaying;  // (to whom, its nonce)
  std::map<std::string, std::uint32_t> hosts;                       // by id, but this one
  std::uint32_t last_host = 0;
  std::int64_t relays_live = 0;  // copies that others are sent to
  // What lies below memory: a file, a slab of pinned host memory.
  struct Store {
    explicit Store(std::int64_t bytes);
    alloc::Arena places;
    std::int64_t ios = 0;  // under way
    bool refuses = false;  // it is full, though not by our count: until something of ours goes
    int tries = 0;         // since it took something
    bool broken = false;   // writes fail: what is there can be read
    // Of pinned memory (demotion.cc).
    std::vector<Slot> spilled;                    // copies that are only here
    std::vector<std::pair<NextUse, Slot>> order;  // of those, by next use; entries go stale
    std::uint64_t order_at = 0;                   // the step in which it was made
    std::int64_t news = 0;                        // copies that are not in it
    std::int64_t demoting = 0, ended = 0;         // on their way to disk
    NextUse demoting_from;                        // the first use of those
    std::int64_t demoting_for = 0;                // the largest block for whose place they go
  };
  std::array<Store, kTiers> stores;  // by Tier
  std::map<std::uint64_t, Io> ios;   // under way
  std::uint64_t next_io = 1, step_number = 0;
  bool launching = false;  // `inputs` are about to be read
  bool crowded = false;    // admits() has refused what would have crowded out others
  // Of ops whose steps run alone: while a task waits for its turn nothing is launched, nor while its step runs.
  Slot next_alone = kNone;
  bool alone_runs = false;
  std::int64_t flights = 0;  // steps enqueued and unfinished, on all devices
  std::vector<Slot> locked;  // inputs of a device's lowest task (find_victims)
  bool tiers_dirty = false;
  std::int64_t disk_taken = 0;  // DiskTaken
  // Receives of blocks whose owner was lost, or that have failed, until the transport lets go: memory, and, where who sends lives, a part of what is on its way.
  struct Abandoned {
    std::uint16_t device = 0;
    alloc::Extent extent;
    WorkerId in_window;
    std::int64_t bytes = 0;
    bool over = false;  // what came is still being sent on
  };
  std::map<std::uint64_t, Abandoned> abandoned;
  std::map<Slot, std::vector<Dropped>> results_dropped;  // by task, from its admission to its end
  std::map<Slot, msg::Done> adopted;                     // what is owed for copies that are, when they go
  Slot handing_over = kNone;                             // the copy whose reader is adopting it, just now
  std::uint64_t recovery = 0;                            // version of the last Recover applied
  std::uint64_t losing = 0;                              // of a loss that no Recover has answered yet, or 0
  bool orphans = false;              // there may be copies that wait for a device that was lost
  std::uint64_t batch_recovery = 0;  // of the sender of the batch being handled
  struct Leaving {
    std::uint64_t round = 0;
    std::int64_t left = 0;  // copies to be kept here that are still to come
    bool told = true;
    bool ending = false;  // it stays after all
  };
  std::map<std::uint32_t, Leaving> leaving;  // WorkerId -> those that are to leave
  Stage stage = Stage::kWorks;
  TimeNs stage_since = 0, told_at = 0;  // when this stage began; of the last Drained
  bool told_leave = false;
  std::vector<Slot> to_forget;     // retired ops of which something has just ended
  std::vector<Slot> ended_queues;  // that may have nothing left
  mutable std::int64_t queues_looked_at = 0;
  std::deque<Slot> releasing;  // arrays with copies to look at
  std::vector<std::pair<Slot, std::uint16_t>> dirty;
  std::vector<std::pair<OpId, std::uint16_t>> holds;  // shares that are held ...
  std::uint64_t holds_until = 0;                      // ... until a Recover of this version, or a later one
  bool report_now = false, log_moved = false;
  TimeNs last_report = 0;
  TimeNs stuck_again_at =
      0;  // the word has been said since the last event, and is said again then; 0: it has not
  msg::PeerBatch loopback;
  std::map<std::uint32_t, msg::PeerBatch> outgoing;  // WorkerId -> batch of this step
  std::array<msg::LaneStats, msg::kLaneCount> lanes{};
  bool lanes_dirty = false;
  std::map<std::pair<WorkerId, std::uint8_t>, LinkState> links;  // by peer and class of size
  std::map<std::tuple<DeviceId, DeviceId, msg::Lane>, PairState> pairs;
  std::optional<Probing> probing;
  std::uint64_t probe_transfer = 0;  // bytes on their way to be measured, or given up since; 0: none
  std::uint64_t last_probe = 0;      // the highest nonce asked
  std::map<WorkerId, std::uint64_t> probes_served;  // the last number sent to each
  Counters counts;
  std::vector<std::string> families;  // names of those seen, by number

  // Scratch, reused.
  std::vector<ir::Read> reads;
  std::vector<BlockRead> block_reads;
  std::vector<Slot> inputs;
  std::vector<Slot> first_inputs;  // growth_of()
  std::vector<Slot> replay_inputs;
  std::vector<ir::Geometry::Users> users_out;
  std::vector<ir::Placement::Share> shares_out;
  std::vector<ir::Read> reads_ahead_out;
  std::vector<ir::Geometry::Users> next_users;
};

inline std::uint64_t copy_key(Slot array, std::int64_t block) {
  return (std::uint64_t{array} << 32) | static_cast<std::uint64_t>(block);
}

}  // namespace tilewise::worker
