// Kernels by name: those of loaded plug-ins and those built in. Filled by main() before workers start, read-only after.
#pragma once
#include <tilewise/base/result.h>
#include <tilewise/kernels/plugin_abi.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tilewise::kernels {

class PluginTable {
 public:
  PluginTable();
  ~PluginTable();  // unloads; no kernel may be running or enqueued
  PluginTable(const PluginTable&) = delete;
  PluginTable& operator=(const PluginTable&) = delete;

  // Loads a shared object. kNotFound: no such file; kUnsupported: not a shared object that loads here, or without the
  // entry point; kVersionMismatch: another ABI; kAlreadyExists: a plug-in or kernel name is taken; kInvalidArgument:
  // names missing or too long. On an error the table is unchanged.
  Status load(const std::string& path);
  // Adds kernels linked into the program; `plugin` must outlive the table.
  Status add(const tilewise_plugin_v1& plugin);

  struct Entry {  // what is compared when a worker joins
    std::string name, version;
    std::uint64_t hash = 0;  // of the file's bytes; of name, version and kernel names for built-in ones
    std::vector<std::string> kernels;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  const std::vector<Entry>& entries() const { return entries_; }  // in order of loading

  // Null when there is none. Any thread.
  const tilewise_kernel_v1* find(const std::string& kernel) const;
  // Version of the plug-in that brings `kernel`; empty when there is none.
  std::string version_of(const std::string& kernel) const;

 private:
  struct Library;
  struct Kernel {
    const tilewise_kernel_v1* kernel;
    std::size_t entry;
  };
  Status register_plugin(const tilewise_plugin_v1& plugin, std::uint64_t hash);

  std::vector<Entry> entries_;
  std::map<std::string, Kernel> kernels_;
  std::vector<std::unique_ptr<Library>> libraries_;
};

// Built-in kernels:
//   tilewise.noop     does nothing; outputs keep whatever bytes they had (task overhead benchmarks)
//   tilewise.zero     fills every output with zeros
//   tilewise.compute  Task Bench's compute-bound kernel: params = int64 iterations; each is 64 fused multiply-adds on 64
//                     float64; writes the first output's leading elements (as many as fit) with their values
//   tilewise.create_npy, tilewise.commit_npy  the first and last task of a save (tilewise/ir/saving.h, file/commit.cc)
//   tilewise.cholesky, .solve, .det, .qr, .geqrf, .ormqr, .eigh, .svd, .trsm, .update  linear algebra of one block (linalg/linalg.h)
//   tilewise.discard_npy  after a save that failed: removes what was written
//   tilewise.read_stored  a block of a Zarr array or HDF5 dataset (file/stored.cc)
//   tilewise.create_zarr, .write_zarr, .commit_zarr, .discard_zarr  a Zarr array, in the same steps
//   tilewise.tend_checkpoints, .create_checkpoint ...  the scheduler's (tilewise/ir/checkpoint.h)
const tilewise_plugin_v1& builtin_kernels();

}  // namespace tilewise::kernels
