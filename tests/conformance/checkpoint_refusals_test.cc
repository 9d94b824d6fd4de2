// The kernels of checkpoints, which clusters inside a process do not run, while the k-th request for memory, for room on the disk or for
// bytes from it is refused, for every k: a typed error, and who begins again finishes.
#include <tilewise/ir/checkpoint.h>
#include <tilewise/kernels/kernels.h>
#include <tilewise/kernels/plugin.h>

#include <doctest/doctest.h>
#include <pthread.h>
#include <filesystem>
#include <new>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "../temp_folder.h"
#include "refusals.h"

using namespace tilewise;
namespace checkpoint = tilewise::ir::checkpoint;

namespace {

// An array of two blocks, which goes to disk and comes back.
class Kept {
 public:
  Kept() {
    REQUIRE(table_.add(kernels::builtin_kernels()).has_value());
    set_ = kernels::make_host_kernels(&table_);
    std::iota(data_.begin(), data_.end(), 1.0);
  }

  Status tend() { return once(checkpoint::kTend, checkpoint::text(folder())); }
  Status create() { return once(checkpoint::kCreate, checkpoint::text(file_)); }
  Status write() {
    std::int64_t created = 0;
    for (const ir::Box& block : kBlocks) {
      std::int64_t bytes = 0;
      TW_TRY(run(checkpoint::kWrite, checkpoint::text(file_), block,
                 {view(data_, block), {&created, ir::DType::kInt64, {1}, {1}}},
                 {&bytes, ir::DType::kInt64, {1}, {1}}));
    }
    return {};
  }
  Status commit() { return once(checkpoint::kCommit, checkpoint::text(file_)); }
  Status restore() {
    back_.assign(data_.size(), 0.0);
    for (const ir::Box& block : kBlocks)
      TW_TRY(run(checkpoint::kRestore, checkpoint::text(checkpoint::Files{file_}), block, {},
                 view(back_, block)));
    return {};
  }
  bool came_back() const { return back_ == data_; }
  // Of an array that is gone: the next tend removes it.
  void leave_a_file() { std::filesystem::copy_file(checkpoint::path_of(file_), folder().path + "/" + kGone); }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder().path),
                                                  std::filesystem::directory_iterator()));
  }

 private:
  static inline const ir::Box kBlocks[] = {{{0}, {300}}, {{300}, {500}}};
  static inline const std::string kGone = checkpoint::name_of(3);

  checkpoint::Folder folder() const { return {1, 2, true, 10, {9}, temporary_ / "cluster"}; }
  static kernels::TensorView view(std::vector<double>& of, const ir::Box& block) {
    return {of.data() + block.lo[0], ir::DType::kFloat64, block.shape(), {1}};
  }
  Status once(std::string_view kernel, std::string params) {
    std::int64_t done = -1;
    return run(kernel, std::move(params), {{0}, {1}}, {}, {&done, ir::DType::kInt64, {1}, {1}});
  }
  Status run(std::string_view kernel, std::string params, const ir::Box& box,
             const std::vector<kernels::TensorView>& inputs, const kernels::TensorView& output) {
    ir::Op op;
    op.kind = ir::OpKind::kCall;
    op.attrs = ir::CallAttrs{.kernel = std::string(kernel), .version = "1", .params = std::move(params)};
    op.space = file_.grid;
    op.outputs.push_back({0, output.dtype, op.space});
    kernels::KernelCall call;
    call.op = &op;
    call.space_shape = file_.grid.shape();
    call.box = box;
    for (const kernels::TensorView& input : inputs) {
      op.operands.push_back({0, ir::View::identity(input.shape)});
      call.inputs.push_back(input);
      call.input_boxes.push_back({ir::Index(1, 0), ir::Index(input.shape.begin(), input.shape.end())});
    }
    call.outputs.push_back(output);
    call.output_boxes.push_back(box);
    return set_->run(call);
  }

  testing::TempFolder temporary_;
  kernels::PluginTable table_;
  std::unique_ptr<kernels::KernelSet> set_;
  std::vector<double> data_ = std::vector<double>(500), back_;
  checkpoint::File file_{9, 500 * 8, ir::Grid({*ir::DimGrid::cuts(500, {0, 300})}), "array 1 (500)",
                         temporary_ / "cluster"};
};

struct Kernel {
  std::string name;
  Status (Kept::*run)();
};
const Kernel kKernels[] = {{"tend", &Kept::tend},       {"create", &Kept::create},
                           {"write", &Kept::write},     {"commit", &Kept::commit},
                           {"restore", &Kept::restore}, {"tend, with a file to remove", &Kept::tend}};

// As a worker does: what is thrown for want of memory is an error of that code.
Status attempt(Kept& kept, const Kernel& kernel) try {
  return (kept.*kernel.run)();
} catch (const std::bad_alloc&) {
  return error(Errc::kOutOfMemory, "no memory");
}

// Each in turn is refused its k-th request, and run again. How many were refused, of all of them.
void keep_for_every_k(Allocator which, const std::set<Errc>& typed, int at_most) {
  int refused = 0;
  std::thread executor([&] {
    pthread_setname_np(pthread_self(), "host:0");
    for (const Kernel& kernel : kKernels) {
      CAPTURE(kernel.name);
      for (int k = 1;; ++k) {
        CAPTURE(k);
        REQUIRE(k < at_most);
        Kept kept;
        bool again = false;
        for (const Kernel& each : kKernels) {
          if (&each == std::end(kKernels) - 1) kept.leave_a_file();
          if (each.name != kernel.name) {
            REQUIRE((kept.*each.run)().has_value());
            continue;
          }
          refuse(which, k);
          const Status first = attempt(kept, each);
          again = allow() >= k;
          refused += again;
          CHECK_MESSAGE((first || typed.contains(first.error().code)), first.error().message);
          CHECK((first || again));
          REQUIRE((kept.*each.run)().has_value());
        }
        CHECK(kept.came_back());
        CHECK(kept.files() == 2);  // its own, and the marker
        if (!again) break;
      }
    }
  });
  executor.join();
  CHECK(refused > 0);
  MESSAGE(refused << " requests refused in turn");
}

}  // namespace

TEST_CASE("kernels of checkpoints: memory of the host cannot be had") {
  keep_for_every_k(Allocator::kHost, {Errc::kOutOfMemory}, 500);
}

TEST_CASE("kernels of checkpoints: the disk is full") {
  keep_for_every_k(Allocator::kDisk, {Errc::kDiskFull}, 50);
  keep_for_every_k(Allocator::kDiskAsItIs, {Errc::kDiskFull}, 50);
}

// kWorkerLost: what cannot be read back counts as lost.
TEST_CASE("kernels of checkpoints: the disk cannot be read") {
  keep_for_every_k(Allocator::kRead, {Errc::kIo, Errc::kWorkerLost}, 50);
}
