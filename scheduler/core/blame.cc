// Who takes workers down: a supervisor tells what its worker was executing when it died. What did so kMaxDeaths times fails;
// what did so at all runs alone from then on, so that nothing is blamed for its company (docs/design/recovery.md).
#include "graphs.h"
#include "handlers.h"
#include "outbox.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

constexpr std::size_t kMaxRunning = 1024;  // of one worker

// With what it runs and makes, for who wants to find it.
std::string describe_blamed(const State& s, const OpRecord& head) {
  std::string text = describe(s, head);
  if (head.op.kind == ir::OpKind::kCall) text += ", kernel '" + head.op.get<ir::CallAttrs>().kernel + "'";
  if (head.op.outputs.empty()) return text;
  const ArrayRecord* array = s.arrays.find(ArrayId{head.op.outputs[0].array});
  return array == nullptr ? text : text + ", for " + describe(*array);
}

void count_death(State& s, const Peer& dead, const std::string& how, const msg::LastWords::Running& running) {
  OpRecord* op = s.ops.find(running.op);
  const Device* device = s.device(running.device);
  if (op == nullptr || device == nullptr || device->peer != dead.info.id) return;
  const OpRecord& head = head_of(s, *op);
  if (running.point < 0 || running.point >= head.op.space.block_count()) return;
  const std::pair key(head.id, running.point);
  if (s.blame.size() >= kMaxBlamed && !s.blame.contains(key)) return;
  std::vector<Death>& deaths = s.blame[key];
  if (deaths.size() < kMaxDeaths) deaths.push_back({dead.info.id, how});
}

}  // namespace

void on_last_words(State& s, const msg::LastWords& words) {
  Peer* known = s.find_worker(words.worker);
  if (known == nullptr) return;
  Peer& dead = *known;
  if (dead.black_box == 0 || dead.black_box != words.black_box || std::exchange(dead.last_words, true))
    return;
  s.recovery.unheard.erase(words.worker);
  for (std::size_t i = 0; i < std::min(words.running.size(), kMaxRunning); ++i)
    count_death(s, dead, words.how.substr(0, limits::kMaxNameBytes), words.running[i]);
  // Who is dead does not come back within its lease.
  if (!dead.alive) return;
  if (s.links.contains(dead.conn))
    close_link(s, dead.conn, error(Errc::kUnavailable, "its process has ended"));
  lose_peer(s, words.worker);
}

std::size_t deaths_of(const State& s, OpId head, std::int64_t point) {
  const auto found = s.blame.find({head, point});
  return found == s.blame.end() ? 0 : found->second.size();
}

msg::Outcome doom_of(const State& s, OpId head, std::int64_t point) {
  const std::vector<Death>& deaths = s.blame.at({head, point});
  std::string text = describe_blamed(s, s.ops.at(head)) + ", point " + std::to_string(point) +
                     " is not run again, because " + std::to_string(deaths.size()) +
                     " workers died while they were executing it:";
  for (const Death& death : deaths) {
    text += (&death == &deaths.front() ? " w" : ", w") + std::to_string(death.worker.value) + " ('" +
            s.peer(death.worker).info.name + "'), " + death.how;
  }
  return {Errc::kTaskFailed, std::move(text)};
}

void forget_blame(State& s, OpId head) {
  const auto first = s.blame.lower_bound({head, 0});
  auto last = first;
  while (last != s.blame.end() && last->first.first == head) ++last;
  s.blame.erase(first, last);
}

}  // namespace tilewise::scheduler
