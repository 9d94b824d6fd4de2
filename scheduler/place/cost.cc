// What a placement costs: how long the busiest device computes and waits for bytes, from sampled points.
#include <tilewise/ir/cost.h>
#include <tilewise/place/pieces.h>

#include "shares.h"

#include <algorithm>
#include <map>

namespace tilewise::place {
namespace {

constexpr double kAwayBytesPerS = 1e9;
constexpr double kAsOthers = 8;          // points of a device that say as much of it as all the others' do
constexpr double kTrafficWeight = 0.05;  // of all bytes on the way, beside the busiest device: breaks ties
constexpr double kTrafficDevices =
    64;  // of more, as if these had an even part of it: else it would outweigh all the rest

// A client's endpoint and devices that left are elsewhere.
LinkSpeed link(const Request& request, DeviceId from, DeviceId to) {
  const Device *a = find_device(request.devices, from), *b = find_device(request.devices, to);
  static const Device elsewhere{.host = ~0u};
  if (a == nullptr && b == nullptr) return {};
  return link_of(request, a == nullptr ? elsewhere : *a, b == nullptr ? elsewhere : *b);
}

// Sample `i` of `samples`, in order, of `all`. Evenly spread, but each at another place of its stretch, `shift`: equal strides
// would see the same columns of every row. The shifts of points and of steps are Roberts' R2 sequence, in 1 / 65,536.
constexpr std::int64_t kAcross = 49'471, kAlong = 37'345;
std::int64_t sampled_at(std::int64_t i, std::int64_t shift, std::int64_t samples, std::int64_t all) {
  const std::int64_t within = (shift + 32'768) & 0xffff;
  return static_cast<std::int64_t>((static_cast<__int128>(i * 65'536 + within) * all) / (samples * 65'536));
}

constexpr std::size_t kMaxNeighbours = 32;

// The other devices of a device's host, looked up once each.
class Neighbours {
 public:
  explicit Neighbours(const Request& request) : request_(request) {}
  const std::vector<const Device*>& of(const Device& here) {
    const auto [it, fresh] = of_.try_emplace(here.id);
    if (!fresh) return it->second;
    for (const Device& device : request_.devices) {
      if (device.host != here.host || device.id == here.id) continue;
      it->second.push_back(&device);
      if (it->second.size() == kMaxNeighbours) break;
    }
    return it->second;
  }

 private:
  const Request& request_;
  std::map<DeviceId, std::vector<const Device*>> of_;
};

// Waiting for a block of another host that `users` read: one of the devices there gets it from afar, the others from that one.
// On average, as all of them are looked at alike.
double shared_s(const Request& request, const ir::Placement& placement, const Device& here,
                std::span<const ir::Geometry::Users> users, Neighbours& neighbours, double from_afar_s,
                double bytes, double blocks) {
  const Device* other = nullptr;
  double readers = 1;
  for (const Device* device : neighbours.of(here)) {
    const auto reads = [&](const ir::Geometry::Users& u) {
      return placement.owned_count(device->id, u.points) > 0;
    };
    if (std::none_of(users.begin(), users.end(), reads)) continue;
    other = device;
    ++readers;
  }
  if (other == nullptr) return from_afar_s;
  const LinkSpeed inside =
      request.speeds == nullptr ? Speeds{}.copying(*other, here) : request.speeds->copying(*other, here);
  return (from_afar_s + (readers - 1) * inside.shown_s(bytes, blocks)) / readers;
}

double busy_least(const Request& request) {
  double least = 0;
  bool any = false;
  for (const Device& device : request.eligible) {
    const double busy_s = busy_so_far(request, device);
    least = any ? std::min(least, busy_s) : busy_s;
    any = true;
  }
  return least;
}

}  // namespace

const Device* find_device(std::span<const Device> devices, DeviceId id) {
  const auto it = std::lower_bound(devices.begin(), devices.end(), id,
                                   [](const Device& d, DeviceId wanted) { return d.id < wanted; });
  return it != devices.end() && it->id == id ? &*it : nullptr;
}

LinkSpeed link_of(const Request& request, const Device& from, const Device& to) {
  return request.speeds == nullptr ? link_between(from, to) : request.speeds->link(from, to);
}

double busy_so_far(const Request& request, const Device& device) {
  if (request.busy_s.empty()) return 0;
  const Device* at = find_device(request.devices, device.id);
  if (at == nullptr) return 0;
  return std::max(request.ready_s, request.busy_s[static_cast<std::size_t>(at - request.devices.data())]);
}

Estimate estimate(const Request& request, const ir::Placement& placement) {
  const ir::Op& op = *request.op;
  const ir::Geometry& geometry = *request.geometry;
  const std::int64_t points = geometry.point_count();
  Estimate out;
  if (points == 0) return out;
  const auto operands = static_cast<std::int64_t>(std::max<std::size_t>(op.operands.size(), 1));
  const std::string family = ir::family_of(op);
  struct Sampled {
    std::int64_t points = 0;
    double in_s = 0;  // waiting for bytes
  };
  std::map<DeviceId, Sampled> sampled_on;
  std::vector<ir::Read> reads;
  std::vector<ir::Geometry::Users> users;
  Neighbours neighbours(request);
  double in_s = 0, work_s = 0;
  std::int64_t budget = kSampledReads;
  std::int64_t sampled = 0;
  // Few steps of many points rather than the reverse; all of it within the budget of reads.
  const std::int64_t samples = std::min(points, std::max<std::int64_t>(1, kSampledReads / (operands * 2)));
  for (std::int64_t i = 0; i < samples && budget > 0; ++i) {
    const ir::Index point = geometry.point(sampled_at(i, i * kAcross, samples, points));
    const DeviceId here = placement.owner(point);
    const std::int64_t steps = geometry.steps(point);
    const std::int64_t tried = std::clamp<std::int64_t>(budget / ((samples - i) * operands), 1, steps);
    double bytes_of_point = 0, in_of_point = 0;
    for (std::int64_t t = 0; t < tried; ++t) {
      geometry.reads(point, sampled_at(t, i * kAlong, tried, steps), reads);
      budget -= static_cast<std::int64_t>(std::max<std::size_t>(reads.size(), 1));
      for (const ir::Read& read : reads) {
        const Input& input = request.inputs[read.operand];
        const ir::Index block = ir::unravel(read.block, input.array->grid.counts());
        if (input.placement->holds(block, here)) continue;
        const LinkSpeed speed = link(request, input.placement->owner(block), here);
        double bytes = static_cast<double>(input.array->grid.box(block).volume()) *
                       static_cast<double>(ir::size_of(input.array->dtype));
        // A block that several points of one device read comes there once.
        double blocks = 1;
        geometry.users(read.operand, read.block, users);
        if (users.size() == 1 && users[0].points.volume() > 1)
          blocks /=
              static_cast<double>(std::max<std::int64_t>(1, placement.owned_count(here, users[0].points)));
        bool large = bytes > static_cast<double>(kTreeBytes);
        bytes *= blocks;
        const Device *from = find_device(request.devices, input.placement->owner(block)),
                     *to = find_device(request.devices, here);
        if (request.cuts && !speed.mapped && from != nullptr && to != nullptr &&
            (!from->worker || from->worker != to->worker)) {
          const double piece = piece_bytes(op, read, input.array->dtype);
          large = large && piece >= bytes;
          bytes = std::min(bytes, piece);
        }
        bytes_of_point += bytes;
        double wait_s = speed.shown_s(bytes, blocks);
        if (large && from != nullptr && to != nullptr && from->host != to->host)
          wait_s = shared_s(request, placement, *to, users, neighbours, wait_s, bytes, blocks);
        in_of_point += wait_s;
      }
    }
    const double all_steps = static_cast<double>(steps) / static_cast<double>(tried);
    work_s += ir::model_step_ns(geometry, point) * static_cast<double>(steps) * 1e-9;
    // Partial products that lie apart are summed where the first of them is, or another: each of the others moves once.
    if (op.kind == ir::OpKind::kMatmulPanels && point[0] > 0) {
      ir::Index before = point;
      --before[0];
      if (const DeviceId there = placement.owner(before); there != here) {
        const auto bytes = static_cast<double>(geometry.output_bytes_bound());
        bytes_of_point += bytes / all_steps;
        in_of_point += link(request, there, here).shown_s(bytes, 1) / all_steps;
      }
    }
    // Where results go next, if a later user says where it wants them.
    for (const ir::Placement& user : request.wanted) {
      if (user.holds(point, here)) continue;
      const auto bytes = static_cast<double>(geometry.output_bytes_bound());
      bytes_of_point += bytes / all_steps;
      in_of_point += link(request, here, user.owner(point)).shown_s(bytes, 1) / all_steps;
    }
    out.moved_bytes += bytes_of_point * all_steps;
    in_s += in_of_point * all_steps;
    Sampled& on = sampled_on[here];
    ++on.points;
    on.in_s += in_of_point * all_steps;
    ++sampled;
  }
  const auto looked_at = static_cast<double>(std::max<std::int64_t>(sampled, 1));
  const double each = static_cast<double>(points) / looked_at;
  out.moved_bytes *= each;
  // Of each owner, what it computes; and what its points wait for, or where few were looked at, what the average does.
  const double idle_s = busy_least(request);
  std::vector<double> ratios;
  if (request.speeds != nullptr) ratios = request.speeds->coarse_ratios(request.eligible, family);
  for (const DeviceId id : placement.devices()) {
    const Device* device = find_device(request.devices, id);
    double step_s = work_s / looked_at;
    if (device != nullptr) {
      const Device* eligible = find_device(request.eligible, id);
      if (eligible != nullptr && !ratios.empty())
        step_s *= ratios[static_cast<std::size_t>(eligible - request.eligible.data())];
      else if (request.speeds != nullptr)
        step_s *= request.speeds->ratio(*device, family);
      step_s /= static_cast<double>(std::max(1, device->streams));
    }
    const auto on = sampled_on.find(id);
    const Sampled own = on == sampled_on.end() ? Sampled{} : on->second;
    step_s += (own.in_s + kAsOthers * in_s / looked_at) / (static_cast<double>(own.points) + kAsOthers);
    const double busy_s = device == nullptr ? 0 : busy_so_far(request, *device) - idle_s;
    const auto owned = static_cast<double>(placement.owned_count(id));
    // Results that memory cannot hold together would have to go elsewhere and come back.
    double over_s = 0;
    if (device != nullptr && device->memory_bytes > 0) {
      const double bytes = owned * static_cast<double>(geometry.output_bytes_bound());
      over_s = std::max(0.0, (bytes - static_cast<double>(device->headroom_bytes())) / kAwayBytesPerS);
      out.over |= over_s > 0;
      out.room = std::min(out.room, device->room_for(bytes, geometry.output_bytes_bound()));
    }
    out.seconds = std::max(out.seconds, busy_s + step_s * owned + over_s);
  }
  const auto devices = static_cast<double>(std::max<std::size_t>(1, request.eligible.size()));
  out.seconds += kTrafficWeight * std::min(1.0, kTrafficDevices / devices) * in_s * each;
  return out;
}

}  // namespace tilewise::place
