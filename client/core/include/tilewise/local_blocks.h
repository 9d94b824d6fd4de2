// Arrays from pieces that several processes have, and the blocks of an array that lie within this process's reach.
//
//   std::vector<tilewise::LocalBlock<double>> mine{{{first_row, 0}, {rows, 28}, values, owner}};
//   auto x = session.from_local_blocks("epoch 7", {1'000'000, 28}, mine, {.processes = 4});
//   for (const auto& block : session.addressable_blocks(x)) use(block.box, block.values<double>());
#pragma once
#include <tilewise/error.h>
#include <tilewise/future.h>
#include <tilewise/md_span.h>
#include <tilewise/types.h>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tilewise {

namespace client {
class Loans;
struct Access;
}  // namespace client

// A piece of an array, in this process's memory.
template <class T> struct LocalBlock {
  ir::Index offset;           // of its first element in the array
  Shape shape;                // of the piece
  std::span<const T> values;  // as many as `shape` says, C order
  // Given: the values are borrowed, not copied, and `owner` is let go when workers have taken them over, or the array has failed; a
  // cluster in this process keeps them where they lie, if it can (MemoryOptions::adopt), until the array is gone. They
  // must not change until then, and letting go must not use the session. Not given: copied at the call.
  std::shared_ptr<const void> owner = {};
};

struct LocalBytes {  // the same without a type; the array's dtype says what the bytes are
  ir::Index offset;
  Shape shape;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner = {};
};

struct LocalBlocksOptions {
  int processes = 1;    // sessions that take part, 1 to 4,096; those without pieces too
  Duration timeout{0};  // for the others to come; 0: the session's, or 5 minutes where that has none either
};

// One block of an array, read where it lies.
struct AddressableBlock {
  std::int64_t block = 0;  // its C-order number in the array's grid
  ir::Box box;             // its elements
  Device device;           // that has it
  DType dtype = DType::kFloat64;
  std::span<const std::byte> bytes;  // C order, never written

  // Elements of the block's shape. kInvalidArgument unless T is the dtype's type.
  template <class T> std::span<const T> values() const {
    if (dtype != ir::dtype_of_v<T>) {
      throw ArrayError(Errc::kInvalidArgument, "a block of " + std::string(name_of(dtype)) + ", not of " +
                                                   std::string(name_of(ir::dtype_of_v<T>)));
    }
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  // The same with the block's shape; good for as long as the AddressableBlocks that this is of.
  template <class T> MdSpan<const T> view() const { return {values<T>().data(), box.shape()}; }
};

// Blocks on loan: they stay where they are, and their bytes as they are, until the last copy of this is gone, whatever becomes
// of the array; also where their worker dies. They take that worker's memory meanwhile, and cannot go to its disk: work that does
// not fit beside them fails with kOutOfMemory. It keeps the session alive (an embedded cluster must live as long), and must not be
// destroyed in one of its callbacks. Once the session is lost (its calls say kUnavailable) workers may use the memory for something
// else. A child made by fork() can read the bytes for as long as its parent has this, and must end without destroying it
// (_exit, exec). Thread-safe as a value is.
class AddressableBlocks {
 public:
  AddressableBlocks() = default;

  const std::vector<AddressableBlock>& blocks() const& { return blocks_; }  // by number
  const std::vector<AddressableBlock>& blocks() const&& = delete;           // their loan would be over
  std::size_t size() const { return blocks_.size(); }
  auto begin() const { return blocks_.begin(); }
  auto end() const { return blocks_.end(); }
  // Blocks of the array that are not among them: on other hosts, on GPUs, on disk.
  std::int64_t elsewhere() const { return elsewhere_; }

 private:
  friend struct client::Access;
  std::vector<AddressableBlock> blocks_;
  std::int64_t elsewhere_ = 0;
  std::shared_ptr<const void> session_;  // outlives the loans
  std::shared_ptr<const client::Loans> loans_;
};

}  // namespace tilewise
