// What a client may be told: each error must come from a fault that has really been injected into this world by then, and name it
// where that can be known. Nothing excuses kInternal.
#include "world_parts.h"

#include <regex>

namespace tilewise::sim {
namespace {

bool says(const msg::Outcome& outcome, const std::string& what) {
  return outcome.message.find(what) != std::string::npos;
}

}  // namespace

bool World::happened(std::initializer_list<Counted> faults) const {
  return std::any_of(faults.begin(), faults.end(),
                     [&](Counted fault) { return outcome_.covered.of(fault) > 0; });
}

// Some step of a request of this client has failed; arrays that several have made are everybody's.
bool World::step_failed(const Client& client) const {
  return std::any_of(failed_graphs_.begin(), failed_graphs_.end(), [&](GraphId graph) {
    return knobs_.announces > 0 ||
           std::any_of(client.requests.begin(), client.requests.end(),
                       [&](const auto& request) { return request.second.graph == graph; });
  });
}

void World::inject(const std::string& text, std::uint64_t array, std::int64_t block) {
  injected_[text].emplace(array, block);
}

// The tasks that an error may name with "request R, planned op P (kind ...), point X": several clients have a request of that number
// where arrays are made by several. None: it names none, or what it names is not there.
std::vector<World::Task> World::named_tasks(const Client& client, const std::string& message) const {
  static const std::regex kTask(
      R"(request (\d+), planned op (\d+) \(([^ )]+)[^)]*\)(?:(?:, kernel '[^']*')?(?:, for array .*?)?, point (\d+))?)");
  std::smatch found;
  std::vector<Task> out;
  if (!std::regex_search(message, found, kTask)) return out;
  for (const auto& other : clients_) {
    if (other.get() != &client && knobs_.announces == 0) continue;
    const auto request = other->requests.find(std::stoull(found[1]));
    if (request == other->requests.end() || !request->second.replied) continue;
    const auto op = oracle_.planned(request->second.graph, std::stoull(found[2]));
    const std::int64_t point = found[4].matched ? std::stoll(found[4]) : -1;
    if (op && name_of(oracle_.kind(*op)) == found[3].str() && point < oracle_.points(*op))
      out.push_back({*op, point});
  }
  return out;
}

// An error that comes of what was made to fail names that very block, and the op and point that it names have read it. Empty: it does.
std::string World::names_other_fault(const Client& client, const msg::Outcome& outcome) {
  std::set<BlockId> blocks;
  const bool named = says(outcome, ": injected");
  for (const auto& [text, failed] : injected_) {
    if (!named || says(outcome, text)) blocks.insert(failed.begin(), failed.end());
  }
  if (named && blocks.empty()) return "nothing of that name was made to fail";
  if (outcome.message.find("planned op") == std::string::npos) return "";
  const std::vector<Task> tasks = named_tasks(client, outcome.message);
  if (tasks.empty()) return "it names an op that is not there";
  ++outcome_.covered[named ? Counted("errors that name the op, the point and what failed")
                           : Counted("errors that name the op")];
  for (const auto& [op, point] : tasks) {
    for (const auto& [array, block] : blocks) {
      if (point >= 0 && oracle_.depends(op, point, array, block)) return "";
      for (std::int64_t p = 0; point < 0 && p < oracle_.points(op); ++p)
        if (oracle_.depends(op, p, array, block)) return "";
    }
  }
  return "the task that it names reads nothing that failed";
}

// A task that takes workers down. A kill from outside counts against what ran, so that two deaths by the task and one of those are three.
bool World::is_doom(const Client& client, const msg::Outcome& outcome) const {
  if (poisoned_ + knobs_.kills < 3) return false;
  // Its failure may have been overtaken by the report that its dependents have failed.
  if (says(outcome, "tasks of request")) return true;
  if (!says(outcome, "3 workers died while they were executing it")) return false;
  // Who reads it may tell its story.
  const std::vector<Task> tasks =
      named_tasks(client, outcome.message.substr(outcome.message.rfind("request ")));
  return std::any_of(tasks.begin(), tasks.end(), [&](const Task& task) {
    const BlockId made(oracle_.made(task.op, 0), task.point);
    return knobs_.kills > 0 ? blamed_.contains(made) : poison_ == made;
  });
}

// Other than a step.
bool World::something_failed() const {
  return happened({"failed reads from disk", "failed reads from pinned memory",
                   "failed copies between neighbours", "requests for memory that failed"});
}

bool World::may_run_out(Errc code) const {
  // Where what lies below works and has room, what is too large for memory goes there (a step never is here).
  const bool room_below =
      knobs_.spill_bytes >= 16 << 20 || (knobs_.pinned_bytes >= 16 << 20 && knobs_.pin_every == 1);
  const bool broken_below =
      something_failed() || happened({"disk full", "failed writes to disk", "failed writes to pinned memory",
                                      "failed allocations"});
  if (code == Errc::kDiskFull)
    return knobs_.spill_bytes > 0 &&
           (knobs_.spill_bytes < 16 << 20 ||
            happened({"disk full", "failed writes to disk", "requests for memory that failed"}));
  const std::int64_t enough = room_below ? 128 << 10 : 4 << 20;  // all that clients hold here fits in
  return knobs_.memory_bytes < enough || broken_below;
}

// Empty: it may be. Otherwise why not.
std::string World::unexcused(const Client& client, std::uint64_t number, const msg::Outcome& outcome) {
  const Client::Request& request = client.requests.at(number);
  const bool shared = request.announced != 0 || knobs_.announces > 0;
  const bool left = shared && knobs_.vanish > 0 && says(outcome, "has left");
  const bool ended_before = std::any_of(client.requests.begin(), client.requests.end(), [](const auto& r) {
    return r.second.failed || r.second.refused || r.second.cancelled;
  });
  const bool from_a_fault = says(outcome, ": injected") || (says(outcome, "tasks of request") &&
                                                            !injected_.empty() && !is_doom(client, outcome));
  if (from_a_fault) {
    if (std::string wrong = names_other_fault(client, outcome); !wrong.empty()) return wrong;
  }
  switch (outcome.code) {
    case Errc::kOutOfMemory:
    case Errc::kDiskFull: return may_run_out(outcome.code) ? "" : "there is room";
    case Errc::kIo: return happened({"failed reads from disk"}) ? "" : "no read failed";
    case Errc::kDeviceError:
      return happened({"failed reads from pinned memory", "failed copies between neighbours"})
                 ? ""
                 : "no copy failed";
    case Errc::kCancelled: return ended_before || left ? "" : "nobody cancelled anything";
    case Errc::kTaskFailed:
      if (is_doom(client, outcome)) {
        ++outcome_.covered["failed as a task that takes workers down"];
        return "";
      }
      // Here reports overtake the word on the cause, as they do not on a link.
      if (says(outcome, "tasks of request") && (something_failed() || file_unread())) return "";
      if (!step_failed(client)) return "no step of this client's failed";
      return says(outcome, ": injected") || says(outcome, "tasks of request") ? "" : "it names no cause";
    case Errc::kTimeout:  // of the tries to have a block: sends alone do not fail so often (world_windows.cc)
      return says(outcome, "nothing came") && happened({"sends that vanished"}) &&
                     happened(
                         {"no memory for staging of transfers", "no memory for copies between neighbours"})
                 ? ""
                 : "no try of its failed beside a send";
    case Errc::kNotFound: return ended_before || knobs_.announces > 0 ? "" : "what it names was never ended";
    case Errc::kUnavailable:
      if (says(outcome, "being drained")) return happened({"drains"}) ? "" : "nobody is to leave";
      if (says(outcome, "has joined")) {
        if (request.early) ++outcome_.covered["refused: nobody had joined yet"];
        return gone_ > 0 || request.early ? "" : "no worker died";
      }
      return "it names no cause";
    case Errc::kWorkerLost: return excused_loss(client, outcome, left);
    default: return "no fault has such an end";
  }
}

// What no other worker can make again, or nobody is left to make.
std::string World::excused_loss(const Client& client, const msg::Outcome& outcome, bool left) {
  if (left) return "";
  const bool asked_for = says(outcome, "was lost with its worker");  // by a user's hint, and it may have left
  if (asked_for) ++outcome_.covered["refused: a device that was asked for is gone"];
  if (asked_for) return gone_ > 0 || happened({"drains"}) ? "" : "nobody has left";
  if (died_ == 0) return "no worker died";
  struct Cause {
    const char* text;
    Counted name;
  };
  // Workers of one class have the same devices, so that who is left of them can always make it, or nobody is.
  static constexpr Cause kCauses[] = {{"uploaded by the client", "lost: uploaded"},
                                      {"its past was cut", "lost: past cut"},
                                      {"no other one came in time", "lost: nobody left"}};
  for (const auto& [text, name] : kCauses) {
    if (!says(outcome, text)) continue;
    ++outcome_.covered[name];
    return "";
  }
  if (says(outcome, "no device of its numeric class is left")) {
    ++outcome_.covered["lost: nobody left of its class"];
    return knobs_.classes > 1 && gone_ >= knobs_.workers / knobs_.classes ? "" : "some are left";
  }
  if (says(outcome, "too many pieces of blocks")) {
    ++outcome_.covered["lost: too many pieces"];
    return knobs_.held_ranges < 1'000 ? "" : "there are few";
  }
  // An array some of whose tasks had failed, or that was cancelled, is not made again (docs/design/recovery.md).
  if (says(outcome, "cannot be read from their checkpoint")) {
    ++outcome_.covered["lost: not read from its checkpoint"];
    return file_unread() ? "" : "all that was read of checkpoints was read well";
  }
  const bool failed =
      file_unread() || step_failed(client) || poisoned_ + knobs_.kills >= 3 || something_failed();
  const bool ended = std::any_of(client.requests.begin(), client.requests.end(),
                                 [](const auto& r) { return r.second.failed || r.second.cancelled; });
  if (says(outcome, "some of its tasks had failed")) return failed ? "" : "none had";
  if (says(outcome, "its request was cancelled")) return ended || left ? "" : "none was";
  if (says(outcome, "could not be made again")) return failed || ended ? "" : "nothing hindered that";
  return "it names no cause";
}

}  // namespace tilewise::sim
