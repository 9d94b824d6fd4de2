#include "programs.h"

#include <tilewise/ir/verify.h>

#include <chrono>

#include "embedded.h"

namespace tilewise::cuda {
namespace {

std::string common(bool complex = false) {
  std::string source = std::string(kRandomSource) + kPreludeSource;
  if (complex) source += kComplexMacros + std::string(kComplexSource);
  return source;
}

// Sums and products of float32 are carried in float64: it costs nothing where memory is the limit.
std::string_view accumulator(ir::DType dtype, ir::ReduceKind kind) {
  const bool adds =
      kind == ir::ReduceKind::kSum || kind == ir::ReduceKind::kProd || kind == ir::ReduceKind::kMoments;
  if (adds && dtype == ir::DType::kComplex64) return "c128";
  return adds && dtype == ir::DType::kFloat32 ? "double" : register_type(dtype);
}

std::span<const char* const> entry_names(ProgramKind kind) {
  static constexpr const char* kMap[] = {"tw_map_groups", "tw_map_any", "tw_map_squares"};
  static constexpr const char* kReduce[] = {"tw_reduce", "tw_finish"};
  static constexpr const char* kPartsReduce[] = {"tw_reduce", "tw_finish", "tw_combine"};
  static constexpr const char* kMatmul[] = {"tw_matmul"};
  static constexpr const char* kScan[] = {"tw_scan_lines", "tw_scan_totals", "tw_scan_carries",
                                          "tw_scan_chunks"};
  static constexpr const char* kIndex[] = {"tw_take",         "tw_put_mark",      "tw_put_write",
                                           "tw_select_count", "tw_select_starts", "tw_select_write",
                                           "tw_wrap_index",   "tw_put_add"};
  static constexpr const char* kOrder[] = {"tw_search", "tw_sort_tiles", "tw_merge",
                                           "tw_deal",   "tw_split_find", "tw_split_copy"};
  static constexpr const char* kGamma[] = {"tw_draw_gamma"};
  static constexpr const char* kLinalg[] = {"tw_linalg_info", "tw_linalg_finite", "tw_linalg_diagonal",
                                            "tw_linalg_det",  "tw_linalg_order",  "tw_linalg_exchange"};
  switch (kind) {
    case ProgramKind::kMap: return kMap;
    case ProgramKind::kReduce: return kReduce;
    case ProgramKind::kPartsReduce: return kPartsReduce;
    case ProgramKind::kMatmul: return kMatmul;
    case ProgramKind::kScan: return kScan;
    case ProgramKind::kIndex: return kIndex;
    case ProgramKind::kOrder: return kOrder;
    case ProgramKind::kGamma: return kGamma;
    case ProgramKind::kLinalg: return kLinalg;
  }
  return {};
}

}  // namespace

std::string map_program(const ir::Tape& tape) {
  return common(uses_complex(tape)) + tape_source(tape) + kMapSource;
}

std::string reduce_program(const ir::Tape& tape, ir::ReduceKind kind) {
  std::string source = common(uses_complex(tape)) + tape_source(tape);
  source += "constexpr int kKind = " + std::to_string(static_cast<int>(kind)) + ";\n";
  if (ir::parts_of(kind) > 1) source += "#define TW_COMBINE\n";
  source += "typedef " + std::string(accumulator(tape.result(), kind)) + " Acc;\ntypedef " +
            std::string(memory_type(tape.result())) + " Result;\n";
  return source + kReduceSource;
}

std::string matmul_program(ir::DType dtype) {
  return common() + "typedef " + std::string(register_type(dtype)) + " Value;\n" + kMatmulSource;
}

std::string scan_program(ir::ReduceKind kind, ir::DType dtype) {
  return common(ir::is_complex(dtype)) + "typedef " + std::string(register_type(dtype)) +
         " Value;\nconstexpr bool kProduct = " + (kind == ir::ReduceKind::kProd ? "true" : "false") + ";\n" +
         kScanSource;
}

std::string index_program(std::size_t element_bytes) {
  const char* const item = element_bytes == 1   ? "typedef u8 Item;\n"
                           : element_bytes == 2 ? "typedef unsigned short Item;\n"
                           : element_bytes == 4 ? "typedef u32 Item;\n"
                           : element_bytes == 8 ? "typedef u64 Item;\n"
                                                : "typedef Pack<u64, 2> Item;\n";
  return common() + kFaultSource + item + kIndexSource;
}

std::string order_program(ir::DType dtype, bool numbered) {
  return common() + "typedef " + std::string(memory_type(dtype)) +
         " Item;\nconstexpr bool kNumbered = " + (numbered ? "true" : "false") + ";\n" + kOrderSource;
}

std::string gamma_program(ir::DType dtype) {
  return common() + "typedef " + std::string(memory_type(dtype)) + " Out;\n" + kGammaSource;
}

std::string linalg_program(ir::DType dtype) {
  const bool complex = ir::is_complex(dtype);
  return common() + kFaultSource + "typedef " + std::string(register_type(ir::real_dtype(dtype))) +
         " Real;\nconstexpr int kParts = " + (complex ? "2" : "1") + ";\n" + kLinalgSource;
}

Programs::Programs(const Context& context, std::unique_ptr<Nvrtc> nvrtc, CubinCache cache)
    : context_(context), nvrtc_(std::move(nvrtc)), cache_(std::move(cache)) {}

Programs::~Programs() {
  if (!context_.make_current()) return;
  for (const auto& [key, entry] : entries_)
    if (entry->module != nullptr) context_.driver->cuModuleUnload_(entry->module);
}

template <class Source>
Result<Program> Programs::get(const std::string& key, ProgramKind kind, const Source& source) {
  Entry* entry = nullptr;
  {
    const std::shared_lock lock(mutex_);
    if (const auto it = entries_.find(key); it != entries_.end()) entry = it->second.get();
  }
  if (entry == nullptr) {
    const std::unique_lock lock(mutex_);
    auto& slot = entries_[key];
    if (!slot) slot = std::make_unique<Entry>();
    entry = slot.get();
  }
  std::call_once(entry->once, [&] { entry->program = build(*entry, kind, source()); });
  return entry->program;
}

Result<Program> Programs::map(const ir::Tape& tape) {
  thread_local std::string key;  // reused: the launch path allocates nothing
  key.assign("m");
  append_key(tape, key);
  return get(key, ProgramKind::kMap, [&] { return map_program(tape); });
}

Result<Program> Programs::reduce(const ir::Tape& tape, ir::ReduceKind kind) {
  thread_local std::string key;
  key.assign("r");
  key.push_back(static_cast<char>(kind));
  append_key(tape, key);
  return get(key, ir::parts_of(kind) > 1 ? ProgramKind::kPartsReduce : ProgramKind::kReduce,
             [&] { return reduce_program(tape, kind); });
}

Result<Program> Programs::matmul(ir::DType dtype) {
  const std::string key{'x', static_cast<char>(dtype)};
  return get(key, ProgramKind::kMatmul, [&] { return matmul_program(dtype); });
}

Result<Program> Programs::scan(ir::ReduceKind kind, ir::DType dtype) {
  const std::string key{'s', static_cast<char>(kind), static_cast<char>(dtype)};
  return get(key, ProgramKind::kScan, [&] { return scan_program(kind, dtype); });
}

Result<Program> Programs::index(std::size_t element_bytes) {
  const std::string key{'i', static_cast<char>(element_bytes)};
  return get(key, ProgramKind::kIndex, [&] { return index_program(element_bytes); });
}

Result<Program> Programs::order(ir::DType dtype, bool numbered) {
  const std::string key{'o', static_cast<char>(dtype), static_cast<char>(numbered)};
  return get(key, ProgramKind::kOrder, [&] { return order_program(dtype, numbered); });
}

Result<Program> Programs::gamma(ir::DType dtype) {
  const std::string key{'g', static_cast<char>(dtype)};
  return get(key, ProgramKind::kGamma, [&] { return gamma_program(dtype); });
}

Result<Program> Programs::linalg(ir::DType dtype) {
  const std::string key{'l', static_cast<char>(dtype)};
  return get(key, ProgramKind::kLinalg, [&] { return linalg_program(dtype); });
}

Result<std::string> Programs::machine_code(const std::string& source) {
  const int architecture = context_.compute_major * 10 + context_.compute_minor;
  const std::string key =
      "sm_" + std::to_string(architecture) + " nvrtc " + nvrtc_->version() + "\n" + source;
  if (auto cached = cache_.find(key)) {
    const std::lock_guard lock(counts_mutex_);
    ++counts_.from_disk;
    return std::move(*cached);
  }
  const auto begin = std::chrono::steady_clock::now();
  auto code = nvrtc_->compile(source, architecture);
  if (!code) return code;
  cache_.store(key, *code);
  const std::lock_guard lock(counts_mutex_);
  ++counts_.compiled;
  counts_.compile_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return code;
}

Result<Program> Programs::build(Entry& entry, ProgramKind kind, const std::string& source) {
  TW_ASSIGN(const std::string code, machine_code(source));
  TW_TRY(context_.make_current());
  const Driver& driver = *context_.driver;
  TW_CUDA_TRY(driver, cuModuleLoadData, "cuModuleLoadData of a generated kernel", &entry.module, code.data());
  Program program;
  std::size_t i = 0;
  for (const char* name : entry_names(kind))
    TW_CUDA_TRY(driver, cuModuleGetFunction, std::string("cuModuleGetFunction ") + name, &program.entry[i++],
                entry.module, name);
  return program;
}

Programs::Counts Programs::counts() const {
  const std::lock_guard lock(counts_mutex_);
  return counts_;
}

}  // namespace tilewise::cuda
