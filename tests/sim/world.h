// A whole cluster in one thread from one seed: the very cores the daemons link, under virtual time, with messages
// delayed, reordered and duplicated. Blocks are 64-bit values; an oracle that knows only the plan says what each must
// be, and every read of every step is compared with it, at its start and at its end.
#pragma once
#include "counted.h"
#include "minimum.h"
#include "oracle.h"

#include <tilewise/base/prng.h>
#include <tilewise/ir/checkpoint.h>
#include <tilewise/scheduler/core.h>
#include <tilewise/worker/core.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>

namespace tilewise::sim {

struct Knobs {
  std::uint64_t seed = 1;
  int workers = 2, devices_each = 2, streams = 1, clients = 1, requests = 3;
  std::int64_t memory_bytes = 1 << 20, slab_bytes = 1 << 18;
  bool map_peers = true, task_tables = true, link_probes = true;
  double duplicate = 0.1, fail_step = 0, cancel = 0, kill_worker = 0;
  TimeNs unheard_ns =
      0;  // what a device's steps say is collected up to so much later, and a little more; 0: each at once
  TimeNs max_delay_ns = 200'000;
  TimeNs lazy_ns = 0;  // the scheduler's
  int window = 16;
  int releases_a_step = 2048;
  int kills = 0;                  // workers that die, one after another, besides kill_worker's
  std::int64_t spill_bytes = 0;   // of each worker's disk; 0: none
  std::int64_t pinned_bytes = 0;  // of each worker's pinned memory; 0: none
  int pin_every = 1;              // so many of its devices share one that may spill there
  bool neighbours = false;        // devices of a worker keep each other's blocks while they have room
  bool uneven = false;            // every second device of a worker has four times the memory
  bool gpus = false;              // those that may are GPUs
  TimeNs disk_ns = 0;             // a block's way to or from it takes up to this long
  double disk_full = 0;           // so often a write finds no room, though there should be
  double disk_fails = 0;          // so often a read or a write fails for good
  double respawn = 0;             // and for each, whether another one comes after a while
  TimeNs kill_span_ns = 0;
  TimeNs recovery_wait_ns = 30 * kSecond;
  int drains = 0;             // workers that are told to leave, within kill_span_ns
  double undo = 0;            // so often such a wish is taken back a little later
  int scheduler_crashes = 0;  // within kill_span_ns
  double checkpoint = 0;      // after a step of the scheduler
  int breaks = 0;             // of links to the scheduler, within kill_span_ns; their peers come back in time
  double vanish = 0;          // of the clients, likewise: for good
  TimeNs lease_ns = 0;        // of everybody
  double copies = 0;          // of the submissions: so many hold their arrays on several workers
  int recompute_ops = 0;      // more of them before a held array, and its past is cut; 0: the usual limit
  double poison = 0;          // so often a step is chosen to take its worker down, then and whenever it runs
  double mute = 0;            // of these deaths: so many supervisors say nothing
  int clogs = 0;    // times when a subset of all ways delivers nothing for a while, then everything in order
  int relinks = 0;  // of links between peers that break and are made again after a while: transfers end
  double loss = 0;  // so often a message is lost on its way and sent again, as TCP does
  double slow_links = 0;  // of the ways between processes: up to kSlowest times the usual delays
  double slow_devices = 0;
  double slab_fails = 0;                           // so often a device gets no more memory
  int gpu_every = 0;                               // not 0: each of so many devices of a worker is a GPU
  int classes = 1;                                 // numeric classes, of which workers are in turn
  std::int64_t in_flight = 0, in_flight_peer = 0;  // worker::Options; 0: so much that it does not matter
  TimeNs turn_ns = 0;     // what a process hears within up to so long is one step's; 0: each by itself
  double send_fails = 0;  // so often what was granted is not sent: half of those who do not send say so
  int hosts = 1;          // on which workers and clients are, in turn; nothing is mapped between them
  std::int64_t tree_bytes = 64 << 10;  // larger blocks go as trees between hosts ...
  bool parts = false, chains = false;  // ... in parts, and from each host to one other
  double announces = 0;                // of the requests: all clients announce pieces of one array
  double wrong = 0;                    // of the announcements
  double lists = 0;               // of the ops: calls on listed blocks, besides those that come with `pairs`
  double empty = 0.05;            // of the extents of new arrays: may be 0
  bool uploads = true;            // some arrays come from clients
  bool checkpoint_files = false;  // of anchors that no other worker can take
  bool own_folders = false;       // of each host, though they should see one
  double file_fails = 0;          // so often a step on a checkpoint fails
  int file_losses = 0;            // files that somebody removes or spoils, within kill_span_ns
  double new_folder = 0;          // of the scheduler's lives
  bool minimum = false;           // what is made again after a loss is compared with an oracle
  double pairs = 0;               // of the ops: kernels with two results, or on listed blocks
  double lends = 0;               // of the blocks that clients read in place: kept for long
  int partitions = 0;             // of two workers, within kill_span_ns
  int zombies = 0;                // workers that lose the scheduler for good, within kill_span_ns, and go on
  int moves = 0;  // points of running ops go to other devices: 1 by lot, 2 by what is seen of their speeds
  TimeNs moves_every_ns = 0;
  int late = 0;           // workers that come within kill_span_ns
  int queue_steps = 256;  // ahead of a stream
  int untried_steps =
      256;  // of a kernel that has never run; the worker's own 2 would take their rare branches from known seeds
  int blocks = 0;         // not 0: each request makes an array of so many, a millisecond each ...
  int slower = 1;         // ... and so many on the first worker
  TimeNs silence_ns = 0;  // after which they notice, and once more as long until one of them leaves
  TimeNs hush_ns = 0;     // a link silent for so long is closed by the scheduler; 0: in hours
  int pauses = 0;         // of processes that stand still for a while, within kill_span_ns
  int one_ways = 0;       // ways that lose everything for good, to and from anybody, within kill_span_ns
  double closes = 0;      // of the clients that vanish: their links are closed, or they say that they leave
  int acts = 0;           // times when everything breaks, and then some of it heals
  std::size_t held_ranges = 1'000'000;  // of one answer to a loss
  int alloc_fails_at = 0;               // the so-many-th request for memory, of whatever kind, fails
  bool alloc_lasts = false;             // and all after it
  int dies = 0;  // not 0: the process that runs it, of this signal or Death (last_words.h)
  static constexpr std::int64_t kSlowest = 100, kLongestClog = 40, kLongestLoan = 400, kMostLosses = 6;
  TimeNs longest_delay_ns() const;
  TimeNs stuck_ns() const;  // after which what waits for memory is said to be stuck
  static Knobs from_seed(std::uint64_t seed);
  // The same with workers dying all the time, and nothing else that could end a graph.
  static Knobs storm(std::uint64_t seed);
  // One of both, and the scheduler dies too.
  static Knobs restarts(std::uint64_t seed);
  // Workers that an operator wants to leave.
  static Knobs draining(std::uint64_t seed);
  // The same with links that break and come back, and clients that do not.
  static Knobs flapping(std::uint64_t seed);
  // Workers die and leave, and clients want their arrays on several of them.
  static Knobs copying(std::uint64_t seed);
  // Workers have supervisors, and one task takes each worker down that runs it.
  static Knobs poisoned(std::uint64_t seed);
  // Steps fail, of which their workers hear late.
  static Knobs failing(std::uint64_t seed);
  // Pairs of workers that lose each other.
  static Knobs partitioned(std::uint64_t seed);
  // Workers that are declared lost and live.
  static Knobs fencing(std::uint64_t seed);
  // Silence is noticed, and processes stand still longer than that; ways that lose everything in any direction.
  static Knobs silent(std::uint64_t seed);
  // Everything breaks at once, then some of it heals, and what is left must get on.
  static Knobs two_acts(std::uint64_t seed);
  // Memory of some kind cannot be had, once or from then on.
  static Knobs starving(std::uint64_t seed);
  // Dozens of workers.
  static Knobs large(std::uint64_t seed);
  // Several clients announce pieces of the same arrays; they vanish, are wrong, change their minds.
  static Knobs gathering(std::uint64_t seed);
  // Several hosts, and blocks that go as trees between them.
  static Knobs trees(std::uint64_t seed);
  // Any of these, with points of running ops that go from one device to another, and workers that come late.
  static Knobs moving(std::uint64_t seed);
  // Anchors in files, of a disk that fails.
  static Knobs files(std::uint64_t seed);
  // Losses, and nothing that an oracle of what must be made again leaves out.
  static Knobs least(std::uint64_t seed);
  // The same with little memory and a disk below it.
  static Knobs spilling(std::uint64_t seed);
  // Sessions of different weight that want more memory than there is, with a disk below it as a rule.
  static Knobs crowding(std::uint64_t seed);
  std::int64_t memory_of(int device) const {
    return uneven && device % 2 == 1 ? 4 * memory_bytes : memory_bytes;
  }
  bool workers_die() const {
    return kills > 0 || kill_worker > 0 || partitions > 0 || poison > 0 || zombies > 0 || may_be_lost();
  }
  // Also somebody who lives.
  bool may_be_lost() const { return hush_ns > 0 || one_ways > 0 || acts > 0; }
  bool journals() const { return scheduler_crashes > 0 || acts > 0; }
  bool pins(int device) const { return pinned_bytes > 0 && device % pin_every == 0; }
  std::uint8_t kind(int device) const {  // device::Kind
    return (gpus && pins(device)) || (gpu_every > 0 && device % gpu_every == 0) ? 1 : 0;
  }
  std::string gpu(int worker, int device) const;  // worker::DeviceSpec::gpu
  // And with pinned memory between the two, or with nothing but that.
  static Knobs pinning(std::uint64_t seed);
  std::string describe() const;

 private:
  void add_delays(std::uint64_t seed);
  void add_neighbours(Prng& p);  // to devices that spill
  void add_hosts(std::uint64_t seed);
  void add_windows(std::uint64_t seed);
  void add_turns(std::uint64_t seed);
};

struct Outcome {
  std::uint64_t digest = 0;
  std::int64_t events = 0, blocks_checked = 0, requests_done = 0, requests_failed = 0, requests_refused = 0;
  Counts covered;                  // what happened how often
  std::int64_t allocations = 0;    // requests for memory that might have failed
  std::int64_t patience_used = 0;  // of the time that demanded requests had, at most; per cent
  TimeNs last_done_ns = 0;         // when the last request was
  std::string violation;           // empty: none
};

class World {
 public:
  explicit World(Knobs knobs);
  ~World();
  // To the end: every request answered, everything released, nothing left anywhere.
  Outcome run();

 private:
  struct Worker;
  struct Client;
  struct Cell;

  // `idle`: it happens also in a cluster that has nothing to do.
  void at(TimeNs delay, std::function<void()> what, bool idle = false);
  TimeNs jitter();
  void violate(std::string what);

  using Way = std::pair<std::uint64_t, std::uint64_t>;  // WorkerIds, or kScheduler
  static constexpr std::uint64_t kScheduler = 0;

  // scheduler side
  void to_scheduler(scheduler::Conn from, msg::Message message, bool ordered);
  void reach_scheduler(scheduler::Conn from, const msg::Message& message);
  void step_scheduler(std::vector<scheduler::Event> then);
  // Of messages on a way, in the order in which they were sent: those that others overtook are counted. Duplicates are not asked.
  struct Order {
    std::uint64_t sent = 0, latest = 0;
  };
  void note_order(Order& order, std::uint64_t number, Counted late);
  void trace(WorkerId from, WorkerId to, const msg::PeerBatch& batch) const;
  void trace(int worker, const worker::TierIo& io) const;
  void trace(int worker, const worker::Relocate& move) const;
  void trace(scheduler::Conn conn, const char* way, const msg::Message& message) const;
  void from_scheduler(scheduler::Conn to, msg::Message message);
  void perform_scheduler(std::vector<scheduler::Action>& actions);
  void write_down(const std::vector<scheduler::Event>& events);
  void maybe_checkpoint();
  void crash_scheduler(TimeNs down = 0);
  void note_counts();
  void break_some();
  void break_link(scheduler::Conn conn, TimeNs span);
  bool held_back(scheduler::Conn conn, std::function<void()> what);
  void vanish(int index);
  void vanish_at_once(int index);
  void after_vanishing();

  // standing still and silence
  bool stands_still(std::uint64_t process, std::function<void()> what);
  bool may_stop(std::uint64_t process) const;
  void stop(std::uint64_t process);
  void go_on(std::uint64_t process);
  void pause_some();
  void answer_ping(scheduler::Conn conn, const msg::Ping& ping);
  void closed_by_scheduler(scheduler::Conn conn);
  void lose_one_way();
  void end_of_way(Way way);
  void give_up(scheduler::Conn conn);
  bool lives(scheduler::Conn conn) const;
  TimeNs rest_ns() const;

  // two acts
  void break_everything();
  void heal_some(const std::vector<Way>& dark, const std::set<std::uint64_t>& stopped, int killed);
  void demand(int client, std::uint64_t request);
  TimeNs patience() const;
  bool awaits_demanded() const;
  std::string waits_for(int client, std::uint64_t request) const;

  // errors
  std::string unexcused(const Client& client, std::uint64_t request, const msg::Outcome& outcome);
  std::string excused_loss(const Client& client, const msg::Outcome& outcome, bool left);
  bool happened(std::initializer_list<Counted> faults) const;
  bool step_failed(const Client& client) const;
  void inject(const std::string& text, std::uint64_t array, std::int64_t block);
  struct Task {
    OpId op;
    std::int64_t point = 0;  // -1: any
  };
  std::vector<Task> named_tasks(const Client& client, const std::string& message) const;
  std::string names_other_fault(const Client& client, const msg::Outcome& outcome);
  bool is_doom(const Client& client, const msg::Outcome& outcome) const;
  bool something_failed() const;
  bool may_run_out(Errc code) const;

  // checkpoints
  struct CheckpointFile {
    std::int64_t bytes = 0;
    bool spoilt = false;
    std::map<std::int64_t, std::uint64_t> blocks;  // what was written of each
  };
  struct Folder {
    std::set<std::uint64_t> markers;  // none: the folder is not there
    bool tended = false;              // who looked last found it well, and nothing was made since
    std::map<std::uint64_t, CheckpointFile> files;
  };
  static constexpr std::uint64_t kTorn = 0xBAD;
  Folder& folder_of(int worker, const std::string& path);
  std::string tend_folder(int worker, const std::string& params);
  void begin_on_file(int worker, const worker::Launch& launch);
  std::string on_file(int worker, const worker::Launch& launch,
                      std::vector<std::optional<std::uint64_t>>& restored);
  std::string find_file(Folder& folder, const ir::checkpoint::File& wanted, CheckpointFile*& file);
  std::string restore(int worker, const ir::checkpoint::File& wanted, std::int64_t point,
                      std::optional<std::uint64_t>& value);
  void lose_file();
  void note_death_on_file(const Worker& worker);
  void choose_folder();
  bool file_unread() const;
  void check_files();

  // what is made again
  void note_truth(int index, std::uint64_t version);
  std::string numeric_class(int worker) const;
  void check_numeric_class(int index, const worker::Launch& launch);
  void note_launch(int index, const worker::Launch& launch);
  void note_spared(int index);
  void note_held();
  Minimum::Truth truth(bool most, std::uint64_t answered) const;
  void note_ends(const std::vector<scheduler::Action>& actions);
  void check_minimum(const msg::Recover& recover);
  void compare_with_minimum(const msg::Recover& recover, bool gave_up);
  void note_compared(const msg::Recover& recover, const Minimum::Truth& truth, const Minimum::Need& least,
                     const Minimum::Need& most, const std::set<BlockId>& again);

  // ways
  bool loses() const;
  TimeNs delay(Way way);
  TimeNs travel(Way way);
  TimeNs step_time(int worker, std::size_t device);
  void arrive(Way way, std::function<void()> what);
  void clog_some();
  void unclog(Way way);
  void relink_some(int tries);
  std::vector<Way> receiving() const;
  void drop_receives(std::uint64_t self, std::uint64_t from);
  void let_go_of_sends(std::uint64_t self, std::uint64_t to);
  void partition_some();
  void cut_off_some();
  void shut_out(int index, WorkerId peer);
  void shut_out_client(int index, WorkerId peer);
  void link_ended(int index, WorkerId peer);
  bool ends_fenced(int index);
  void set_moves(scheduler::Options& options) const;
  void come_late();
  void break_between(int a, int b);
  void respawn();
  Way way_of(scheduler::Conn conn) const;  // from there to the scheduler
  void restart_scheduler();

  // workers
  void start_worker(int index);
  void deliver_worker(int index, worker::Event event);
  void step_worker(int index, std::vector<worker::Event> then = {});
  void take_turn(int index);
  void perform(int index, worker::Actions& actions);
  void peer_send(WorkerId from, WorkerId to, msg::PeerBatch batch);
  void deliver_peer(WorkerId from, WorkerId to, msg::PeerBatch batch);
  void open_slab(int reader, int lender, int device, std::uint32_t slab);
  void open_slabs(int reader, WorkerId peer);
  void slab_added(int index, const worker::AddSlab& slab);
  void begin_pull(int index, const worker::Pull& pull);
  void end_pull(int index, const worker::Pull& pull);
  void note_lent(int index, const worker::Launch& launch);
  void send_bytes(int index, const worker::Transmit& transmit);
  void sent(int index, const worker::Transmit& transmit);
  bool first_part(int index, const worker::Transmit& transmit);
  bool still_comes(int index, const worker::Transmit& transmit);
  void receive_failed(int index, worker::TransferDone done);
  void not_passed_on(int index, const worker::Transmit& transmit);
  void disarm(int index, const worker::Disarm& disarm);
  bool fails_to_send(int index, const worker::Transmit& transmit);
  void check_in_flight(const Worker& worker);
  void note_crossing(int from, int to, const Cell& cell);
  void check_crossings();
  int host_of(int worker) const { return worker % knobs_.hosts; }
  bool awaited(const worker::Transmit& transmit) const;
  void arm_timer(int index);
  void ask_for_probe(int index, const msg::LinkProbe& probe);
  void note_probed(const msg::LinkProbed& told);
  void perform_probes(int index, const worker::Actions& actions);
  void probe_arrives(const worker::ProbeSend& send);
  void end_probe(int index, std::uint64_t transfer, Error how);
  void probes_lost(int index, WorkerId from);
  bool links_are_measured() const;
  void check_probes();
  void check_classes(const scheduler::LinkList& seen);
  void run_streams(int index);
  bool no_room(Counted kind);
  void begin_io(int index, const worker::TierIo& io);
  void begin_neighbour_io(int index, const worker::TierIo& io);
  void begin_relocation(int index, const worker::Relocate& move);
  void copy_block(int index, std::uint64_t io, const worker::MemoryRef& from, const worker::MemoryRef& to,
                  std::int64_t bytes, std::function<Error(const Cell&)> ends);
  void end_io(int index, const worker::TierIo& io);
  void begin_step(int index, std::size_t device, std::size_t stream);
  void end_step(int index, std::size_t device, std::size_t stream);
  bool check_reads(int index, const worker::Launch& launch, bool at_end);
  std::string wrong_read(const worker::Launch& launch, std::size_t input, std::uint64_t array,
                         std::int64_t block);
  void kill(int index);
  void kill_some();
  void drain_some();
  void leave(int index);
  void note_made(std::uint64_t array, std::int64_t block);
  bool reads_rubbish(const worker::Launch& launch);
  void leave_rubbish(const worker::Launch& launch);
  void check_no_rubbish(int index, const worker::Launch& launch);
  void say(int index, const worker::StreamCompleted& completed, std::optional<worker::StepFailed> failure);
  void look(int index, std::uint16_t device);
  void listen(int index, std::uint16_t device);
  bool poisonous(const worker::Launch& launch);
  void take_down(int index);
  void check_alone(const Worker& worker);
  void tell_last_words(int index);

  // memory, as values
  Cell* cell_at(const worker::MemoryRef& ref);
  static Cell* pinned_cell(Worker& worker, std::int64_t at);
  Cell& write_cell(const worker::MemoryRef& ref, std::int64_t bytes, std::uint64_t array, std::int64_t block);

  // clients
  void start_client(int index);
  void client_message(int index, msg::Message message);
  void client_batch(int index, WorkerId from, msg::PeerBatch batch);
  void client_next(int index);
  void new_program(Client& client, msg::Submit& submit, std::vector<std::uint64_t>& fetches);
  void note_listed(const std::vector<ir::Op>& ops);
  bool repeat_last(Client& client, msg::Submit& submit, std::vector<std::uint64_t>& fetches);
  void keep_or_name(Client& client, msg::Submit& submit);
  void operator_releases(SessionId session);
  void hint_some(const Client& client, std::vector<ir::Op>& ops);
  void client_finish(int index);
  std::string missing(int client, std::uint64_t request) const;
  void say_delivered(Client& client, std::uint64_t number);
  void tell_fetched(Client& client, std::uint64_t version);
  void client_took(int index, const msg::Offer& offer);
  void client_borrows(int index, const msg::Offer& offer);
  void client_reads(int index, const msg::Offer& offer);
  bool reads_right(Client& client, const msg::Offer& offer);
  void upload(const msg::Grant& grant);
  void client_ended(int index, const msg::GraphDone& done);
  struct Tiling {
    ir::Shape shape;
    std::vector<std::vector<ir::Box>> pieces;  // by client
  };
  bool announces(std::uint64_t request) const;    // the same for all clients
  Tiling tiling_of(std::uint64_t request) const;  // likewise
  void announce(int index);
  void announced(int index, const msg::SubmitReply& reply);
  void check_asked(const Client& client);
  void ask_for_copies(Client& client, msg::Submit& submit);
  void check_copies(Client& client, std::uint64_t request);
  void rest(int client, int gone);
  void check_held(Client& client);
  int living() const;
  int workers_with(std::uint64_t array, std::int64_t block) const;

  Knobs knobs_;
  Prng prng_;
  TimeNs now_ = 0;
  std::uint64_t order_ = 0;
  struct Event {
    TimeNs time;
    std::uint64_t order;
    std::function<void()> what;
    bool idle = false;
    bool operator<(const Event& o) const { return std::tie(time, order) > std::tie(o.time, o.order); }
  };
  std::priority_queue<Event> events_;
  std::unique_ptr<scheduler::Core> scheduler_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::map<std::uint32_t, TimeNs> ordered_until_;  // FIFO links: nothing overtakes
  std::map<Way, Order> between_peers_;
  std::map<std::uint32_t, Order> to_scheduler_, logs_;  // by link
  Oracle oracle_;
  Minimum minimum_;
  std::map<std::pair<int, std::string>, Folder> folders_;  // by host and path
  std::map<TaskId, std::pair<std::uint8_t, std::string>>
      run_by_;                                  // tasks of ops as planned: kind and numeric class
  std::set<std::uint64_t> durable_, taken_;     // checkpoints; by others than the cluster
  int lives_ = 1;                               // with a folder of their own
  std::set<std::uint64_t> held_;                // by clients, as the scheduler knows
  std::uint64_t recovered_ = 0;                 // version of the last loss that is over
  std::uint64_t last_loss_ = 0, departed_ = 0;  // versions: the last one of somebody's, and of who left
  std::int64_t clients_missed_ = 0;             // recoveries that did not wait for a client's answer ...
  bool unanswered_ = false;                     // ... and whether the last one was such
  bool gave_up_ = false;                        // something could not be made again
  std::map<std::pair<std::uint32_t, std::uint64_t>, GraphId> graphs_;  // by link and request
  std::set<GraphId> ended_, ended_now_;  // well, in earlier steps and in this one
  Outcome outcome_;
  static constexpr TimeNs kNoTimer = INT64_MAX;
  TimeNs scheduler_timer_ = kNoTimer;
  scheduler::Options scheduler_options_;
  struct Disk {  // what the scheduler would find again
    std::string snapshot;
    std::vector<std::pair<TimeNs, std::vector<scheduler::Event>>> steps;
  };
  Disk disk_;
  std::map<std::pair<std::uint64_t, std::int64_t>, int> made_;  // how often, where it must be once
  std::map<std::tuple<std::uint64_t, std::int64_t, int>, std::int64_t> crossings_;  // of a block, into a host
  std::map<std::tuple<std::uint32_t, std::uint64_t, std::int64_t>, int> not_sent_;  // to a device, of a block
  bool down_ = false;
  std::int64_t pending_ = 0;  // of events_, those that are not idle
  TimeNs busy_at_ = 0;        // when something happened that does not in a cluster without work
  std::map<std::uint64_t, std::vector<std::function<void()>>> stopped_;  // processes, and what they would do
  std::map<std::pair<int, std::uint64_t>, TimeNs> demanded_;             // requests, and since when
  int act_ = 0;                                                          // how often everything has broken
  bool healed_ = false;                                                  // since then
  scheduler::Counters counted_;                                          // of scheduler_ before it took over
  std::map<scheduler::Conn, std::vector<std::function<void()>>>
      broken_;                                                 // what would have come over each link
  std::map<Way, std::vector<std::function<void()>>> clogged_;  // what came meanwhile
  std::set<Way> cut_;
  std::set<std::uint64_t> fenced_;  // workers that a peer whose memory they map has been told are lost
  std::map<Way, std::int64_t> slow_ways_;
  std::map<std::pair<int, std::size_t>, std::int64_t> slow_devices_;
  std::optional<std::pair<std::uint64_t, std::int64_t>> poison_;  // what it makes: array, block
  bool staffed_ = false;                                          // some worker has joined
  int gone_ = 0;      // workers that died or left: beside fewer others there are fewer copies
  int died_ = 0;      // of those, also of who was only declared lost
  int poisoned_ = 0;  // workers
  int untold_ = 0;    // of those, by whose supervisors nothing was said
  std::map<std::string, std::set<BlockId>> injected_;  // what was made to fail, as errors tell it: the blocks
  std::set<GraphId> failed_graphs_;                    // a step of theirs was made to fail
  std::set<std::pair<std::uint64_t, std::int64_t>> blamed_;  // what was running at a death
  std::vector<std::vector<scheduler::Event>> postponed_;
  std::vector<scheduler::Event> scheduler_heard_;  // in its turn that has not come yet
};

}  // namespace tilewise::sim
