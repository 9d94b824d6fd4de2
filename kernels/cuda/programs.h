// Whole programs of CUDA source, one per kind of kernel, and their compiled form: in memory by key, then on disk, then
// from NVRTC.
#pragma once
#include <tilewise/cuda/driver.h>
#include <tilewise/ir/op.h>

#include <array>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "cubin_cache.h"
#include "nvrtc.h"
#include "tape_source.h"

namespace tilewise::cuda {

std::string map_program(const ir::Tape& tape);  // tw_map_groups, tw_map_any, tw_map_squares
std::string reduce_program(const ir::Tape& tape, ir::ReduceKind kind);  // tw_reduce, tw_finish (, tw_combine)
std::string matmul_program(ir::DType dtype);                            // tw_matmul
// tw_scan_lines, tw_scan_totals, tw_scan_carries, tw_scan_chunks
std::string scan_program(ir::ReduceKind kind, ir::DType dtype);

// tw_take, tw_put_mark, tw_put_write, tw_select_count, tw_select_starts, tw_select_write; for elements of 1 to 16 bytes
std::string index_program(std::size_t element_bytes);
// tw_search, tw_sort_tiles, tw_merge, tw_deal, tw_split_find, tw_split_copy; `numbered`: elements have numbers that decide between equal ones
std::string order_program(ir::DType dtype, bool numbered);
std::string gamma_program(ir::DType dtype);  // tw_draw_gamma
// tw_linalg_info, tw_linalg_finite, tw_linalg_diagonal, tw_linalg_det, tw_linalg_order, tw_linalg_exchange
std::string linalg_program(ir::DType dtype);

// The entry points of each, in this order.
enum class ProgramKind : std::uint8_t {
  kMap,
  kReduce,
  kPartsReduce,
  kMatmul,
  kScan,
  kIndex,
  kOrder,
  kGamma,
  kLinalg
};
struct Program {
  std::array<CUfunction, 8> entry{};
};

// Loaded programs of one device. Any thread; the same program is compiled once however many ask.
class Programs {
 public:
  Programs(const Context& context, std::unique_ptr<Nvrtc> nvrtc, CubinCache cache);
  ~Programs();  // unloads; no kernel may be running

  Result<Program> map(const ir::Tape& tape);
  Result<Program> reduce(const ir::Tape& tape, ir::ReduceKind kind);
  Result<Program> matmul(ir::DType dtype);
  Result<Program> scan(ir::ReduceKind kind, ir::DType dtype);
  Result<Program> index(std::size_t element_bytes);
  Result<Program> order(ir::DType dtype, bool numbered);
  Result<Program> gamma(ir::DType dtype);
  Result<Program> linalg(ir::DType dtype);

  struct Counts {
    std::int64_t compiled = 0, from_disk = 0;
    double compile_seconds = 0;
  };
  Counts counts() const;

 private:
  struct Entry {
    std::once_flag once;
    CUmodule module = nullptr;
    Result<Program> program = error(Errc::kInternal, "not built");
  };
  template <class Source> Result<Program> get(const std::string& key, ProgramKind kind, const Source& source);
  Result<Program> build(Entry& entry, ProgramKind kind, const std::string& source);
  Result<std::string> machine_code(const std::string& source);

  const Context& context_;
  std::unique_ptr<Nvrtc> nvrtc_;
  CubinCache cache_;
  std::shared_mutex mutex_;
  std::map<std::string, std::unique_ptr<Entry>, std::less<>> entries_;
  mutable std::mutex counts_mutex_;
  Counts counts_;
};

}  // namespace tilewise::cuda
