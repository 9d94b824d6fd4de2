// Programs that a session keeps at the scheduler: the ops of a submission, with arrays called by their places and without the
// values of constants (ir/constants.h). A loop submits the same program in every turn; from the third time on it names what it
// sent the second time (Submit::program).
//
// Both sides follow from what was sent: the client chooses a place for each program that it wants kept, what was there before
// goes, and nothing else ever does. Which program is meant is said by the number of the request that had it kept, so one that
// did not arrive, or that something else has replaced, cannot be taken for another.
#pragma once
#include <tilewise/msg/msg.h>

#include <memory>

namespace tilewise::msg {

constexpr std::uint32_t kKeptPrograms = 4;                     // places of one session
constexpr std::size_t kMaxKeptOps = 16'384;                    // of one program
constexpr std::size_t kMaxKeptBytes = 16 << 20;                // likewise, as kept_bytes() counts
constexpr std::uint64_t kInputPlace = std::uint64_t{1} << 63;  // of an input; numbers of arrays are below

struct Program {
  // Outputs are 0, 1, ... in the order of the ops; what is read and not made is kInputPlace + 0, 1, ... by first mention.
  std::vector<ir::Op> ops;
  std::uint64_t outputs = 0, inputs = 0;
  friend bool operator==(const Program&, const Program&) = default;
};

// Ops of a program that plans made of it have too. Constant: whoever has them may read them from any thread.
using SharedOps = std::shared_ptr<const std::vector<ir::Op>>;
SharedOps share(std::vector<ir::Op> ops);

// The same on all machines, about what it takes in memory.
std::size_t kept_bytes(const ir::Op& op);

// kInvalidArgument if outputs are not numbered in a row, or a number is that of a place; kLimitExceeded past kMaxKeptOps or
// kMaxKeptBytes. `ops` as in a Submit.
Result<Program> program_of(std::vector<ir::Op> ops);

// The ops of a Submit that names the program. `inputs` has program.inputs entries, `constants` one for each number.
std::vector<ir::Op> ops_of(const Program& program, std::uint64_t first_output,
                           const std::vector<std::uint64_t>& inputs, const ir::Constants& constants);

}  // namespace tilewise::msg
