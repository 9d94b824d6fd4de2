// One function per event. Each is idempotent: duplicates, late and reordered messages change nothing.
#pragma once
#include "state.h"

namespace tilewise::scheduler {

// join.cc
void on_join(State& s, Conn from, msg::Join& join);
msg::PlannedOp without_history(const OpRecord& record);  // its blocks exist; how they were made is left out

// peers.cc
void on_closed(State& s, Conn conn);
void on_broken(State& s, Conn conn);
void on_returned(State& s, Conn conn);
void on_leave(State& s, Conn conn);
void lose_peer(State& s, WorkerId id, bool in_order = false);  // in_order: it has said so itself
void let_go(State& s, WorkerId id);  // a worker that leaves as asked: only its link stays, until it closes it
void check_liveness(State& s);
// departed.cc
void note_departed(State& s, const Peer& peer);  // a tool or client that is gone
void forget_departed(State& s);                  // those that nothing names any more
// peers.cc
void on_shutdown(State& s, Conn from);

// recovery.cc
void begin_recovery(State& s, const Peer& dead);        // tells the others of the loss, and asks them
void ask_newcomer(State& s, WorkerId newcomer);         // one that joins before all have answered
void begin_survey(State& s, WorkerId leaver);           // asks everybody as if it had died
void ask(State& s, WorkerId lost, std::set<OpId> ops);  // everybody, for what they have of these ops' results
void on_held(State& s, Peer& worker, msg::Held& held);
void on_fetches(State& s, const Peer& client, const msg::Held& held);
TimeNs more_answers_until(
    const State& s);            // besides those of workers, which there must be; 0: none is waited for
void check_recovery(State& s);  // goes on when everybody has answered; gives up when nobody is left
// Everybody is told what is made again where, and what devices are rid of.
void settle_recovery(State& s, std::vector<msg::Plan> plans, std::vector<msg::Tail> moved = {});
std::vector<OpId> pinned_ops(const State& s);  // by the loss or survey that is pending
// replace.cc
bool may_move(const State& s,
              const OpRecord& head);   // points of it, if there are any that have not been begun
void begin_move(State& s, Move move);  // asks everybody, and those that give to begin nothing more of it
void conclude_move(State& s);          // everybody has answered
// rebalance.cc
void note_progress(State& s, const OpRecord& op, DeviceId device, std::int64_t points);
void note_newcomer(State& s);  // it has nothing to do
void check_rebalance(State& s);
TimeNs rebalance_deadline(const State& s);

// blame.cc
void on_last_words(State& s, const msg::LastWords& words);
// How many workers have died executing this point of a planned op; and why it is not run again once they are kMaxDeaths.
std::size_t deaths_of(const State& s, OpId head, std::int64_t point);
msg::Outcome doom_of(const State& s, OpId head, std::int64_t point);
void forget_blame(State& s, OpId head);

// recovery_plan.cc
std::vector<msg::Plan> plan_recovery(State& s);
// A block that a leaving worker has and somebody needs: `to` has a copy of it already, or is still to be chosen.
struct MovedBlock {
  ArrayId array;
  std::int64_t block = 0;
  DeviceId from, to;
};
struct Departure {
  std::string why;  // not empty: it must stay
  std::vector<MovedBlock> blocks;
};
Departure plan_departure(State& s, WorkerId leaver);  // from the answers to a survey

// copies.cc
// Notes that something of arrays with several copies was lost.
void mark_lost_copies(State& s);
// Ops that copy what is lacking, where that can be done. Workers are still to be told these plans.
std::vector<msg::Plan> restore_copies(State& s);
void check_copies(State& s);  // does that when there is cause to, and ends graphs that have all theirs
// The graph owes copies: it is not over before the array is whole and they are there, as many as can be.
void want_copies(State& s, ArrayRecord& array, std::uint32_t copies, GraphRecord& graph);
bool copied_all(const State& s, const GraphRecord& graph);  // the arrays are whole; copies are its open ops
void end_copying(State& s, GraphRecord& graph);             // it ends, with the failure of such an array
void keep_ended(State& s, const OpRecord& keep);
// A second copy that nobody asked for of all its results that are held, where there is room for one: those of a task on one device. False:
// there is none.
bool copy_unasked(State& s, const OpRecord& op, std::vector<msg::Plan>& plans);
bool copied_together(const State& s, const OpRecord& op);  // who has a copy of one of them has one of all
std::int64_t room_of(
    const Device& device);  // what it may still take: most of what it has free, in memory and on disk

// lineage.cc
// Of these arrays those whose past is too long get a second copy, with the other results of their ops; workers are still to be told.
std::vector<msg::Plan> anchor_some(State& s, const std::vector<ArrayId>& arrays);
void cut_past(State& s, OpRecord& op);      // that makes anchors, when they have their copies
void unread(State& s, ArrayRecord& array);  // an op that was kept to be run again does not read it any more

// drain.cc
void wish_drain(State& s, WorkerId worker, bool leave);
void on_operator_drain(State& s, const OperatorDrain& drain);
void on_drain_request(State& s, Peer& asker, const msg::DrainRequest& request);
void on_drained(State& s, const Peer& worker, const msg::Drained& report);
void forget_drains(State& s, WorkerId lost);
void check_drains(State& s);
void conclude_survey(State& s);  // everybody has answered
TimeNs drains_deadline(const State& s);
msg::DrainReply drain_status(const State& s, const Peer& worker);

// submit.cc
void on_submit(State& s, Peer& client, msg::Submit& submit);

// postponed.cc
bool on_request(State& s, Peer& client,
                msg::Message& message);  // at once or later; false: it is nothing that a session asks for
void check_postponed(State& s);          // when there is a worker again, or it is too late for one
void forget_postponed(State& s, Session& session);
void note_workless(State& s);  // a worker was lost: perhaps the last one
bool waits_for_workers(const State& s);
TimeNs postponed_deadline(const State& s);

// announce.cc
void on_announce(State& s, Peer& client, msg::Announce& announce);
bool take_back_announcement(State& s, const Peer& client,
                            std::uint64_t request);  // false: nobody waits for it
void forget_announcer(State& s, const Session& session, const std::string& name);  // it has left
void check_gatherings(State& s);  // those that waited too long
TimeNs gatherings_deadline(const State& s);

// explain.cc
void on_explain(State& s, Peer& peer, msg::Explain& explain);

// trace.cc
void on_trace_request(State& s, Peer& peer, const msg::TraceRequest& request);
void on_trace_reply(State& s, Peer& worker, msg::TraceReply& reply);
void on_blocks_request(State& s, Peer& peer, const msg::BlocksRequest& request);
void on_blocks_reply(State& s, Peer& worker, msg::BlocksReply& reply);
void drop_from_traces(State& s, WorkerId worker);

// probes.cc
void want_probes(State& s, const Peer& newcomer);
void forget_probes(State& s, const Peer& gone);
void forget_probes_under_way(State& s);
void on_link_probed(State& s, const Peer& worker, msg::LinkProbed& told);
void check_probes(
    State& s);  // begins what is due while nothing runs; after the logs, which tell workers of each other
TimeNs probes_deadline(const State& s);

// progress.cc
void on_progress(State& s, Peer& worker, const msg::Progress& progress);
void on_task_failed(State& s, Peer& worker, const msg::TaskFailed& failure);
void on_stuck(State& s, Peer& worker, const msg::Stuck& stuck);
void end_stuck_graph(State& s);  // when it is time
void tell_progress(State& s);    // to clients, at most every progress_every_ns

// clients.cc
void on_release(State& s, Peer& client, const msg::ReleaseArrays& release);
void on_cancel(State& s, Peer& client, const msg::CancelRequest& cancel);

void on_operator_cancel(State& s, const OperatorCancel& cancel);
void on_operator_release(State& s, const OperatorRelease& release);

// view.cc
View view_of(const State& s, const ViewRequest& request);

// status.cc
msg::StatusReply status_of(const State& s);

// snapshot.cc
Result<std::string> snapshot(const State& s, const SnapshotCodec& codec);
Status restore(State& s, std::string_view bytes, const SnapshotCodec& codec);

// invariants.cc
void check_invariants(const State& s);
std::uint64_t digest_of(const State& s);

}  // namespace tilewise::scheduler
