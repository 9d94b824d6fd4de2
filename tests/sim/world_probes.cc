// Links that workers measure when the scheduler asks: bytes without blocks, on the same ways as all else.
#include "world_parts.h"

namespace tilewise::sim {

namespace {
constexpr int kMostGone = 12;
}

void World::ask_for_probe(int index, const msg::LinkProbe& probe) {
  const scheduler::Conn conn = workers_[static_cast<std::size_t>(index)]->conn;
  const auto read = [this, index, conn, probe](auto&& self) -> void {
    if (held_back(conn, [self] { self(self); })) return;
    deliver_worker(index, probe);
  };
  const auto send = [this, conn, read] { arrive({kScheduler, way_of(conn).first}, [read] { read(read); }); };
  if (prng_.chance(knobs_.duplicate)) {
    ++outcome_.covered["duplicate probes"];
    at(jitter(), send);
  }
  at(jitter(), send);
}

void World::note_probed(const msg::LinkProbed& told) {
  static constexpr Counted kEnds[] = {"links measured", "measurements given up", "measurements failed"};
  ++outcome_.covered[kEnds[static_cast<std::size_t>(told.end)]];
}

void World::perform_probes(int index, const worker::Actions& actions) {
  Worker& worker = *workers_[static_cast<std::size_t>(index)];
  for (const worker::ProbeReceive& receive : actions.probe_receives) {
    if (receive.bytes < 1 || receive.bytes > msg::kMaxProbeBytes)
      return violate("a probe of a size that may not be");
    worker.probes.emplace(receive.transfer, receive);
    if (worker.probes.size() > 1) violate("a worker measures two links at once");
    if (!receive.pulled) continue;
    at(delay({receive.from.value, worker.welcome.you.value}), [this, index, t = receive.transfer] {
      end_probe(index, t, {Errc::kOk, {}});
    });
  }
  // One end of a link that is being measured. Who comes in its place brings links to be measured, so there is a limit.
  if (!actions.probe_receives.empty() && knobs_.kills > 0 && gone_ < kMostGone && prng_.chance(0.03)) {
    const WorkerId end = prng_.chance(0.5) ? worker.welcome.you : actions.probe_receives[0].from;
    at(jitter(), [this, end] {
      for (std::size_t w = 0; w < workers_.size(); ++w) {
        if (workers_[w]->welcome.you != end || !workers_[w]->alive || workers_[w]->core == nullptr) continue;
        if (workers_[w]->core->counters().probing == 0)
          ++outcome_.covered["killed while its link was measured"];
        kill(static_cast<int>(w));
        return respawn();
      }
    });
  }
  for (const worker::ProbeSend& send : actions.probe_sends) {
    const Way way{worker.welcome.you.value, send.to.value};
    at(delay(way), [this, way, send] { arrive(way, [this, send] { probe_arrives(send); }); });
  }
}

void World::probe_arrives(const worker::ProbeSend& send) {
  for (std::size_t w = 0; w < workers_.size(); ++w) {
    Worker& to = *workers_[w];
    const auto armed = to.probes.find(send.transfer);
    if (to.welcome.you != send.to || !to.alive || armed == to.probes.end()) continue;
    if (armed->second.bytes != send.bytes) return violate("a probe of another size than was asked for");
    end_probe(static_cast<int>(w), send.transfer, {Errc::kOk, {}});
  }
}

void World::end_probe(int index, std::uint64_t transfer, Error how) {
  if (workers_[static_cast<std::size_t>(index)]->probes.erase(transfer) == 0) return;
  deliver_worker(index, worker::TransferDone{transfer, std::move(how), msg::Lane::kTcp});
}

// The transport lets go of what was to come from there.
void World::probes_lost(int index, WorkerId from) {
  for (const auto& [transfer, receive] : workers_[static_cast<std::size_t>(index)]->probes) {
    if (receive.from != from) continue;
    at(jitter(), [this, index, t = transfer] {
      end_probe(index, t, {Errc::kUnavailable, "the sender is gone"});
    });
  }
}

bool World::links_are_measured() const {
  const auto seen = scheduler_->view(scheduler::LinksRequest{}, now_);
  const auto& classes = std::get<scheduler::LinkList>(seen).classes;
  return std::any_of(classes.begin(), classes.end(), [](const auto& c) { return c.state == "under way"; });
}

// The way between any two devices that blocks may be copied between is of one of the classes, and there are no others.
void World::check_classes(const scheduler::LinkList& seen) {
  using Way =
      std::tuple<std::string, int, std::string, int, bool>;  // from a host and kind, to, inside a process
  std::set<Way> wanted, there;
  const int workers = static_cast<int>(workers_.size()), each = knobs_.devices_each;
  for (int a = 0; a < workers * each; ++a) {
    for (int b = 0; b < workers * each; ++b) {
      const int from = a / each, to = b / each, kinds[] = {knobs_.kind(a % each), knobs_.kind(b % each)};
      if (a == b || (from == to && kinds[0] + kinds[1] == 0)) continue;
      if (workers_[static_cast<std::size_t>(from)]->alive && workers_[static_cast<std::size_t>(to)]->alive)
        wanted.emplace("host-" + std::to_string(host_of(from)), kinds[0],
                       "host-" + std::to_string(host_of(to)), kinds[1], from == to);
    }
  }
  for (const scheduler::LinkClassView& c : seen.classes)
    there.emplace(c.from, c.from_kind, c.to, c.to_kind, c.inside);
  constexpr int kHosts = 8;  // beyond that not all are measured
  if (workers <= kHosts && there != wanted) violate("other classes of links than there should be");
}

// At rest every class of links is known, or was given up for good reason; and where nothing is in the way, known.
void World::check_probes() {
  const auto seen = scheduler_->view(scheduler::LinksRequest{}, now_);
  const bool calm = knobs_.clogs + knobs_.partitions + knobs_.zombies + knobs_.kills + knobs_.drains +
                            knobs_.breaks + knobs_.scheduler_crashes + knobs_.pauses + knobs_.one_ways +
                            knobs_.acts ==
                        0 &&
                    knobs_.slow_links + knobs_.kill_worker + knobs_.poison == 0;
  for (const scheduler::LinkClassView& c : std::get<scheduler::LinkList>(seen).classes) {
    const bool measured = c.state == "measured" && !c.last.sizes.empty() && c.bytes_per_s > 0;
    if (!measured && (calm || c.state != "given up"))
      violate("at rest a link is " + std::string(c.state) + ", " + c.last.why);
  }
  if (calm && knobs_.link_probes) check_classes(std::get<scheduler::LinkList>(seen));
  for (const auto& worker : workers_) {
    if (worker->alive && (worker->core->counters().probing != 0 || !worker->probes.empty()))
      violate("a link is measured at rest");
  }
}

}  // namespace tilewise::sim
