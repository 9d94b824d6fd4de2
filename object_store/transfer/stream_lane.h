// Private. Blocks over a stream of bytes: a word, its payload, the next word, each way by itself. The sender's memory is
// read in place and the receiver's written in place; the stream's own limits are all that lies between. What comes in chunks
// (chunks.h) looks the same on the way: each end has its own reasons.
//
// Between two processes of a host a large block has no payload: its word says where it lies, the receiver reads it there
// (process_vm_readv(2)), and says so. One copy, by the receiver; the sender's memory stays until then. Whether the receiver may is tried out
// when the lane begins. It looks whether the sender has closed the stream after it has read and before it tells anybody: a sender
// that gives its memory to something else before it was told has closed first.
//
// The first word of each side is kBegin; who was dialled is silent until the other's has come. So whoever hands the stream over can still
// take its last words from it.
#pragma once
#include <tilewise/net/byte_stream.h>
#include <tilewise/transfer/chunks.h>
#include <tilewise/transfer/ucx_engine.h>

#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <sys/types.h>

namespace tilewise::transfer {

// In the sender's byte order, as is a word (all supported hosts are little-endian).
struct BlockHeader {
  Cookie cookie{};
  std::uint64_t transfer = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const BlockHeader&, const BlockHeader&) = default;
};
static_assert(sizeof(BlockHeader) == 32);

struct LaneWord {
  enum class Kind : std::uint32_t {
    kBegin = 1,  // the speaker has `block.cookie` at `place` of its memory; 0: it has none to be read
    kReads,      // the speaker has found that: it can read the hearer's memory
    kCopies,     // it has not
    kBlock,      // its bytes follow
    kInPlace,    // they lie at `place` of the speaker's memory, until it hears one of these two
    kReading,    // of a block of the hearer's: some of it has been read since the last one
    kTaken,      // the same: not needed any more
    kSendIt,     // the same: it could not be read there, and is to come as a kBlock
  };
  Kind kind = Kind::kBegin;
  std::uint32_t zero = 0;
  std::uint64_t place = 0;
  BlockHeader block;
};
static_assert(sizeof(LaneWord) == 48);

Cookie random_cookie();

// Where a block's bytes go.
struct Place {
  std::byte* memory = nullptr;
  Sink* sink = nullptr;  // instead
};

class StreamLane {
 public:
  // Smaller ones are copied into the stream sooner than they are asked for.
  static constexpr std::uint64_t kLeastInPlace = 128 << 10;

  // They may come from inside send(), pull() and drop(), and must not destroy the lane.
  struct Handlers {
    // Where the payload goes. None: it is read and forgotten.
    std::function<std::optional<Place>(const BlockHeader&)> on_header;
    std::function<void(const BlockHeader&, Via)> on_received;  // all of it lies there
    std::function<void(const BlockHeader&, Via)>
        on_sent;  // the memory is free: the transport, or the peer, has a copy
    // Its source has failed, and nothing of it was sent.
    std::function<void(const BlockHeader&, const Error&)> on_refused = {};
    // Nothing of what on_header was called for has come: it is announced again.
    std::function<void(const BlockHeader&)> on_put_back = {};
    std::function<void()> on_pull = {};  // pull() is to be called until it says false
    // Once, and nothing after it. kUnavailable, kTimeout (the peer is silent), kCorruptData.
    std::function<void(const Error&)> on_broken;
  };

  // `in_place`: this process lets the peer read its memory, and reads the peer's, where both can.
  StreamLane(std::unique_ptr<net::ByteStream> stream, bool dialled, Handlers handlers, bool in_place = false);
  ~StreamLane();  // memory that it was given is free at once
  StreamLane(const StreamLane&) = delete;
  StreamLane& operator=(const StreamLane&) = delete;

  // After what was sent before, but for those that are read in place. The memory stays until on_sent, on_broken, or withdraw().
  void send(const BlockHeader& block, const std::byte* from);
  // One whose first bytes are there may go before one whose are not.
  void send(const BlockHeader& block, Source& from);
  // Takes back what was not begun. False: some of it is on its way, or may be being read, and only the end of the lane stops that.
  bool withdraw(const BlockHeader& block);
  // When the stream, or the peer, took or brought something last, by monotonic_now().
  TimeNs wrote_at() const { return wrote_at_; }
  TimeNs read_at() const { return read_at_; }
  // When some of this one was received last, or was read by the peer. 0: it waits its turn. None is lent: it is not in place, or taken.
  TimeNs received_at(const BlockHeader& block) const;
  std::optional<TimeNs> lent_at(const BlockHeader& block) const;
  // The rest of what is being received goes nowhere.
  void drop(const BlockHeader& block);
  // A source has more, or a sink has room.
  void resume();
  // Reads a piece of what lies in the peer's memory. False: there is nothing to read, or no room for it.
  bool pull();

 private:
  struct Outgoing {
    LaneWord word;
    const std::byte* from = nullptr;
    Source* source = nullptr;  // instead
    std::size_t written = 0;   // of word and payload
    std::uint64_t payload() const { return word.kind == LaneWord::Kind::kBlock ? word.block.bytes : 0; }
    bool may_be_read() const {
      return word.kind == LaneWord::Kind::kBlock && from != nullptr && written == 0 &&
             word.block.bytes >= kLeastInPlace;
    }
    bool is_block() const {
      return word.kind == LaneWord::Kind::kBlock || word.kind == LaneWord::Kind::kInPlace;
    }
  };
  struct Incoming {
    BlockHeader block;
    std::optional<Place> to;                     // none: nowhere, and nobody is told of its end
    std::uint64_t left = 0;                      // bytes
    std::uint64_t place = 0;                     // of what comes next, in the peer's memory
    bool unwanted = false;                       // its sink wants no more of it
    TimeNs moved_at = 0;                         // some of it came
    TimeNs told_at = 0;                          // and the peer was told
    std::optional<std::span<std::byte>> room();  // at most `left`; none: it goes nowhere
    void came(std::size_t bytes);
  };
  struct Lent {
    BlockHeader block;
    const std::byte* from = nullptr;
    TimeNs moved_at = 0;  // some of it was read
  };
  // For one system call.
  struct Gathered {
    std::array<net::ByteStream::Piece, 32> pieces;
    std::size_t count = 0, bytes = 0;
  };
  void add(Outgoing out);
  void say(LaneWord::Kind kind, const BlockHeader& block);
  void read();
  bool read_some();
  void write();
  bool take_buffered();
  bool take_word(const LaneWord& word);
  Status begin(const LaneWord& word);
  Status take_place(const LaneWord& word);
  Status hear_of_lent(const LaneWord& word);
  bool take_payload();
  bool pull_from(Incoming& block);
  void end_pull(BlockHeader block);  // a copy: it is not of what is removed
  bool remove_pull(const BlockHeader& block);
  Result<std::span<const std::byte>> rest_of(const Outgoing& out) const;
  bool is_ready(const Outgoing& out) const;
  void refuse_failed();
  void put_ready_first();
  Status gather(Gathered& out);
  void consume(std::size_t bytes);
  Via via() const { return stream_->is_shared_memory() ? Via::kSharedMemory : Via::kTcp; }
  void broke(const Error& why);

  std::unique_ptr<net::ByteStream> stream_;
  Handlers handlers_;
  Cookie proof_{};  // what a peer looks for in this process's memory
  std::deque<Outgoing> outgoing_;
  std::vector<Lent> lent_;
  std::vector<std::byte> buffer_;  // words, small blocks, and the beginnings of large ones
  std::size_t begin_ = 0, end_ = 0;
  std::optional<Incoming> incoming_;  // through the stream
  std::deque<Incoming> pulls_;        // what lies in the peer's memory
  std::size_t pulled_ = 0;            // bytes, in this turn of reading
  std::optional<pid_t> peer_;         // whose memory can be read
  TimeNs wrote_at_ = 0, read_at_ = 0;
  bool in_place_ = false;           // may be tried
  std::optional<bool> peer_reads_;  // this process's memory; none: it has not said
  bool may_write_ = false;          // the other side is ready for what is no frame
  bool began_ = false;              // its first word has come
  bool write_waits_ = false, writing_ = false, broken_ = false;
  bool reading_ = false;  // read() is on the stack
  bool pulling_ = false;  // likewise
  bool no_room_ = false;  // the sink had none: nothing is read
  bool resumed_ = false;  // meanwhile: writing_, reading_ or pulling_
};

}  // namespace tilewise::transfer
