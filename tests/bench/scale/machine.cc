#include "machine.h"

#include <tilewise/base/check.h>

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <queue>

namespace tilewise::scale {
namespace {

constexpr std::uint32_t kNone = ~0u;
constexpr double kShownLatency = 0.1;  // of memory that is read in place

struct Copy {  // of a block, elsewhere than where it was made
  std::uint32_t block = 0;
  std::int32_t device = 0;
  std::uint32_t next = kNone;     // of the same block
  std::uint32_t waiters = kNone;  // list of reads
  std::uint32_t children = kNone,
                sibling = kNone;  // copies made from this one; the next of those made from the same
  std::int32_t from = -1;         // device; the block's own
  std::uint32_t uses = 0;
  bool here = false, mapped = false, passed_on = false;
};

struct Event {
  double at = 0;
  std::uint64_t number = 0;  // equal times in order of creation
  std::uint32_t index = 0;
  bool step = false;  // a task's step has ended; else a copy has come
  bool operator<(const Event& other) const { return at != other.at ? at > other.at : number > other.number; }
};

using Ready = std::pair<std::uint64_t, std::uint32_t>;  // rank and plan order; task

struct Place {
  std::vector<Ready> ready;  // heap, least first
  std::int32_t free_streams = 1;
  double sends_until = 0, receives_until = 0;
  std::int64_t bytes = 0;
};

class Run {
 public:
  Run(const Unrolled& graph, const Machine& machine, std::vector<std::int32_t> owners, const Choose* choose,
      const Finished* finished)
      : g_(graph),
        m_(machine),
        choose_(choose),
        finished_(finished),
        occupied_s_(machine.devices.size()),
        owner_(std::move(owners)) {
    places_.resize(m_.devices.size());
    for (std::size_t d = 0; d < places_.size(); ++d)
      places_[d].free_streams = std::max(1, m_.devices[d].streams);
    owner_.resize(g_.tasks(), -1);
    next_step_ = g_.first_step;
    missing_.resize(g_.steps());
    made_.resize(g_.tasks());
    waiters_.assign(g_.tasks(), kNone);
    copies_of_.assign(g_.tasks(), kNone);
    uses_.resize(g_.tasks());
    next_waiter_.assign(g_.reads.size(), kNone);
    step_of_.resize(g_.reads.size());
    for (std::uint32_t s = 0; s < g_.steps(); ++s)
      for (std::uint32_t r = g_.first_read[s]; r < g_.first_read[s + 1]; ++r) step_of_[r] = s;
    reader_.assign(g_.tasks(), kNone);
    for (std::uint32_t t = g_.tasks(); t-- > 0;)
      for (std::uint32_t r = g_.first_read[g_.first_step[t]]; r < g_.first_read[g_.first_step[t + 1]]; ++r)
        reader_[g_.reads[r]] = t;
  }

  Outcome go() {
    choose_ != nullptr ? begin_choosing() : begin_fixed();
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      event.step ? ended(event.index) : arrived(event.index);
    }
    out_.seconds = now_;
    TW_CHECK(out_.tasks == g_.tasks(), "not every task has run");
    return out_;
  }

 private:
  void begin_fixed() {
    for (std::uint32_t t = 0; t < g_.tasks(); ++t) attach(t);
    for (std::uint32_t t = 0; t < g_.tasks(); ++t)  // once it is known what others wait for
      if (missing_[g_.first_step[t]] == 0) push(t);
    for (std::size_t d = 0; d < places_.size(); ++d) dispatch(static_cast<std::int32_t>(d));
  }
  // What a task waits for before it is given a device: blocks not made, counted once a read.
  void begin_choosing() {
    left_.resize(g_.tasks());
    first_user_.assign(g_.tasks(), kNone);
    next_user_.assign(g_.reads.size(), kNone);
    for (std::uint32_t t = g_.tasks(); t-- > 0;) {
      for (std::uint32_t r = g_.first_read[g_.first_step[t]]; r < g_.first_read[g_.first_step[t + 1]]; ++r) {
        ++left_[t];
        ++uses_[g_.reads[r]];
        next_user_[r] = std::exchange(first_user_[g_.reads[r]], r);
      }
    }
    for (std::uint32_t t = 0; t < g_.tasks(); ++t)
      if (left_[t] == 0) give(t);
    for (std::size_t d = 0; d < places_.size(); ++d) dispatch(static_cast<std::int32_t>(d));
  }
  void give(std::uint32_t t) {
    const Running running{g_,
                          m_,
                          owner_,
                          occupied_s_.values(),
                          occupied_s_.place(),
                          [this](std::uint32_t block, std::int32_t device) {
                            return owner_[block] == device || find(block, device) != kNone;
                          }};
    owner_[t] = (*choose_)(t, running);
    occupied_s_.add(static_cast<std::size_t>(owner_[t]), task_s(t));
    attach(t);
    if (missing_[g_.first_step[t]] == 0) push(t);
  }
  double task_s(std::uint32_t t) const {
    return static_cast<double>(g_.step_s[t]) * (g_.first_step[t + 1] - g_.first_step[t]) *
           m_.ratio(static_cast<std::size_t>(owner_[t]));
  }

  // ---- blocks ----

  std::uint64_t key(std::uint32_t block, std::int32_t device) const {
    return static_cast<std::uint64_t>(block) << 32 | static_cast<std::uint32_t>(device);
  }
  std::uint32_t find(std::uint32_t block, std::int32_t device) const {
    const auto it = copy_at_.find(key(block, device));
    return it == copy_at_.end() ? kNone : it->second;
  }
  // Each read of the task hangs on a block, here or on its way.
  void attach(std::uint32_t t) {
    const std::int32_t here = owner_[t];
    for (std::uint32_t s = g_.first_step[t]; s < g_.first_step[t + 1]; ++s) {
      missing_[s] += s > g_.first_step[t] ? 1 : 0;
      for (std::uint32_t r = g_.first_read[s]; r < g_.first_read[s + 1]; ++r) {
        const std::uint32_t block = g_.reads[r];
        if (owner_[block] == here) {
          if (choose_ == nullptr) ++uses_[block];
          if (!made_[block]) wait(waiters_[block], r);
          continue;
        }
        Copy& copy = copies_[copy_of(block, here)];
        ++copy.uses;
        if (!copy.here) wait(copy.waiters, r);
      }
    }
  }
  void wait(std::uint32_t& list, std::uint32_t read) {
    next_waiter_[read] = std::exchange(list, read);
    ++missing_[step_of_[read]];
  }
  std::uint32_t copy_of(std::uint32_t block, std::int32_t device) {
    const auto [it, fresh] =
        copy_at_.try_emplace(key(block, device), static_cast<std::uint32_t>(copies_.size()));
    if (!fresh) return it->second;
    Copy copy;
    copy.block = block;
    copy.device = device;
    copy.from = owner_[block];
    copy.next = std::exchange(copies_of_[block], it->second);
    copy.mapped = link(copy.from, device).mapped;
    copies_.push_back(copy);
    if (choose_ == nullptr) ++uses_[block];
    if (made_[block]) send(it->second);
    return static_cast<std::uint32_t>(copies_.size() - 1);
  }
  place::LinkSpeed link(std::int32_t from, std::int32_t to) const {
    return place::link_between(m_.devices[static_cast<std::size_t>(from)],
                               m_.devices[static_cast<std::size_t>(to)]);
  }
  // The first copy on each other host is made from the block, or from one such copy of the two that come before it; the
  // others from the first of their host.
  void send_by_trees(std::uint32_t block) {
    const auto host = [&](std::int32_t device) { return m_.devices[static_cast<std::size_t>(device)].host; };
    std::vector<std::uint32_t> copies;
    for (std::uint32_t c = copies_of_[block]; c != kNone; c = copies_[c].next) copies.push_back(c);
    std::sort(copies.begin(), copies.end(),
              [&](std::uint32_t a, std::uint32_t b) { return copies_[a].device < copies_[b].device; });
    std::vector<std::uint32_t> leaders, now;
    for (const std::uint32_t c : copies) {
      if (host(copies_[c].device) == host(owner_[block])) {
        now.push_back(c);
        continue;
      }
      const auto leader = std::find_if(leaders.begin(), leaders.end(), [&](std::uint32_t other) {
        return host(copies_[other].device) == host(copies_[c].device);
      });
      if (leader != leaders.end()) {
        hang(c, *leader);
        continue;
      }
      leaders.push_back(c);
      if (leaders.size() <= 2)
        now.push_back(c);
      else
        hang(c, leaders[(leaders.size() - 1) / 2 - 1]);
    }
    for (const std::uint32_t c : now) send(c);
  }
  void hang(std::uint32_t child, std::uint32_t parent) {
    copies_[child].from = copies_[parent].device;
    copies_[child].passed_on = true;  // copied, though it may be read in place
    copies_[child].sibling = std::exchange(copies_[parent].children, child);
    ++copies_[parent].uses;
  }
  void send(std::uint32_t index) {
    const Copy& copy = copies_[index];
    const auto from = static_cast<std::size_t>(copy.from), to = static_cast<std::size_t>(copy.device);
    const place::LinkSpeed speed = copy.passed_on ? place::Speeds{}.copying(m_.devices[from], m_.devices[to])
                                                  : link(copy.from, copy.device);
    if (copy.mapped) return event(now_ + kShownLatency * speed.latency_s, index, false);
    const std::int64_t bytes = g_.bytes[copy.block];
    out_.moved_bytes += bytes;
    if (m_.devices[from].host != m_.devices[to].host) out_.crossing_bytes += bytes;
    take(copy.device, bytes);
    const double took = static_cast<double>(bytes) / speed.bytes_per_s;
    const double start = std::max(now_, places_[from].sends_until);
    places_[from].sends_until = start + took;
    places_[to].receives_until = std::max(start, places_[to].receives_until) + took;
    event(std::max(places_[from].sends_until, places_[to].receives_until) + speed.latency_s, index, false);
  }
  void arrived(std::uint32_t index) {
    copies_[index].here = true;
    if (choose_ == nullptr && !copies_[index].mapped) drop_source(copies_[index]);
    for (std::uint32_t c = copies_[index].children; c != kNone; c = copies_[c].sibling) send(c);
    wake(std::exchange(copies_[index].waiters, kNone));
    dispatch(copies_[index].device);
  }
  void wake(std::uint32_t list) {
    for (std::uint32_t r = list; r != kNone; r = next_waiter_[r]) {
      const std::uint32_t s = step_of_[r];
      if (--missing_[s] > 0) continue;
      const std::uint32_t t = task_of(r);
      if (next_step_[t] == s) push(t);
    }
  }
  std::uint32_t task_of(std::uint32_t read) const {
    const auto it = std::upper_bound(g_.first_step.begin(), g_.first_step.end(), step_of_[read]);
    return static_cast<std::uint32_t>(it - g_.first_step.begin()) - 1;
  }

  // ---- memory ----

  void take(std::int32_t device, std::int64_t bytes) {
    Place& place = places_[static_cast<std::size_t>(device)];
    place.bytes += bytes;
    out_.peak_bytes = std::max(out_.peak_bytes, place.bytes);
  }
  void drop_use(std::uint32_t block) {
    if (--uses_[block] == 0) maybe_free(block);
  }
  void maybe_free(std::uint32_t block) {
    if (uses_[block] > 0 || !made_[block] || g_.ops[g_.op_of[block]].held) return;
    places_[static_cast<std::size_t>(owner_[block])].bytes -= g_.bytes[block];
    if (choose_ == nullptr) return;
    for (std::uint32_t c = copies_of_[block]; c != kNone; c = copies_[c].next)
      if (!copies_[c].mapped) places_[static_cast<std::size_t>(copies_[c].device)].bytes -= g_.bytes[block];
  }
  void used(std::uint32_t block, std::int32_t device) {
    if (owner_[block] == device) return drop_use(block);
    Copy& copy = copies_[find(block, device)];
    if (choose_ != nullptr) return drop_use(block);
    drop_copy_use(copy);
  }
  void drop_copy_use(Copy& copy) {
    if (--copy.uses > 0) return;
    if (copy.mapped)
      drop_source(copy);
    else
      places_[static_cast<std::size_t>(copy.device)].bytes -= g_.bytes[copy.block];
  }
  // What a copy was made from, or is read through.
  void drop_source(const Copy& copy) {
    if (copy.from == owner_[copy.block]) return drop_use(copy.block);
    drop_use(copy.block);  // the owner's waits for all
    drop_copy_use(copies_[find(copy.block, copy.from)]);
  }

  // ---- steps ----

  void push(std::uint32_t t) {
    std::vector<Ready>& ready = places_[static_cast<std::size_t>(owner_[t])].ready;
    const bool source = g_.first_read[g_.first_step[t]] == g_.first_read[g_.first_step[t + 1]];
    const bool wanted = copies_of_[t] != kNone;
    // What nobody else waits for is made when its first reader would be next.
    const std::uint32_t as = source && !wanted && reader_[t] != kNone ? reader_[t] : t;
    const std::uint64_t rank = 2 * std::uint64_t{g_.op_of[as]} + (wanted ? 0 : 1);
    ready.emplace_back(rank << 32 | as, t);
    std::push_heap(ready.begin(), ready.end(), std::greater<>());
  }
  void dispatch(std::int32_t device) {
    Place& place = places_[static_cast<std::size_t>(device)];
    while (place.free_streams > 0 && !place.ready.empty()) {
      std::pop_heap(place.ready.begin(), place.ready.end(), std::greater<>());
      const std::uint32_t t = place.ready.back().second;
      place.ready.pop_back();
      --place.free_streams;
      if (next_step_[t] == g_.first_step[t]) take(device, g_.bytes[t]);
      event(now_ + static_cast<double>(g_.step_s[t]) * m_.ratio(static_cast<std::size_t>(device)), t, true);
    }
  }
  void ended(std::uint32_t t) {
    const std::int32_t device = owner_[t];
    ++places_[static_cast<std::size_t>(device)].free_streams;
    const std::uint32_t s = next_step_[t]++;
    for (std::uint32_t r = g_.first_read[s]; r < g_.first_read[s + 1]; ++r) used(g_.reads[r], device);
    if (next_step_[t] == g_.first_step[t + 1])
      made(t, device);
    else if (--missing_[s + 1] == 0)
      push(t);
    dispatch(device);
  }
  void made(std::uint32_t t, std::int32_t device) {
    ++out_.tasks;
    made_[t] = true;
    if (g_.bytes[t] > m_.tree_bytes && choose_ == nullptr)
      send_by_trees(t);
    else
      for (std::uint32_t c = copies_of_[t]; c != kNone; c = copies_[c].next) send(c);
    wake(std::exchange(waiters_[t], kNone));
    if (choose_ != nullptr) {
      occupied_s_.add(static_cast<std::size_t>(device), -task_s(t));
      for (std::uint32_t r = first_user_[t]; r != kNone; r = next_user_[r]) {
        const std::uint32_t user = task_of(r);
        if (--left_[user] > 0) continue;
        give(user);
        if (owner_[user] != device) dispatch(owner_[user]);
      }
    }
    maybe_free(t);
    if (finished_ != nullptr && *finished_) (*finished_)(now_, t, device);
  }

  void event(double at, std::uint32_t index, bool step) { events_.push({at, ++number_, index, step}); }

  const Unrolled& g_;
  const Machine& m_;
  const Choose* choose_;
  const Finished* finished_;
  Outcome out_;
  double now_ = 0;
  std::uint64_t number_ = 0;
  std::vector<Place> places_;
  Least occupied_s_;
  std::vector<std::int32_t> owner_;                           // by task
  std::vector<std::uint32_t> next_step_, missing_;            // by task; by step
  std::vector<std::uint8_t> made_;                            // by task
  std::vector<std::uint32_t> reader_;                         // by block: the first one
  std::vector<std::uint32_t> waiters_, copies_of_, uses_;     // by block
  std::vector<std::uint32_t> next_waiter_, step_of_;          // by read
  std::vector<std::uint32_t> left_, first_user_, next_user_;  // while choosing: by task, by block, by read
  std::vector<Copy> copies_;
  boost::unordered_flat_map<std::uint64_t, std::uint32_t> copy_at_;
  std::priority_queue<Event> events_;
};

}  // namespace

double Machine::speed() const {
  double all = 0;
  for (std::size_t d = 0; d < devices.size(); ++d) all += std::max(1, devices[d].streams) / ratio(d);
  return all;
}

Outcome run(const Unrolled& graph, const Machine& machine, std::vector<std::int32_t> owners,
            const Finished& finished) {
  TW_CHECK(owners.size() == graph.tasks(), "every task needs a device");
  return Run(graph, machine, std::move(owners), nullptr, &finished).go();
}
Outcome run(const Unrolled& graph, const Machine& machine, const Choose& choose) {
  return Run(graph, machine, {}, &choose, nullptr).go();
}

double lower_bound_s(const Unrolled& graph, const Machine& machine, double received_bytes) {
  double fastest = machine.ratio(0), port = 0;
  for (std::size_t d = 0; d < machine.devices.size(); ++d) fastest = std::min(fastest, machine.ratio(d));
  for (const place::Device& other : machine.devices) {
    const place::LinkSpeed link = place::link_between(machine.devices[0], other);
    if (link.mapped) received_bytes = 0;  // what is read in place is not received
    port = std::max(port, link.bytes_per_s);
  }
  const double links = port > 0 ? received_bytes / port : 0;
  return std::max({graph.work_s() / machine.speed(), graph.chain_s() * fastest, links});
}

}  // namespace tilewise::scale
