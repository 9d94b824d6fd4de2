// Measuring links when the scheduler asks (docs/design/link-probes.md): bytes of no block, in memory of no arena, asked for and
// received as blocks are. One measurement at a time, which ends at once where there is work.
#include "state.h"

#include <algorithm>

namespace tilewise::worker {
namespace {

struct Size {
  std::int64_t bytes;
  std::size_t
      transfers;  // that count: before them comes one that pays for connections, page faults and registration
};
constexpr Size kSizes[] = {{4 << 10, 8}, {64 << 10, 4}, {1 << 20, 3}, {msg::kMaxProbeBytes, 2}};
constexpr TimeNs kOneNs = 10 * kMillisecond;  // what would take longer is not begun
constexpr TimeNs kAllNs = 50 * kMillisecond;  // from the first arrival: nothing is begun that would end later
constexpr TimeNs kPatienceNs = 1 * kSecond;   // for the link to come up and everything else

// As sizes measured before say: what one more byte costs, and where there is one size only, that all of it was bytes.
TimeNs foretold(const std::vector<msg::ProbedSize>& sizes, std::int64_t bytes) {
  const msg::ProbedSize& last = sizes.back();
  double ns_a_byte = static_cast<double>(last.took_ns) / static_cast<double>(last.bytes);
  if (sizes.size() > 1) {
    const msg::ProbedSize& before = sizes[sizes.size() - 2];
    ns_a_byte = static_cast<double>(std::max<TimeNs>(0, last.took_ns - before.took_ns)) /
                static_cast<double>(last.bytes - before.bytes);
  }
  return last.took_ns + static_cast<TimeNs>(ns_a_byte * static_cast<double>(bytes - last.bytes));
}

TimeNs median(std::vector<TimeNs> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

// Something runs, is on its way here, or is passed on from here.
bool Core::Impl::has_work() const {
  return tasks.live() > 0 || !transfers.empty() || !relaying.empty() || !ios.empty();
}

void Core::Impl::on_link_probe(const msg::LinkProbe& m) {
  if (m.nonce <= last_probe) return void(++counts.stale);
  last_probe = m.nonce;
  if (probing) end_probe(msg::ProbeEnd::kGivenUp, "another one is wanted");
  const int d = local(m.to);
  const auto from = remote.find(m.from.value);
  probing.emplace();
  Probing& p = *probing;
  p.asked = m;
  p.told.nonce = m.nonce;
  if (d < 0 || from == remote.end() || from->second.client || from->second.lost || m.from == m.to)
    return end_probe(msg::ProbeEnd::kFailed, "there are no such devices");
  p.device = static_cast<std::uint16_t>(d);
  p.peer = from->second.worker;
  if (stage != Stage::kWorks || has_work()) return end_probe(msg::ProbeEnd::kGivenUp, "there is work");
  if (probe_transfer != 0)
    return end_probe(msg::ProbeEnd::kGivenUp, "bytes of an earlier one are still on their way");
  p.until = now + kPatienceNs;
  const auto peer = peers.find(p.peer.value);
  if (p.peer == options.self || (peer != peers.end() && peer->second.ready)) begin_probe();
}

void Core::Impl::begin_probe() {
  probing->begun = true;
  probing->told.mapped = reach(probing->asked.from, msg::kProbeSlab, probing->device) == Reach::kReads;
  ask_for_probe();
}

void Core::Impl::ask_for_probe() {
  Probing& p = *probing;
  const std::int64_t bytes = kSizes[p.size].bytes;
  p.asked_at = now;
  probe_transfer = next_transfer++;
  const bool pulls = reached.contains({p.asked.from, msg::kProbeSlab, p.device});
  out->probe_receives.push_back({p.peer, probe_transfer, p.device, bytes, pulls ? p.asked.from : DeviceId{}});
  if (pulls) return;
  batch_to(p.asked.from).probes.push_back({p.asked.from, p.asked.to, probe_transfer, bytes});
}

void Core::Impl::probe_arrived(const TransferDone& event) {
  probe_transfer = 0;
  if (!probing || !probing->begun) return;  // what it was for has been given up
  Probing& p = *probing;
  if (event.failed.code != Errc::kOk) return end_probe(msg::ProbeEnd::kFailed, event.failed.message);
  if (p.since == 0) p.since = now;
  p.took.push_back(now - p.asked_at);
  const TimeNs last = p.took.back(), left = kAllNs - (now - p.since);
  const Size& size = kSizes[p.size];
  const bool one_counts = p.took.size() > 1;
  // Of each size that is begun one counts, whatever it takes: it was foretold not to take long.
  if (!one_counts || (p.took.size() <= size.transfers && last <= std::min(kOneNs, left)))
    return ask_for_probe();
  p.took.erase(p.took.begin());
  p.told.sizes.push_back({size.bytes, static_cast<std::uint32_t>(p.took.size()),
                          std::max<TimeNs>(1, median(p.took)), event.lane});
  p.took.clear();
  if (++p.size == std::size(kSizes)) return end_probe(msg::ProbeEnd::kMeasured, {});
  const TimeNs next = foretold(p.told.sizes, kSizes[p.size].bytes);
  if (next > kOneNs || 2 * next > left) return end_probe(msg::ProbeEnd::kMeasured, {});
  ask_for_probe();
}

// Told once. Bytes that are on their way come, or not: their memory is the shell's until that is over.
void Core::Impl::end_probe(msg::ProbeEnd end, std::string why) {
  if (probing->begun && probe_transfer != 0) out->disarms.push_back({probing->peer, probe_transfer});
  probing->told.end = end;
  probing->told.why = std::move(why);
  out->to_scheduler.push_back(std::move(probing->told));
  probing.reset();
}

void Core::Impl::check_probe() {
  if (!probing) return;
  if (stage != Stage::kWorks || has_work())
    end_probe(msg::ProbeEnd::kGivenUp, "work came");
  else if (now >= probing->until)
    end_probe(msg::ProbeEnd::kFailed, "no answer in time");
}

// From who measures the way from here, or who has work and will not send now what it was asked for: of no bytes. Repeats and late
// ones have an earlier number.
void Core::Impl::on_probe(WorkerId from, const msg::Probe& m) {
  const int d = local(m.from);
  if (m.bytes == 0 && probing && probing->begun && probing->peer == from && m.transfer == probe_transfer &&
      m.from == probing->asked.from && m.to == probing->asked.to)
    return end_probe(msg::ProbeEnd::kGivenUp, "the other end has work");
  const bool sound = d >= 0 && m.bytes > 0 && m.bytes <= msg::kMaxProbeBytes && !remote[m.to.value].client;
  if (!sound || m.transfer <= probes_served[from]) return void(++counts.stale);
  probes_served[from] = m.transfer;
  if (has_work()) return batch_to(m.to).probes.push_back({m.from, m.to, m.transfer, 0});
  out->probe_sends.push_back({from, m.transfer, static_cast<std::uint16_t>(d), m.bytes});
}

void Core::Impl::forget_probes(WorkerId peer) {
  probes_served.erase(peer);
  if (probing && probing->peer == peer) end_probe(msg::ProbeEnd::kFailed, "the other end was lost");
}

}  // namespace tilewise::worker
