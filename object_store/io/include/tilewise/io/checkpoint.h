// Checkpoints: files in which each block of an array lies in one piece, in the order of blocks, without a word on what it is
// made of. Only their cluster reads them, and it knows: what it has not been told is written counts for nothing, so there is no
// temporary name. Behind the blocks a CRC-32 of each, with which it is compared when it is read. Files are for their owner alone (0600, in
// a folder of 0700).
//
// All functions may be called from any thread and process that sees the folder, and again: they do what is not done yet. Errors
// name the file: kNotFound, kPermissionDenied, kIo, kDiskFull; kCorruptData: it is another one than was meant, or a block of it (which is
// named) is not what was written there; kOutOfRange: no block of the file's grid.
#pragma once
#include <tilewise/ir/checkpoint.h>
#include <tilewise/ir/shape.h>

namespace tilewise::io::checkpoint {

// Where a block begins, in elements after the first, in an array cut in a grid of which it is a block.
std::int64_t offset_of(const ir::Shape& array, const ir::Box& block);

// Makes the file, with all its space, where the file system can reserve it.
Status create(const ir::checkpoint::File& file);
// Only where create() has made the file: nothing is left by who writes too late.
// `block`: its elements, C order at `from`.
Status write(const ir::checkpoint::File& file, const ir::Box& block, const void* from);
// What was written is durable.
Status commit(const ir::checkpoint::File& file);
// On an error what is at `to` is unspecified.
Status read(const ir::checkpoint::File& file, const ir::Box& block, void* to);

// The folder is there, may be written to, and is the one that `first` made; files that are not to be kept are gone. What others have
// put there is left alone. Also kNotFound: it is somebody else's, or not the one that others see.
Status tend(const ir::checkpoint::Folder& folder);

}  // namespace tilewise::io::checkpoint
