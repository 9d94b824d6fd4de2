#include <tilewise/local_blocks.h>

#include <algorithm>

#include "access.h"

namespace tilewise {
namespace client {

Array SessionState::announce(msg::Announce announce, std::vector<Provider::Piece> pieces) {
  auto request = std::make_shared<Request>();
  request->needs_done = true;
  std::unique_lock lock(mutex_);
  if (lost_.code != Errc::kOk) throw ArrayError(lost_);
  flush_releases(true);
  announce.request = request->number = next_request_++;
  announce.array = graph_.next_number();
  announce.weight = options_.weight;
  request->announced = Announced{announce.dtype, announce.shape, announce.array, std::move(pieces)};
  requests_.emplace(request->number, request);
  announcing_.fetch_add(1, std::memory_order_release);
  endpoint_.send(std::move(announce));
  request->changed.wait(lock, [&] {
    return request->announced->key != 0 || request->finished.load(std::memory_order_acquire);
  });
  const Key key = request->announced->key;
  if (key == 0) check(*request);
  auto handle = std::make_shared<Handle>();
  handle->array = graph_.source(key);
  handle->key = key;
  lock.unlock();
  handle->session = shared_from_this();
  return Access::whole(std::move(handle));
}

void SessionState::give_up(msg::Announce announce, const Error& why) {
  const std::scoped_lock lock(mutex_);
  if (lost_.code != Errc::kOk) return;
  announce.request = next_request_++;
  announce.array = graph_.next_number();
  announce.weight = options_.weight;
  announce.failed = {why.code, why.message};
  endpoint_.send(std::move(announce));
}

// A block must not reach beyond a piece: others would be sent what lies behind it in memory.
bool SessionState::fits(const Announced& announced, const msg::SubmitReply& reply) {
  const ir::Grid& grid = reply.grid;
  if (reply.arrays.size() != 1 || reply.arrays[0].first != announced.number) return false;
  if (!grid.verify() || grid.shape() != announced.shape) return false;
  return std::all_of(announced.pieces.begin(), announced.pieces.end(), [&](const Provider::Piece& piece) {
    for (int d = 0; d < grid.rank(); ++d) {
      const ir::DimGrid& dim = grid.dim(d);
      if (dim.begin(dim.find(piece.box.lo[d])) != piece.box.lo[d]) return false;
      if (dim.end(dim.find(piece.box.hi[d] - 1)) != piece.box.hi[d]) return false;
    }
    return true;
  });
}

void SessionState::adopt(Request& request, const msg::SubmitReply& reply) {
  Announced& announced = *request.announced;
  const Key key = graph_.adopt({announced.dtype, reply.grid}, announced.number);
  request.submission.holds = {{key, announced.number}};
  if (request.finished.load(std::memory_order_relaxed)) {  // nobody waits for it any more
    graph_.unpin(key);
    flush_releases(true);
    return;
  }
  announced.key = key;
  request.changed.notify_all();
}

Device SessionState::device(DeviceId id) {
  const std::scoped_lock lock(mutex_);
  const auto it = devices_.find(id);
  if (it != devices_.end()) return it->second;
  Device gone;
  gone.id = id;
  gone.name = device_name(id);
  return gone;
}

// The request has ended well: its target is ours, and no more loans are taken for it.
AddressableBlocks Access::addressable(std::shared_ptr<SessionState> session, Request& request) {
  Target& target = request.targets[0];
  const std::shared_ptr<const Loans> loans = std::exchange(target.loans, nullptr);
  AddressableBlocks out;
  out.elsewhere_ = loans->left_out();
  for (const Loans::Loan& loan : loans->taken()) {
    const std::int64_t block = loan.offer.block.block;
    out.blocks_.push_back({block,
                           target.grid.box(ir::unravel(block, target.grid.counts())),
                           session->device(loan.offer.from),
                           target.dtype,
                           {loan.bytes, static_cast<std::size_t>(loan.offer.bytes)}});
  }
  std::sort(out.blocks_.begin(), out.blocks_.end(),
            [](const auto& a, const auto& b) { return a.block < b.block; });
  out.session_ = std::move(session);
  out.loans_ = loans;
  return out;
}

}  // namespace client

namespace {

// What nobody else could find out.
Result<std::vector<client::Provider::Piece>> pieces_of(const std::vector<LocalBytes>& pieces, DType dtype,
                                                       const Shape& shape) {
  TW_TRY(ir::checked_volume(shape));
  if (pieces.size() > msg::kMaxAnnouncedPieces)
    return error(Errc::kLimitExceeded, std::to_string(pieces.size()) +
                                           " pieces of one process, the limit is " +
                                           std::to_string(msg::kMaxAnnouncedPieces));
  std::vector<client::Provider::Piece> out;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const LocalBytes& from = pieces[i];
    const std::string name = "piece " + std::to_string(i);
    if (from.offset.size() != shape.size() || from.shape.size() != shape.size())
      return error(Errc::kInvalidArgument, name + " at " + ir::to_string(from.offset) + " of shape " +
                                               ir::to_string(from.shape) + " in an array of shape " +
                                               ir::to_string(shape) + ": their ranks differ");
    ir::Box box;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const bool inside = from.offset[d] >= 0 && from.shape[d] > 0 && from.shape[d] <= shape[d] &&
                          from.offset[d] <= shape[d] - from.shape[d];
      if (!inside)
        return error(Errc::kInvalidArgument, name + " at " + ir::to_string(from.offset) + " of shape " +
                                                 ir::to_string(from.shape) + " is empty, or not inside " +
                                                 ir::to_string(shape));
      box.lo.push_back(from.offset[d]);
      box.hi.push_back(from.offset[d] + from.shape[d]);
    }
    TW_ASSIGN(const std::int64_t elements, ir::checked_volume(from.shape));
    if (from.bytes.size() % size_of(dtype) != 0 ||
        from.bytes.size() / size_of(dtype) != static_cast<std::size_t>(elements))
      return error(Errc::kShapeMismatch, name + " of shape " + ir::to_string(from.shape) + " has " +
                                             std::to_string(from.bytes.size()) + " bytes, not " +
                                             std::to_string(elements) + " of " + std::string(name_of(dtype)));
    auto memory = std::make_shared<client::Memory>();
    memory->owner = from.owner;
    memory->data = from.bytes.data();
    memory->adoptable = from.owner != nullptr;
    out.push_back({std::move(box), std::move(memory)});
  }
  return out;
}

// Of the pieces that are not lent; only once it is known that all are right.
Status copy_unowned(std::vector<client::Provider::Piece>& pieces, const std::vector<LocalBytes>& from) try {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (from[i].owner) continue;
    auto copy = std::make_shared<std::vector<std::byte>>(from[i].bytes.begin(), from[i].bytes.end());
    auto memory = std::make_shared<client::Memory>();
    memory->data = copy->data();
    memory->owner = std::move(copy);
    pieces[i].memory = std::move(memory);
  }
  return {};
} catch (const std::bad_alloc&) {
  return error(Errc::kOutOfMemory, "no memory for copies of the pieces: give them owners");
}

}  // namespace

Array Session::from_local_bytes(const std::string& name, DType dtype, const Shape& shape,
                                const std::vector<LocalBytes>& pieces,
                                const LocalBlocksOptions& options) const {
  if (name.empty() || name.size() > limits::kMaxNameBytes)  // nobody could be told of it
    throw ArrayError(Errc::kInvalidArgument,
                     "a name of " + std::to_string(name.size()) + " bytes for an array");
  msg::Announce announce;
  announce.name = name;
  announce.dtype = dtype;
  announce.shape = shape;
  announce.processes = static_cast<std::uint32_t>(std::max(0, options.processes));
  announce.timeout_ns = std::chrono::nanoseconds(state_->patience(options.timeout)).count();
  Result<std::vector<client::Provider::Piece>> own = pieces_of(pieces, dtype, shape);
  const Status good = own ? copy_unowned(*own, pieces) : Status(own.error());
  if (!good) {
    state_->give_up(std::move(announce), good.error());
    throw ArrayError(good.error().code, "'" + name + "': " + good.error().message);
  }
  for (const auto& piece : *own) announce.pieces.push_back(piece.box);
  return state_->announce(std::move(announce), std::move(*own));
}

AddressableBlocks Session::addressable_blocks(const Array& array, const WaitOptions& options) const {
  const ir::Source source = client::Access::sources(*state_, std::span(&array, 1)).front();
  if (!source.view.is_identity(source.grid.shape())) {
    throw ArrayError(Errc::kUnsupported, "blocks of a view of shape " + ir::to_string(source.shape()) +
                                             " on an array of shape " + ir::to_string(source.grid.shape()) +
                                             ": its values lie elsewhere; persist() it first");
  }
  Future future = state_->submit({.fetch = {source.array}, .lend = true}, {});
  client::Request& request = client::SessionState::request_of(future);
  const std::shared_ptr<client::Loans> loans = request.targets[0].loans;
  try {
    future.wait(options);
  } catch (...) {
    future.cancel();
    loans->give_back();
    throw;
  }
  return client::Access::addressable(state_, request);
}

}  // namespace tilewise
