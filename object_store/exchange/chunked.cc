#include <tilewise/exchange/chunked.h>

#include <algorithm>
#include <new>
#include <optional>

namespace tilewise::exchange {

using device::Kind;

namespace {

constexpr std::int64_t kGrowth = 4;  // buffers made at once: pinning is a call to the driver

}  // namespace

// ---- buffers --------------------------------------------------------------------------------------------------

std::byte* ChunkBuffers::take(bool always) {
  if (free_.empty() && (always || made_ < options_.limit_bytes) && !grow()) return nullptr;
  if (free_.empty()) return nullptr;
  std::byte* const buffer = free_.back();
  free_.pop_back();
  return buffer;
}

bool ChunkBuffers::grow() {
  const std::int64_t count = made_ < options_.limit_bytes ? kGrowth : 1;
  const auto bytes = static_cast<std::size_t>(count * options_.bytes);
  std::shared_ptr<std::byte> memory;
  if (options_.pin && !plain_) memory = options_.pin(bytes);
  if (memory == nullptr) {
    plain_ = true;
    memory = {new (std::nothrow) std::byte[bytes], std::default_delete<std::byte[]>()};
  }
  if (memory == nullptr) return false;
  made_ += static_cast<std::int64_t>(bytes);
  for (std::int64_t i = 0; i < count; ++i) free_.push_back(memory.get() + i * options_.bytes);
  memory_.push_back(std::move(memory));
  return true;
}

// ---- sending --------------------------------------------------------------------------------------------------

class ChunkedSends::Block final : public transfer::Source, public std::enable_shared_from_this<Block> {
 public:
  Block(ChunkedSends& sends, WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
        Exchange::Done done)
      : sends(sends), to(to), transfer(transfer), from(from), bytes(bytes), done(std::move(done)) {}

  Result<std::span<const std::byte>> next() override {
    if (!so_far) return so_far.error();
    if (chunks.empty() || !chunks.front().here) return std::span<const std::byte>();
    const Chunk& chunk = chunks.front();
    return std::span<const std::byte>(chunk.buffer + chunk.sent, chunk.bytes - chunk.sent);
  }
  void sent(std::size_t some) override {
    Chunk& chunk = chunks.front();
    chunk.sent += some;
    has_sent = true;
    if (chunk.sent < chunk.bytes) return;
    sends.buffers_.give(chunk.buffer);
    chunks.pop_front();
    sends.fetch(*this, true);
  }

  struct Chunk {
    std::byte* buffer = nullptr;
    std::size_t bytes = 0, sent = 0;
    bool here = false;
  };
  ChunkedSends& sends;
  const WorkerId to;
  const std::uint64_t transfer;
  const std::byte* const from;
  const std::int64_t bytes;
  const Exchange::Done done;
  std::int64_t fetched = 0;    // bytes whose copies have begun
  bool has_sent = false;       // some of it
  std::deque<Chunk> chunks;    // in order; those that are copied are the last
  int copies = 0;              // under way
  Status so_far;               // of the copies
  std::optional<Status> over;  // what the exchange says
};

void ChunkedSends::transmit(WorkerId to, std::uint64_t transfer, const std::byte* from, std::int64_t bytes,
                            Exchange::Done done) {
  peers_[to].waiting.push_back(std::make_shared<Block>(*this, to, transfer, from, bytes, std::move(done)));
  serve();
}

// Calls that end at once come back here: they leave the loop to the first, which goes round once more.
void ChunkedSends::serve() {
  serve_again_ = true;
  if (std::exchange(serving_, true)) return;
  while (std::exchange(serve_again_, false)) serve_peers();
  serving_ = false;
}

void ChunkedSends::serve_peers() {
  for (auto at = peers_.begin(); at != peers_.end();) {
    Peer& peer = at->second;
    for (std::size_t i = 0; i < peer.begun.size(); ++i) fetch(*peer.begun[i], true);
    while (!peer.waiting.empty() && peer.begun.size() < options_.ahead) {
      const std::shared_ptr<Block> block = peer.waiting.front();
      const bool up = exchange_.is_up(block->to);  // else nothing needs to be copied to hear that it is not
      if (up) fetch(*block, peer.begun.empty());
      const bool nothing = up && block->bytes > 0 && block->fetched == 0;
      if (nothing && !peer.begun.empty()) break;
      peer.waiting.pop_front();
      peer.begun.push_back(block);
      if (nothing) {
        block->over = error(Errc::kOutOfMemory, std::to_string(options_.bytes) +
                                                    " bytes of host memory to send a GPU's block through");
        end(*block);
      } else {
        begin(block);
      }
    }
    at = peer.begun.empty() && peer.waiting.empty() ? peers_.erase(at) : std::next(at);
  }
}

void ChunkedSends::begin(const std::shared_ptr<Block>& block) {
  exchange_.transmit(block->to, block->transfer, *block, block->bytes,
                     [this, block](Status status, msg::Lane) {
                       block->over = std::move(status);
                       end(*block);
                     });
}

// As much of it as it may have at once: of one that stands behind others, only what it can begin with.
void ChunkedSends::fetch(Block& block, bool always) {
  const Blocks& begun = peers_.at(block.to).begun;
  const bool first = begun.empty() || begun.front().get() == &block || block.has_sent;
  const std::size_t depth = first ? options_.depth : 1;
  while (block.fetched < block.bytes && block.chunks.size() < depth && block.so_far && !block.over) {
    std::byte* const buffer = buffers_.take(always && block.chunks.empty());
    if (buffer == nullptr) return;
    const std::int64_t some = std::min(options_.bytes, block.bytes - block.fetched);
    block.chunks.push_back({buffer, static_cast<std::size_t>(some)});
    Block::Chunk* const chunk = &block.chunks.back();
    const std::byte* const from = block.from + block.fetched;
    block.fetched += some;
    ++block.copies;
    copier_.copy({buffer, Kind::kHost}, {const_cast<std::byte*>(from), Kind::kCuda}, some,
                 [this, chunk, kept = block.shared_from_this()](const Status& copied) {
                   --kept->copies;
                   chunk->here = copied.has_value();
                   if (!copied && kept->so_far) kept->so_far = copied;
                   if (kept->over) return end(*kept);
                   exchange_.resume(kept->to);
                 });
  }
}

// When neither the exchange nor a copy needs its memory.
void ChunkedSends::end(Block& block) {
  if (block.copies > 0) return;
  const std::shared_ptr<Block> kept = block.shared_from_this();
  for (const Block::Chunk& chunk : block.chunks) buffers_.give(chunk.buffer);
  block.chunks.clear();
  std::erase(peers_.at(block.to).begun, kept);
  const Status& status = block.so_far ? *block.over : block.so_far;
  if (block.done) block.done(status, msg::Lane::kStaged);
  serve();
}

// ---- receiving ------------------------------------------------------------------------------------------------

class ChunkedReceives::Block final : public transfer::Sink, public std::enable_shared_from_this<Block> {
 public:
  Block(ChunkedReceives& receives, WorkerId from, std::byte* to, std::int64_t bytes, Exchange::Done done)
      : receives(receives), from(from), to(to), bytes(bytes), done(std::move(done)) {}

  std::optional<std::span<std::byte>> room() override {
    if (so_far && buffer == nullptr && copies < receives.options_.depth) {
      int& held = receives.held_[from];  // who has some gets them back, and asks again
      buffer = receives.buffers_.take(held == 0);
      held += buffer != nullptr;
      if (buffer == nullptr && held == 0)
        so_far = error(Errc::kOutOfMemory, std::to_string(receives.options_.bytes) +
                                               " bytes of host memory to receive a GPU's block through");
    }
    if (!so_far) return std::nullopt;
    if (buffer == nullptr) return std::span<std::byte>();
    return std::span(buffer + filled, static_cast<std::size_t>(chunk_bytes() - filled));
  }
  void came(std::size_t some) override {
    if (!so_far) return;
    filled += static_cast<std::int64_t>(some);
    if (filled == chunk_bytes()) receives.copy_up(*this);
  }
  std::int64_t chunk_bytes() const { return std::min(receives.options_.bytes, bytes - begun); }

  ChunkedReceives& receives;
  const WorkerId from;
  std::byte* const to;
  const std::int64_t bytes;
  const Exchange::Done done;
  std::byte* buffer = nullptr;  // that is being filled
  std::int64_t filled = 0;      // of it
  std::int64_t begun = 0;       // bytes before it
  std::size_t copies = 0;       // under way
  Status so_far;                // of buffers and copies: after a failure the rest goes nowhere
  std::optional<Status> over;   // what the exchange says
};

void ChunkedReceives::receive(WorkerId from, std::uint64_t transfer, std::byte* to, std::int64_t bytes,
                              Exchange::Done done) {
  const auto block = std::make_shared<Block>(*this, from, to, bytes, std::move(done));
  exchange_.receive(from, transfer, *block, bytes, [this, block](Status status, msg::Lane) {
    block->over = std::move(status);
    end(*block);
  });
}

void ChunkedReceives::copy_up(Block& block) {
  std::byte* const buffer = std::exchange(block.buffer, nullptr);
  const std::int64_t some = std::exchange(block.filled, 0);
  std::byte* const to = block.to + block.begun;
  block.begun += some;
  ++block.copies;
  copier_.copy({to, Kind::kCuda}, {buffer, Kind::kHost}, some,
               [this, buffer, kept = block.shared_from_this()](const Status& copied) {
                 --kept->copies;
                 give_back(*kept, buffer);
                 if (!copied && kept->so_far) kept->so_far = copied;
                 exchange_.resume(kept->from);  // it may be another block's turn by now
                 if (kept->over) end(*kept);
               });
}

void ChunkedReceives::give_back(const Block& block, std::byte* buffer) {
  buffers_.give(buffer);
  if (--held_[block.from] == 0) held_.erase(block.from);
}

// When neither the exchange nor a copy needs its memory.
void ChunkedReceives::end(Block& block) {
  if (block.copies > 0) return;
  if (std::byte* const buffer = std::exchange(block.buffer, nullptr)) give_back(block, buffer);
  const Status& status = block.so_far ? *block.over : block.so_far;
  if (block.done) block.done(status, msg::Lane::kStaged);
}

}  // namespace tilewise::exchange
