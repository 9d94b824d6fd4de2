// What the libraries that stand in for cuBLAS and its kin share: work in the order of a stream.
#pragma once
#include <cuda.h>

#include <functional>

// `work` runs when the stream has come to it. False: there is no such stream.
inline bool enqueue_emulated(CUstream stream, std::function<void()> work) {
  auto* const kept = new std::function<void()>(std::move(work));
  const auto call = [](void* data) {
    auto* const function = static_cast<std::function<void()>*>(data);
    (*function)();
    delete function;
  };
  return cuLaunchHostFunc(stream, call, kept) == CUDA_SUCCESS;
}
