// What UCX says of itself is tried out before anything depends on it: a pattern goes from host memory to the memory in question and
// back, between two ends of a connection to this very engine.
#include "ucx_impl.h"

namespace tilewise::transfer {

namespace {

constexpr std::int64_t kProofBytes = 64 << 10;  // more than is sent without asking first
constexpr TimeNs kProofTime = 5 * kSecond;

struct Outcome {
  int left = 2;
  Status status;
};

}  // namespace

Status UcxEngine::prove(const device::Slab& slab, device::Kind kind) {
  Impl& me = *impl_;
  const auto refuse = [&](Error why) {
    me.memory_types &=
        ~(std::uint64_t{1} << (kind == device::Kind::kHost ? UCS_MEMORY_TYPE_HOST : UCS_MEMORY_TYPE_CUDA));
    why.message =
        "memory of kind " + std::string(name_of(kind)) + " is not moved by UCX as it says: " + why.message;
    return why;
  };
  if (!supports(kind))
    return error(Errc::kUnsupported, "UCX moves no memory of kind " + std::string(name_of(kind)));
  if (!idle()) return error(Errc::kUnavailable, "transfers are under way");
  const std::int64_t bytes = std::min(slab.bytes, kProofBytes);
  // Kept by what UCX may still hold.
  const auto sent = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(bytes));
  const auto back = std::make_shared<std::vector<std::byte>>(sent->size());
  for (std::size_t i = 0; i < sent->size(); ++i) (*sent)[i] = static_cast<std::byte>(i * 37 + (i >> 8) + 11);
  const Cookie cookie = random_cookie();
  TW_TRY(add_peer(cookie, address()));
  const auto move = [&](std::uint64_t transfer, const std::byte* from, device::Kind from_kind, std::byte* to,
                        device::Kind to_kind) -> Status {
    const auto outcome = std::make_shared<Outcome>();
    const auto done = [outcome, sent, back](const Status& status, Via) {
      --outcome->left;
      if (!status && outcome->status) outcome->status = status;
    };
    TW_TRY(expect(cookie, transfer, to, bytes, to_kind, done));
    TW_TRY(transmit(cookie, transfer, from, bytes, from_kind, done));
    const TimeNs until = monotonic_now() + kProofTime;
    while (outcome->left > 0 && outcome->status && monotonic_now() < until) progress();
    if (outcome->status && outcome->left > 0)
      return error(Errc::kTimeout, std::to_string(bytes) + " bytes to this process itself do not arrive");
    return outcome->status;
  };
  Status ok = move(1, sent->data(), device::Kind::kHost, slab.data, kind);
  if (ok) ok = move(2, slab.data, kind, back->data(), device::Kind::kHost);
  remove_peer(cookie, error(Errc::kCancelled, "the proof is over"));
  const TimeNs until = monotonic_now() + kSecond;
  while (!idle() && monotonic_now() < until) progress();
  if (ok && *back != *sent) ok = error(Errc::kCorruptData, "other bytes came back than were sent");
  if (!ok) return refuse(ok.error());
  return {};
}

}  // namespace tilewise::transfer
