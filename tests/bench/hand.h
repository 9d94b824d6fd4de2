// A chain of tasks that hand one block on, each stamping when it was called and when it was done. Shared by the plug-in
// that runs them and by the program that measures.
#pragma once
#include <cstdint>

namespace tilewise::bench {

// Parameters of one hop's call, as bytes. The file holds two int64 a hop: nanoseconds of the steady clock at the
// call and when the block was made; all processes of a machine share that clock.
struct HandParams {
  std::int64_t hop = 0;
  std::int64_t sleep_ns = 0;  // before the block is made: long enough, and who waits for it has parked
  char path[240] = {};
};

}  // namespace tilewise::bench
