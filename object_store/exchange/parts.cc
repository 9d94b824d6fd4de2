#include <tilewise/exchange/parts.h>

#include <algorithm>
#include <optional>

namespace tilewise::exchange {

namespace {

constexpr std::int64_t kLeastPart = 512 << 10, kPartStep = 64 << 10, kMostParts = 256;
constexpr std::size_t kRemembered = 256;  // failures: who follows one has asked before it was told

std::uint64_t number_of(std::uint64_t transfer, std::int64_t part) {
  return transfer | static_cast<std::uint64_t>(part + 1) << msg::kTransferBits;
}

struct Cut {
  explicit Cut(std::int64_t block_bytes)
      : block(block_bytes), each(part_bytes_of(block_bytes)), count((block_bytes + each - 1) / each) {}
  std::int64_t begin(std::int64_t part) const { return part * each; }
  std::int64_t bytes(std::int64_t part) const { return std::min(each, block - begin(part)); }
  std::int64_t block, each, count;
};

}  // namespace

std::int64_t part_bytes_of(std::int64_t block_bytes) {
  const std::int64_t even = (block_bytes + kMostParts - 1) / kMostParts;
  return std::max(kLeastPart, (even + kPartStep - 1) / kPartStep * kPartStep);
}

struct Parts::Outgoing {
  WorkerId to;
  std::uint64_t transfer = 0;
  const std::byte* from = nullptr;
  Cut cut;
  device::Kind kind = device::Kind::kHost;
  Exchange::Done done;
  std::int64_t begun = 0, open = 0;  // parts; of them those that are not over
  std::vector<bool> under_way;       // by part
  TimeNs extended_at = 0;
  Status so_far;
  msg::Lane lane = msg::Lane::kTcp;
  std::shared_ptr<Incoming> follows;  // while parts are to come from there
};

struct Parts::Incoming {
  WorkerId from;
  std::uint64_t transfer = 0;
  Cut cut;
  std::function<void()> first;
  Exchange::Done done;
  transfer::OnHeld held;
  std::vector<bool> here, under_way;  // by part
  std::int64_t open = 0;
  TimeNs extended_at = 0;
  Status so_far;
  msg::Lane lane = msg::Lane::kTcp;
  std::vector<std::shared_ptr<Outgoing>> followers;
};

Parts::~Parts() {
  for (const auto& [transfer, in] : incoming_) in->followers.clear();  // who follow hold it
}

// Those of a slow way stand behind each other for longer than a transfer by itself may.
template <class Block> void Parts::extend(Block& block, WorkerId peer, bool sending) {
  const TimeNs now = monotonic_now();
  if (now - block.extended_at < extend_each_) return;
  block.extended_at = now;
  for (std::int64_t part = 0; part < block.cut.count; ++part)
    if (block.under_way[static_cast<std::size_t>(part)])
      ways_.extend(peer, number_of(block.transfer, part), sending);
}

// ---- sending ------------------------------------------------------------------------------------------------

void Parts::transmit(WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                     device::Kind kind, std::uint64_t follows, Exchange::Done done) {
  if (bytes <= 0 || transfer >> msg::kTransferBits != 0) {
    if (done)
      done(error(Errc::kInvalidArgument,
                 "transfer " + std::to_string(transfer) + " of " + std::to_string(bytes) + " bytes in parts"),
           msg::Lane::kTcp);
    return;
  }
  const auto [at, fresh] = outgoing_.try_emplace({to, transfer});
  if (!fresh) return;
  const auto out =
      std::make_shared<Outgoing>(Outgoing{to, transfer, from, Cut(bytes), kind, std::move(done)});
  at->second = out;
  out->under_way.resize(static_cast<std::size_t>(out->cut.count));
  out->extended_at = monotonic_now();
  const auto found = incoming_.find(follows);
  if (found != incoming_.end()) {
    out->follows = found->second;
    found->second->followers.push_back(out);
    out->so_far = found->second->so_far;
  } else if (const auto failed = std::ranges::find(failed_, follows, &Failed::transfer);
             follows != 0 && failed != failed_.end()) {
    out->so_far = failed->why;  // its memory is not its any more
  }
  ++out->open;  // not over before all that is here has begun
  for (std::int64_t part = 0; part < out->cut.count; ++part)
    if (!out->follows || out->follows->here[static_cast<std::size_t>(part)]) send(out, part);
  --out->open;
  end_if_over(out);
}

void Parts::send(const std::shared_ptr<Outgoing>& out, std::int64_t part) {
  if (!out->so_far) return;
  ++out->begun, ++out->open;
  out->under_way[static_cast<std::size_t>(part)] = true;
  ways_.transmit(out->to, number_of(out->transfer, part), out->from + out->cut.begin(part),
                 out->cut.bytes(part), out->kind, [this, out, part](const Status& status, msg::Lane lane) {
                   --out->open;
                   out->under_way[static_cast<std::size_t>(part)] = false;
                   if (!status && out->so_far) out->so_far = status;
                   out->lane = lane;
                   extend(*out, out->to, true);
                   end_if_over(out);
                 });
}

// All parts are sent, or nothing is under way and no more will be.
void Parts::end_if_over(const std::shared_ptr<Outgoing>& out) {
  if (out->open > 0 || (out->so_far && out->begun < out->cut.count)) return;
  if (outgoing_.erase({out->to, out->transfer}) == 0) return;
  if (out->done) out->done(out->so_far, out->lane);
  const std::shared_ptr<Incoming> in = std::exchange(out->follows, nullptr);
  if (in == nullptr) return;
  std::erase(in->followers, out);
  end_if_over(in);
}

// ---- receiving ----------------------------------------------------------------------------------------------

void Parts::receive(WorkerId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
                    device::Kind kind, std::function<void()> first, Exchange::Done done,
                    transfer::OnHeld held) {
  TW_CHECK(bytes > 0 && transfer >> msg::kTransferBits == 0, "a block that has no parts, or no number");
  const auto [at, fresh] = incoming_.try_emplace(transfer);
  if (!fresh) return;
  const Cut cut(bytes);
  const auto in = std::make_shared<Incoming>(
      Incoming{from, transfer, cut, std::move(first), std::move(done), std::move(held)});
  at->second = in;
  in->here.resize(static_cast<std::size_t>(cut.count));
  in->under_way.assign(static_cast<std::size_t>(cut.count), true);
  in->extended_at = monotonic_now();
  in->open = cut.count;
  for (std::int64_t part = 0; part < cut.count; ++part) {
    if (!in->so_far) {  // one has failed at once
      arrived(in, part, in->so_far, in->lane);
      continue;
    }
    ways_.receive(
        from, number_of(transfer, part), to + cut.begin(part), cut.bytes(part), kind,
        [this, in, part](const Status& status, msg::Lane lane) { arrived(in, part, status, lane); },
        [this, in](const Error& why) {
          fail(*in, why);
          if (in->held) std::exchange(in->held, nullptr)(why);
        });
  }
}

void Parts::arrived(const std::shared_ptr<Incoming>& in, std::int64_t part, const Status& status,
                    msg::Lane lane) {
  const auto i = static_cast<std::size_t>(part);
  if (!in->under_way[i]) return;
  in->under_way[i] = false;
  --in->open;
  in->lane = lane;
  if (!status) {
    fail(*in, status.error());
  } else {
    in->here[i] = true;
    extend(*in, in->from, false);
    if (in->first) std::exchange(in->first, nullptr)();
    for (const auto& out : std::vector(in->followers)) send(out, part);
  }
  end_if_over(in);
}

void Parts::disarm_rest(const Incoming& in) {
  for (std::int64_t part = 0; part < in.cut.count; ++part)
    if (in.under_way[static_cast<std::size_t>(part)]) ways_.disarm(in.from, number_of(in.transfer, part));
}

// What has not come is not awaited, and not passed on.
void Parts::fail(Incoming& in, const Error& why) {
  if (!in.so_far) return;
  in.so_far = why;
  disarm_rest(in);
  for (const auto& out : in.followers)
    if (out->so_far) out->so_far = why;
  for (const auto& out : std::vector(in.followers)) end_if_over(out);
}

void Parts::end_if_over(const std::shared_ptr<Incoming>& in) {
  if (in->open > 0 || !incoming_.contains(in->transfer)) return;
  if (!in->so_far && !in->followers.empty()) return;
  incoming_.erase(in->transfer);
  if (!in->so_far) failed_.push_back({in->transfer, in->so_far.error()});
  if (failed_.size() > kRemembered) failed_.pop_front();
  for (const auto& out : in->followers) out->follows = nullptr;  // they have begun all
  in->followers.clear();
  if (in->done) in->done(in->so_far, in->lane);
}

// What was granted over a link that is no more is wanted by nobody.
void Parts::peer_broke(WorkerId peer, const Error& why) {
  std::vector<std::shared_ptr<Outgoing>> over;
  for (const auto& [key, out] : outgoing_)
    if (out->to == peer) over.push_back(out);
  for (const auto& out : over) {
    if (out->so_far) out->so_far = why;
    end_if_over(out);
  }
}

bool Parts::disarm(WorkerId from, std::uint64_t transfer) {
  const auto found = incoming_.find(transfer);
  if (found == incoming_.end() || found->second->from != from) return false;
  const std::shared_ptr<Incoming> in = found->second;
  disarm_rest(*in);
  return true;
}

}  // namespace tilewise::exchange
