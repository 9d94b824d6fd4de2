// What a tool is told of ranges: one that is linked into this test. NVTX binds its weak symbol to ours; the little of its C
// interface that is needed is spelt out here, since its header has a definition of that symbol itself.
#include "nvtx_range.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {

std::vector<std::string> heard;  // ">name" where a range begins, "<" where one ends

int push(const char* message) {
  heard.push_back(std::string(">") + message);
  return 0;
}
int pop() {
  heard.emplace_back("<");
  return 0;
}

struct Callbacks {  // NvtxExportTableCallbacks
  std::size_t struct_size;
  int (*functions_of)(int module, void*** table, unsigned* size);
};
constexpr unsigned kCallbacks = 1;         // NVTX_ETID_CALLBACKS
constexpr int kCore = 1;                   // NVTX_CB_MODULE_CORE
constexpr unsigned kPushA = 9, kPop = 11;  // NVTX_CBID_CORE_RangePushA, RangePop

int begin(const void* (*table_of)(unsigned id)) {
  const auto* callbacks = static_cast<const Callbacks*>(table_of(kCallbacks));
  void** table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->functions_of(kCore, &table, &size) == 0 || size <= kPop) return 0;
  *static_cast<int (**)(const char*)>(table[kPushA]) = push;
  *static_cast<int (**)()>(table[kPop]) = pop;
  return 1;
}

}  // namespace

extern "C" {
int (*InitializeInjectionNvtx2_fnptr)(const void* (*)(unsigned)) = begin;
}

namespace tilewise::cuda {

TEST_CASE("a range is named by its op's label, or its kind, and ends with its scope") {
  if (!NvtxRange::built_in()) return;
  ir::Op named, nameless;
  named.label = "residual";
  named.kind = nameless.kind = ir::OpKind::kMap;
  {
    const NvtxRange outer(named);
    const NvtxRange inner(nameless);
  }
  CHECK(heard == std::vector<std::string>{">residual", ">map", "<", "<"});
}

}  // namespace tilewise::cuda
