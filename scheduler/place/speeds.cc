#include <tilewise/place/speeds.h>

#include <algorithm>
#include <cmath>

namespace tilewise::place {

constexpr std::int64_t kLeftFree = 4;  // a part of the memory
constexpr std::int64_t kLittle = 16;   // such a part of what is free

std::int64_t Device::headroom_bytes(Room room) const {
  if (memory_bytes == 0 || room == Room::kNone) return INT64_MAX;
  const std::int64_t left = memory_bytes - stays_bytes;
  std::int64_t bytes = left;
  if (room == Room::kAmple && !spills) bytes = std::max(left - memory_bytes / kLeftFree, left / kLittle);
  if (room == Room::kLater) bytes += earlier_bytes;
  return std::max<std::int64_t>(0, bytes);
}

Room Device::room_for(double bytes, std::int64_t block_bytes) const {
  if (!can_hold(block_bytes)) return Room::kNone;
  if (spills) return Room::kAmple;
  for (const Room room : {Room::kAmple, Room::kTight, Room::kLater})
    if (bytes <= static_cast<double>(headroom_bytes(room))) return room;
  return Room::kNone;
}

namespace {

// Before anything has run: one core is what the plain model describes; a GPU is some fifty times that.
constexpr double kCudaRatio = 0.02;
constexpr std::int64_t kTooMuchNs = 1e16;  // four months: of one report: nonsense
// Rows of eight empty tasks that read from another process took some 20 us of a worker's time more than rows that do not (docs/figures.md).
constexpr double kAttention = 3e-6;
constexpr LinkSpeed kInProcess{20e9, 10e-6}, kSameHost{5e9, 30e-6, false, kAttention},
    kOtherHost{2.5e9, 60e-6, false, kAttention};
constexpr double kAlike = 1.3;  // measured speeds that differ by less are noise
constexpr double kStep = 1.25;  // and the others are told apart in steps of this
constexpr std::int64_t kTooManyBytes = 1e18;
constexpr std::int64_t kEnoughBytes = 4 << 20, kEnoughTransfers = 8;  // of a link
constexpr std::int64_t kEnoughNs = 100'000;                           // of model time: less says little
constexpr std::int64_t kMostProbedNs = 1'000'000'000'000;             // more is nonsense
constexpr double kMib = 1 << 20;
constexpr std::int64_t kWindowNs = 10'000'000'000;     // of steps
constexpr std::int64_t kLinkWindowNs = 1'000'000'000;  // of transfers
constexpr std::int64_t kLinkWindowTransfers = 4096;

constexpr std::int64_t kPieces =
    8;  // a window is filled in no fewer, so that it forgets as an exponential does
constexpr std::int64_t kMostPieces = 64;  // of one report: what was before has gone by then
constexpr double kStall = 3;              // times as slow as before: no more is believed of a report, ...
constexpr std::int64_t kLongestStallNs = 1'000'000'000;  // ... but for what is beyond this, of each stream

// How many pieces a report of so much is added in, and what of it counts then.
struct Pieces {
  Pieces(std::int64_t much, std::int64_t window)
      : count(std::clamp<std::int64_t>(much / (window / kPieces), 1, kMostPieces)),
        counted(std::min(much, count * (window / kPieces) + window / kPieces)),
        of(std::max<std::int64_t>(1, much)) {}
  std::int64_t piece(std::int64_t i, std::int64_t x) const {
    const auto until = [&](std::int64_t n) { return static_cast<__int128>(x) * counted / of * n / count; };
    return static_cast<std::int64_t>(until(i + 1) - until(i));
  }
  std::int64_t count, counted, of;
};

std::int64_t scaled(std::int64_t x, std::int64_t to, std::int64_t from) {
  return static_cast<std::int64_t>(static_cast<__int128>(x) * to / from);
}

double sane_rate(double bytes_per_s) { return std::clamp(bytes_per_s, 1e5, 1e12); }
double sane_latency(double seconds) { return std::clamp(seconds, 1e-6, 0.1); }

}  // namespace

LinkSpeed link_between(const Device& from, const Device& to) {
  if (from.id == to.id) return {};
  const bool hosts = from.kind == kHostKind && to.kind == kHostKind;
  const bool inside = from.worker == to.worker && from.worker;
  if (from.host == to.host && hosts) return {20e9, 10e-6, true, inside ? 0 : kAttention};
  if (inside) return kInProcess;
  return from.host == to.host ? kSameHost : kOtherHost;
}

LinkClass class_of(const Device& from, const Device& to) {
  return {{from.host, from.kind}, {to.host, to.kind}, from.worker == to.worker && from.worker};
}

double Speeds::Sum::ratio() const {
  if (model_ns < kEnoughNs) return 0;
  return static_cast<double>(recent_busy_ns) /
         static_cast<double>(std::max<std::int64_t>(1, recent_model_ns));
}

std::int64_t Speeds::Sum::believed(std::int64_t busy, std::int64_t model, std::int64_t streams) {
  const double before = ratio(), much = kStall * before * static_cast<double>(model);
  if (before == 0 || static_cast<double>(busy) <= much) {
    doubted_ns = 0;
    return busy;
  }
  const std::int64_t left = kLongestStallNs * std::max<std::int64_t>(1, streams) - doubted_ns;
  const std::int64_t doubted =
      std::min(busy - static_cast<std::int64_t>(much), std::max<std::int64_t>(0, left));
  doubted_ns += doubted;
  return busy - doubted;
}

void Speeds::Sum::count(std::int64_t busy, std::int64_t model) {
  busy_ns += std::min(busy, INT64_MAX - busy_ns);
  model_ns += std::min(model, INT64_MAX - model_ns);
}

void Speeds::Sum::add(std::int64_t busy, std::int64_t model) {
  const Pieces pieces(busy, kWindowNs);
  for (std::int64_t i = 0; i < pieces.count; ++i) {
    recent_busy_ns += pieces.piece(i, busy), recent_model_ns += pieces.piece(i, model);
    if (recent_busy_ns <= kWindowNs) continue;
    recent_model_ns = scaled(recent_model_ns, kWindowNs, recent_busy_ns);
    recent_busy_ns = kWindowNs;
  }
}

// The window is full when there is as much of either in it.
void Speeds::LinkSum::add(std::int64_t more, std::int64_t more_bytes, std::int64_t busy) {
  transfers += more, bytes += more_bytes, busy_ns += busy;
  const bool by_time = busy / kLinkWindowNs >= more / kLinkWindowTransfers;
  const Pieces pieces = by_time ? Pieces(busy, kLinkWindowNs) : Pieces(more, kLinkWindowTransfers);
  for (std::int64_t i = 0; i < pieces.count; ++i) {
    recent_transfers += pieces.piece(i, more);
    recent_bytes += pieces.piece(i, more_bytes), recent_busy_ns += pieces.piece(i, busy);
    const auto fit = [&](std::int64_t to, std::int64_t from) {
      if (from <= to) return;
      recent_transfers = scaled(recent_transfers, to, from);
      recent_bytes = scaled(recent_bytes, to, from);
      recent_busy_ns = scaled(recent_busy_ns, to, from);
    };
    fit(kLinkWindowNs, recent_busy_ns);
    fit(kLinkWindowTransfers, recent_transfers);
  }
}

void Speeds::learn(const Device& device, std::string_view family, std::int64_t busy_ns,
                   std::int64_t model_ns) {
  Sum& own = devices_[device.id].try_emplace(std::string(family)).first->second;
  if (busy_ns < own.busy_ns || model_ns < own.model_ns) return;
  const std::int64_t busy = busy_ns - own.busy_ns, model = model_ns - own.model_ns;
  if (busy > kTooMuchNs || model > kTooMuchNs) return;
  const std::int64_t believed = own.believed(busy, model, device.streams);
  for (Sum* sum : {&kinds_[device.kind].try_emplace(std::string(family)).first->second, &own}) {
    sum->count(busy, model);
    sum->add(believed, model);
  }
}

void Speeds::forget(DeviceId device) { devices_.erase(device); }

double Speeds::ratio(const Device& device, std::string_view family) const {
  const auto of = [&](const Families& families) -> double {
    const auto it = families.find(family);
    return it == families.end() ? 0 : it->second.ratio();
  };
  if (const auto it = devices_.find(device.id); it != devices_.end()) {
    if (const double ratio = of(it->second); ratio > 0) return ratio;
  }
  if (const auto it = kinds_.find(device.kind); it != kinds_.end()) {
    if (const double ratio = of(it->second); ratio > 0) return ratio;
  }
  return device.kind == kCudaKind ? kCudaRatio : 1;
}

std::vector<double> Speeds::coarse_ratios(std::span<const Device> devices, std::string_view family) const {
  std::vector<double> out;
  out.reserve(devices.size());
  for (const Device& device : devices) out.push_back(ratio(device, family));
  if (out.empty()) return out;
  const double fastest = *std::min_element(out.begin(), out.end());
  for (double& ratio : out) {
    const double slower = ratio / fastest;
    ratio = fastest * (slower < kAlike ? 1 : std::pow(kStep, std::round(std::log(slower) / std::log(kStep))));
  }
  return out;
}

bool Speeds::measured(DeviceId device, std::string_view family) const {
  const auto it = devices_.find(device);
  if (it == devices_.end()) return false;
  const auto sum = it->second.find(family);
  return sum != it->second.end() && sum->second.model_ns >= kEnoughNs;
}

void Speeds::learn_link(WorkerId from, WorkerId to, Way way, std::uint8_t size_class, std::int64_t transfers,
                        std::int64_t bytes, std::int64_t busy_ns) {
  if (size_class >= kSizes || transfers < 0 || bytes < 0 || busy_ns < 0 || bytes > kTooManyBytes ||
      busy_ns > kTooMuchNs)
    return;
  LinkSum& sum = links_[{from, to}][size_class];
  if (transfers <= sum.transfers || bytes < sum.bytes || busy_ns < sum.busy_ns) return;
  LinkSum& all = ways_[static_cast<std::size_t>(way)][size_class];
  const std::int64_t more = transfers - sum.transfers, more_bytes = bytes - sum.bytes,
                     busy = busy_ns - sum.busy_ns;
  all.add(more, more_bytes, busy);
  sum.add(more, more_bytes, busy);
}

void Speeds::forget_links(WorkerId process) {
  std::erase_if(
      links_, [&](const auto& link) { return link.first.first == process || link.first.second == process; });
}

void Speeds::Alike::add(const ProbedLink& probed, std::int64_t sign) {
  latencies += sign;
  latency_ns += sign * probed.latency_ns;
  if (probed.ns_per_mib == 0) return;
  rates += sign;
  ns_per_mib += sign * probed.ns_per_mib;
}

std::size_t Speeds::likeness(const LinkClass& links) {
  const std::size_t near = links.inside ? 0 : links.from.host == links.to.host ? 1 : 2;
  return (near * kKinds + links.from.kind) * kKinds + links.to.kind;
}

void Speeds::learn_probe(const LinkClass& links, const ProbedLink& found) {
  if (links.from.kind >= kKinds || links.to.kind >= kKinds || found.latency_ns < 1 ||
      found.latency_ns > kMostProbedNs || found.ns_per_mib < 0 || found.ns_per_mib > kMostProbedNs)
    return;
  forget_probe(links);
  probes_.emplace(links, found);
  alike_[likeness(links)].add(found, 1);
}

void Speeds::forget_probe(const LinkClass& links) {
  const auto known = probes_.find(links);
  if (known == probes_.end()) return;
  alike_[likeness(links)].add(known->second, -1);
  probes_.erase(known);
}

LinkSpeed Speeds::link(const Device& from, const Device& to) const {
  const LinkSpeed guess = link_between(from, to);
  if (!guess.mapped) return measured(guess, from, to);
  // They could read in place, but some do not (--no-map, containers): a probe has seen which.
  const auto probed = probes_.find(class_of(from, to));
  return probed == probes_.end() || probed->second.mapped ? guess : copying(from, to);
}

LinkSpeed Speeds::copying(const Device& from, const Device& to) const {
  LinkSpeed guess = link_between(from, to);
  if (guess.mapped) guess = from.worker == to.worker && from.worker ? kInProcess : kSameHost;
  return measured(guess, from, to);
}

// From the largest blocks of which enough has moved.
std::optional<double> Speeds::bytes_per_s(const LinkSums& sums) {
  for (std::size_t size = kSizes; size-- > 1;) {
    const LinkSum& sum = sums[size];
    if (sum.bytes < kEnoughBytes || sum.recent_busy_ns <= 0) continue;
    return sane_rate(1e9 * static_cast<double>(sum.recent_bytes) / static_cast<double>(sum.recent_busy_ns));
  }
  return std::nullopt;
}

std::optional<double> Speeds::latency_s(const LinkSums& sums) {
  const LinkSum& small = sums[0];
  if (small.transfers < kEnoughTransfers || small.recent_transfers <= 0) return std::nullopt;
  return sane_latency(1e-9 * static_cast<double>(small.recent_busy_ns) /
                      static_cast<double>(small.recent_transfers));
}

LinkSpeed Speeds::measured(LinkSpeed speed, const Device& from, const Device& to) const {
  if (speed.bytes_per_s == 0) return speed;
  const LinkClass links = class_of(from, to);
  if (links.from.kind >= kKinds || links.to.kind >= kKinds) return speed;
  const Alike& alike = alike_[likeness(links)];
  if (alike.latencies > 0)
    speed.latency_s =
        sane_latency(1e-9 * static_cast<double>(alike.latency_ns) / static_cast<double>(alike.latencies));
  if (alike.rates > 0)
    speed.bytes_per_s =
        sane_rate(kMib * 1e9 * static_cast<double>(alike.rates) / static_cast<double>(alike.ns_per_mib));
  const auto use = [&](const LinkSums& sums) {
    const std::optional<double> rate = bytes_per_s(sums), latency = latency_s(sums);
    if (rate) speed.bytes_per_s = *rate;
    if (latency) speed.latency_s = *latency;
    return rate || latency;
  };
  if (!links.inside && from.worker != to.worker)
    use(ways_[static_cast<std::size_t>(from.host == to.host ? Way::kSameHost : Way::kOtherHost)]);
  if (const auto probed = probes_.find(links); probed != probes_.end()) {
    speed.measured = true;
    speed.latency_s = sane_latency(1e-9 * static_cast<double>(probed->second.latency_ns));
    if (probed->second.ns_per_mib > 0)
      speed.bytes_per_s = sane_rate(kMib * 1e9 / static_cast<double>(probed->second.ns_per_mib));
  }
  if (from.worker == to.worker) return speed;
  if (const auto own = links_.find({from.worker, to.worker}); own != links_.end())
    speed.measured |= use(own->second);
  return speed;
}

}  // namespace tilewise::place
