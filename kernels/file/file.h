// See README.md of this folder's parent for the families, and families.h for the meaning of the three functions.
#pragma once
#include <tilewise/io/begun.h>
#include <tilewise/kernels/kernels.h>
#include <tilewise/kernels/plugin_abi.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tilewise::kernels::file {

Status supports(const ir::Op& op, const PluginTable* plugins);
Status host(const KernelCall& call, const PluginTable* plugins);
Status reference(const KernelCall& call, const PluginTable* plugins);

int create_npy(const tilewise_call_v1* call);  // built-in kernels, see commit.cc
int commit_npy(const tilewise_call_v1* call);
int discard_npy(const tilewise_call_v1* call);
int read_stored(const tilewise_call_v1* call);  // see stored.cc
int create_zarr(const tilewise_call_v1* call);
int write_zarr(const tilewise_call_v1* call);
int commit_zarr(const tilewise_call_v1* call);
int discard_zarr(const tilewise_call_v1* call);
int tend_checkpoints(const tilewise_call_v1* call);  // see checkpoint.cc
int create_checkpoint(const tilewise_call_v1* call);
int write_checkpoint(const tilewise_call_v1* call);
int commit_checkpoint(const tilewise_call_v1* call);
int restore_checkpoint(const tilewise_call_v1* call);

// What a built-in kernel returns: the error's code, with its message.
int answer(const tilewise_call_v1* call, const Status& ok);
// What the writers of a save have reported, all of it: each file that they wrote into, once.
std::vector<io::FileId> files_reported(const tilewise_call_v1* call);
// Writes a block into what was begun as `id`, by write(temporary path), and reports that; writes nothing where it is in place already.
Status write_into(const std::string& final_path, const std::string& token, io::FileId id,
                  const std::function<Status(const std::string&)>& write, std::int64_t* report);
// The view's elements in C order: where they lie, or copied to `packed`.
const void* in_c_order(const TensorView& view, std::unique_ptr<std::byte[]>& packed);

}  // namespace tilewise::kernels::file
