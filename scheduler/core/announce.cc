// Arrays from pieces that several clients have. Announcements of one name wait for each other; with the last one the array becomes
// a graph of all of them: its blocks are provided by those who have them, and copied to the workers. Whatever goes wrong before
// is told to everybody: those who have announced, and where somebody was wrong those too who come later.
// See docs/design/local-blocks.md.
#include <tilewise/ir/infer.h>

#include "draft.h"
#include "graphs.h"
#include "handlers.h"
#include "outbox.h"
#include "pieces.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

constexpr std::size_t kMaxGatherings = 1'024;
constexpr std::size_t kMaxWaitingPieces = 1 << 20;     // of all of them
constexpr TimeNs kRememberedFailureNs = 60 * kSecond;  // for those who are still to come

using Gatherings = std::map<std::string, Gathering>;

std::string client_name(const State& s, SessionId session) {
  return "client '" + s.peer(s.session(session).peer).info.name + "'";
}

// What to call the array.
std::string quoted(const std::string& name) { return "'" + name + "'"; }

bool knows(const Gathering& g, SessionId session) {
  return std::any_of(g.parts.begin(), g.parts.end(), [&](const auto& p) { return p.session == session; });
}

void reply(State& s, SessionId to, msg::SubmitReply said) {
  Session& session = s.session(to);
  for (Answer& answer : session.answers) {
    if (answer.request != said.request) continue;
    answer.due = false;
    answer.graph = said.graph;
    answer.reply = said;
  }
  if (session.alive) send(s, s.peer(session.peer).conn, std::move(said));
}

void tell(State& s, const Gathering::Part& part, const msg::Outcome& why) {
  msg::SubmitReply said;
  said.request = part.request;
  said.outcome = why;
  reply(s, part.session, std::move(said));
}

// Whether somebody was wrong (`lasting`) or not: then those who still come may try with others.
void give_up(State& s, Gatherings::iterator at, const msg::Outcome& why, bool lasting) {
  Gathering& g = at->second;
  for (Gathering::Part& part : g.parts) {
    tell(s, part, why);
    part.pieces = {};
  }
  if (!lasting || g.parts.size() >= g.processes) return void(s.gatherings.erase(at));
  g.failed = why;
  g.until = s.now + kRememberedFailureNs;
}

// What the sender alone has to answer for.
Status sound(const State& s, const Session& session, const msg::Announce& m) {
  if (!m.failed.ok()) return error(m.failed.code, m.failed.message);
  if (!session.device) return error(Errc::kInvalidArgument, "this client has joined without a data endpoint");
  if (m.processes < 1 || m.processes > msg::kMaxAnnouncers)
    return error(Errc::kInvalidArgument, std::to_string(m.processes) + " processes: 1 to " +
                                             std::to_string(msg::kMaxAnnouncers) + " can take part");
  if (m.timeout_ns < 0) return error(Errc::kInvalidArgument, "a negative timeout");
  if (m.weight < 1 || m.weight > msg::kMaxWeight)
    return error(Errc::kInvalidArgument, "a session's weight is 1 to " + std::to_string(msg::kMaxWeight) +
                                             ", not " + std::to_string(m.weight));
  if (session.arrays.contains(m.array))
    return error(Errc::kAlreadyExists, "array number " + std::to_string(m.array) + " is in use");
  if (auto volume = ir::checked_volume(m.shape); !volume) return volume.error();
  TW_TRY(check_pieces(m.shape, m.pieces));
  std::size_t waiting = m.pieces.size();
  for (const auto& [name, other] : s.gatherings) {
    for (const Gathering::Part& part : other.parts) waiting += part.pieces.size();
  }
  if (waiting > kMaxWaitingPieces)
    return error(Errc::kLimitExceeded, std::to_string(waiting) + " pieces wait for others, the limit is " +
                                           std::to_string(kMaxWaitingPieces));
  return {};
}

// All who take part must speak of the same array.
Status alike(const State& s, const Gathering& g, const Session& session, const msg::Announce& m) {
  const auto text = [](std::uint32_t processes, ir::DType dtype, const ir::Shape& shape) {
    return std::string(ir::name_of(dtype)) + " " + ir::to_string(shape) + " of " + std::to_string(processes) +
           " processes";
  };
  if (g.dtype == m.dtype && g.shape == m.shape && g.processes == m.processes) return {};
  return error(Errc::kInvalidArgument,
               client_name(s, g.parts.front().session) + " announces " + text(g.processes, g.dtype, g.shape) +
                   ", " + client_name(s, session.id) + " " + text(m.processes, m.dtype, m.shape));
}

Result<Draft> draft_of(const State& s, const std::string& name, const Gathering& g) {
  TW_TRY(room_for_a_graph(s));
  for (const Gathering::Part& part : g.parts) {  // it was free when that one announced
    if (s.session(part.session).arrays.contains(part.array))
      return error(Errc::kAlreadyExists, client_name(s, part.session) + " has made another array " +
                                             std::to_string(part.array) + " meanwhile");
  }
  TW_ASSIGN(const Cover covered, cover(g.shape, ir::size_of(g.dtype), g.parts, [&](std::size_t part) {
              return client_name(s, g.parts[part].session);
            }));
  Draft draft;
  draft.next_array = s.next_array;
  const auto new_array = [&] { return make_id(s.options.term, draft.next_array++); };
  const ir::Source source{new_array(), g.dtype, covered.grid, ir::View::identity(g.shape)};
  TW_ASSIGN(ir::Inferred provide, ir::infer_provide(g.dtype, covered.grid));
  std::vector<DeviceId> devices;
  for (const Gathering::Part& part : g.parts) devices.push_back(s.session(part.session).device);
  provide.op->attrs = ir::FetchAttrs{devices.front()};
  provide.op->outputs[0].array = source.array;
  provide.op->label = name;
  TW_ASSIGN(ir::Inferred copy, ir::infer_copy(source));
  TW_CHECK(copy.op->space == covered.grid, "a copy is cut as what it copies");
  copy.op->outputs[0].array = new_array();
  copy.op->label = name;
  draft.given = placement_of(covered, g.parts, devices);
  draft.provided.emplace_back(g.parts.front().array, ArrayId{source.array});
  draft.numbers = {{copy.op->outputs[0].array, g.parts.front().array}};
  draft.graph.holds = {copy.op->outputs[0].array};
  draft.graph.ops = {std::move(*provide.op), std::move(*copy.op)};
  std::vector<msg::NeedAccount> needs;  // its text says enough
  return planned(s, std::move(draft), false, needs);
}

// Everybody has announced.
void complete(State& s, Gatherings::iterator at) {
  Result<Draft> draft = draft_of(s, at->first, at->second);
  if (!draft)
    return give_up(s, at, {draft.error().code, quoted(at->first) + ": " + draft.error().message}, true);
  const Gathering g = std::move(at->second);
  s.gatherings.erase(at);
  const std::vector<ir::Op> ops = draft->ops;
  const ir::Grid grid = ops[0].space;
  const ArrayId made{draft->graph.holds[0]}, provided = draft->provided[0].second;
  PastGraph past{.source = source_of(s, ops), .source_count = static_cast<std::uint32_t>(ops.size())};
  const Gathering::Part& first = g.parts.front();
  msg::SubmitReply said;
  GraphRecord& graph =
      commit(s, {first.session, first.request, 0, first.weight}, std::move(*draft), std::move(past), said);
  for (const Gathering::Part& part : g.parts) {
    if (part.session == first.session) continue;
    graph.others.push_back({part.session, part.request});
    s.session(part.session).running.push_back(graph.id);
    hold_array(s, s.arrays.at(made), {part.session, part.array});
  }
  said.grid = grid;
  for (const Gathering::Part& part : g.parts) {
    said.request = part.request;
    said.arrays = {{part.array, provided}};
    reply(s, part.session, said);
  }
  finish_what_is_done(s, said.graph);
}

}  // namespace

void on_announce(State& s, Peer& client, msg::Announce& m) {
  if (answered_before(s, client, m.request)) return;
  const Session& session = s.session(client.session);
  new_answer(s.session(client.session), m.request).due = true;
  Gathering::Part part{session.id, m.request, m.array, m.weight, {}};
  auto at = s.gatherings.find(m.name);
  if (at != s.gatherings.end() && !at->second.failed.ok()) {
    Gathering& g = at->second;
    if (!knows(g, session.id)) {
      tell(s, part, g.failed);
      g.parts.push_back(std::move(part));
      if (g.parts.size() >= g.processes) s.gatherings.erase(at);
      return;
    }
    s.gatherings.erase(at);  // it tries again
    at = s.gatherings.end();
  }
  // Of its mistakes with names the others need not know.
  if (m.name.empty()) return tell(s, part, {Errc::kInvalidArgument, "an announcement without a name"});
  if (at != s.gatherings.end() && knows(at->second, session.id))
    return tell(s, part, {Errc::kAlreadyExists, "this session has announced " + quoted(m.name) + " already"});
  if (at == s.gatherings.end() && s.gatherings.size() >= kMaxGatherings)
    return tell(
        s, part,
        {Errc::kLimitExceeded, std::to_string(kMaxGatherings) + " arrays wait for announcements, the limit"});
  Status good = sound(s, session, m);
  if (!good) good = error(good.error().code, client_name(s, session.id) + ": " + good.error().message);
  if (at == s.gatherings.end())
    at = s.gatherings.emplace(m.name, Gathering{m.dtype, m.shape, m.processes, kNever, {}, {}}).first;
  else if (good)
    good = alike(s, at->second, session, m);
  Gathering& g = at->second;
  if (m.processes <= msg::kMaxAnnouncers) g.processes = std::max(g.processes, m.processes);
  part.pieces = std::move(m.pieces);
  g.parts.push_back(std::move(part));
  if (!good) return give_up(s, at, {good.error().code, quoted(m.name) + ": " + good.error().message}, true);
  // No later than it can be counted: a sum beyond that is for ever.
  if (m.timeout_ns > 0 && m.timeout_ns < kNever - s.now) g.until = std::min(g.until, s.now + m.timeout_ns);
  if (g.parts.size() == g.processes) complete(s, at);
}

bool take_back_announcement(State& s, const Peer& client, std::uint64_t request) {
  for (auto at = s.gatherings.begin(); at != s.gatherings.end(); ++at) {
    const Gathering& g = at->second;
    const bool its = g.failed.ok() && std::any_of(g.parts.begin(), g.parts.end(), [&](const auto& part) {
                       return part.session == client.session && part.request == request;
                     });
    if (!its) continue;
    give_up(s, at,
            {Errc::kCancelled, quoted(at->first) + " was cancelled by client '" + client.info.name + "'"},
            false);
    return true;
  }
  return false;
}

void forget_announcer(State& s, const Session& session, const std::string& name) {
  for (auto next = s.gatherings.begin(); next != s.gatherings.end();) {
    const auto at = next++;
    if (!at->second.failed.ok() || !knows(at->second, session.id)) continue;
    give_up(
        s, at,
        {Errc::kWorkerLost, quoted(at->first) + ": client '" + name + "' has left before all had announced"},
        false);
  }
}

// While something waits for a worker nobody's time runs out: announcements among it came in time.
void check_gatherings(State& s) {
  if (!s.postponing.empty()) return;
  for (auto next = s.gatherings.begin(); next != s.gatherings.end();) {
    const auto at = next++;
    const Gathering& g = at->second;
    if (s.now < g.until) continue;
    if (!g.failed.ok()) {
      s.gatherings.erase(at);
      continue;
    }
    std::string came;
    for (std::size_t i = 0; i < std::min<std::size_t>(g.parts.size(), 8); ++i)
      came += (i == 0 ? "" : ", ") + client_name(s, g.parts[i].session);
    if (g.parts.size() > 8) came += " and others";
    give_up(s, at,
            {Errc::kTimeout, quoted(at->first) + ": only " + std::to_string(g.parts.size()) + " of " +
                                 std::to_string(g.processes) + " had announced in time: " + came},
            false);
  }
}

TimeNs gatherings_deadline(const State& s) {
  TimeNs next = kNever;
  if (!s.postponing.empty()) return next;
  for (const auto& [name, g] : s.gatherings) next = std::min(next, g.until);
  return next;
}

}  // namespace tilewise::scheduler
