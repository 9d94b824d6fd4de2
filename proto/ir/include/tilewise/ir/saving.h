// Saves of arrays, in four steps: one task begins the file or folder under a temporary name, one for each block writes into it, one puts
// it in place when all have reported; or, where that did not come to a good end, it is removed. Which kernels these are, for the client
// that asks, the scheduler that removes what is left (and runs again what may have run), and the workers.
#pragma once
#include <string>
#include <string_view>

namespace tilewise::ir::saving {

// () -> one number: what the temporary file or folder is, whatever its name (io/begun.h). The only one that makes it.
constexpr std::string_view kCreateNpy = "tilewise.create_npy", kCreateZarr = "tilewise.create_zarr";
// (array, what was created) -> a number a block: what it was written into. Of .npy files an op of its own kind does it (kWriteNpy).
constexpr std::string_view kWriteZarr = "tilewise.write_zarr";
// (what was written into, what was created) -> the array's bytes. Again: the same, and nothing is done.
constexpr std::string_view kCommitNpy = "tilewise.commit_npy", kCommitZarr = "tilewise.commit_zarr";
// () -> one number: nothing of it is left under its temporary name. With the parameters of the task that was to put it in place.
constexpr std::string_view kDiscardNpy = "tilewise.discard_npy", kDiscardZarr = "tilewise.discard_zarr";

// What removes that which this kernel was to put in place; empty: it puts nothing in place.
constexpr std::string_view undo_of(std::string_view kernel) {
  if (kernel == kCommitNpy) return kDiscardNpy;
  if (kernel == kCommitZarr) return kDiscardZarr;
  return {};
}

constexpr bool is_kernel(std::string_view kernel) {
  return kernel == kCreateNpy || kernel == kCreateZarr || kernel == kWriteZarr || !undo_of(kernel).empty();
}

}  // namespace tilewise::ir::saving
