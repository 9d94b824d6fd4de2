#include "links.h"

#include <tilewise/base/time.h>
#include <tilewise/tilewise.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

namespace tilewise::cli {
namespace {

constexpr std::size_t kMostForAll = 6;
constexpr std::int64_t kBlocks = 8;
constexpr int kHops = 40, kRounds = 3;

double seconds() { return static_cast<double>(monotonic_now()) * 1e-9; }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// The last copy between the two, by the receiver's clock alone: bytes on their way while there were any; of what was read in
// place, the time of the steps that read it.
void read_back(const Trace& trace, std::int64_t bytes, LinkSpeed& link) {
  const auto ours = [&](const TraceStep& s) {
    return s.kind == msg::TraceKind::kTransfer && s.device == link.to && s.peer == link.from;
  };
  std::map<std::uint64_t, std::int64_t>
      moved;  // by the op they came for: others' graphs may use the link too
  for (const TraceStep& s : trace.steps)
    if (ours(s)) moved[s.user] += s.bytes;
  std::uint64_t user = 0;
  for (const auto& [op, sum] : moved)
    if (sum == bytes) user = op;
  std::int64_t first = INT64_MAX, last = 0, reading = 0;
  for (const TraceStep& s : trace.steps) {
    if (ours(s) && s.user == user) {
      first = std::min(first, s.start_ns);
      last = std::max(last, s.end_ns);
      link.lane = s.what.starts_with("lane ") ? s.what.substr(5) : s.what;
    } else if (s.kind == msg::TraceKind::kStep && s.device == link.to && s.op == user) {
      reading += s.end_ns - s.start_ns;
    }
  }
  const std::int64_t took = link.lane == "mapped" ? reading : last - first;
  link.bytes_per_second =
      user != 0 && took > 0 ? static_cast<double>(bytes) / static_cast<double>(took) * 1e9 : 0;
}

double chain_seconds(const Session& session, const Device& a, const Device& b, int hops) {
  Array x = session.zeros({1}).on(a);
  for (int i = 0; i < hops; ++i) x = (x + 1.0).on(i % 2 == 0 ? b : a);
  const double start = seconds();
  x.persist().wait();
  return seconds() - start;
}

LinkSpeed measure(const Session& session, const Device& a, const Device& b) {
  LinkSpeed link{.from = a.name, .to = b.name};
  const std::int64_t room = std::min(a.memory_bytes, b.memory_bytes) / 16;
  const std::int64_t block = std::clamp<std::int64_t>(room / kBlocks, 4096, 8 << 20) / 8;
  Array x = session.zeros({kBlocks * block}, {.block = {block}}).on(a);
  x.persist().wait();
  std::vector<double> rates, hops;
  for (int i = 0; i <= kRounds; ++i) {  // the first connects
    Array y = x.on(b);
    y.persist().wait();
    if (i == 0) continue;
    read_back(session.trace(), kBlocks * block * 8, link);
    rates.push_back(link.bytes_per_second);
  }
  link.bytes_per_second = median(rates);
  for (int i = 0; i < kRounds; ++i)
    hops.push_back((chain_seconds(session, a, b, kHops + 4) - chain_seconds(session, a, b, 4)) / kHops * 1e6);
  link.hop_us = std::max(0.0, median(hops));
  return link;
}

}  // namespace

std::vector<LinkSpeed> measure_links(const Session& session, const std::map<WorkerId, std::string>& hosts,
                                     bool& all) {
  std::vector<Device> first;  // of each worker
  for (const Device& d : session.devices()) {
    const bool known =
        std::any_of(first.begin(), first.end(), [&](const Device& f) { return f.worker_id == d.worker_id; });
    if (!known) first.push_back(d);
  }
  all = first.size() <= kMostForAll;
  const auto host = [&](const Device& d) {
    const auto at = hosts.find(d.worker_id);
    return at == hosts.end() ? std::string() : at->second;
  };
  std::vector<LinkSpeed> out;
  for (std::size_t i = 0; i < first.size(); ++i) {
    for (std::size_t k = 1; k < (all ? first.size() : 2); ++k) {
      const Device& to = first[(i + k) % first.size()];
      out.push_back(measure(session, first[i], to));
      out.back().one_host = !host(to).empty() && host(first[i]) == host(to);
    }
  }
  return out;
}

double copy_rate() {
  constexpr std::size_t kBytes = 32 << 20;
  const auto from = std::make_unique<char[]>(kBytes), to = std::make_unique<char[]>(kBytes);
  double best = 1e9;
  for (int i = 0; i < 8; ++i) {  // the first one takes the pages; others may be kept from their core
    const double start = seconds();
    std::memcpy(to.get(), from.get(), kBytes);
    best = std::min(best, seconds() - start);
  }
  return static_cast<double>(kBytes) / best;
}

double network_rate() {
  double best = 0;
  std::error_code ec;
  for (const auto& interface : std::filesystem::directory_iterator("/sys/class/net", ec)) {
    double megabits = 0;
    std::ifstream(interface.path() / "speed") >> megabits;  // -1 or unreadable: not known
    best = std::max(best, megabits * 1e6 / 8);
  }
  return best;
}

}  // namespace tilewise::cli
