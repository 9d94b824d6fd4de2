// See README.md of this folder's parent for the families, and families.h for the meaning of the three functions.
#pragma once
#include <tilewise/kernels/kernels.h>
#include <tilewise/kernels/plugin_abi.h>

#include <functional>
#include <memory>

namespace tilewise::kernels::file {

Status supports(const ir::Op& op, const PluginTable* plugins);
Status host(const KernelCall& call, const PluginTable* plugins);
Status reference(const KernelCall& call, const PluginTable* plugins);

int commit_npy(const tilewise_call_v1* call);  // built-in kernels, see commit.cc
int discard_npy(const tilewise_call_v1* call);
int read_stored(const tilewise_call_v1* call);  // see stored.cc
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
// Writers of blocks that were cancelled may still be at it, and make what is not there: so this often it is removed, with
// pauses between.
Status discard_all(const std::function<Status()>& discard);
// The view's elements in C order: where they lie, or copied to `packed`.
const void* in_c_order(const TensorView& view, std::unique_ptr<std::byte[]>& packed);

}  // namespace tilewise::kernels::file
