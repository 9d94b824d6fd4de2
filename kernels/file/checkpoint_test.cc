#include <doctest/doctest.h>
#include <tilewise/ir/checkpoint.h>
#include <tilewise/kernels/kernels.h>
#include <tilewise/kernels/plugin.h>

#include <fstream>
#include <string>

#include "temp_folder.h"

using namespace tilewise;
namespace checkpoint = tilewise::ir::checkpoint;

namespace {

// The kernels, and a folder for them.
struct Kernels {
  kernels::PluginTable table;
  std::unique_ptr<kernels::KernelSet> set;
  testing::TempFolder temporary;
  std::string folder = temporary / "cluster";
  Kernels() {
    REQUIRE(table.add(kernels::builtin_kernels()).has_value());
    set = kernels::make_host_kernels(&table);
  }

  Status run(std::string_view kernel, std::string params, const ir::Shape& space, const ir::Box& box,
             std::vector<kernels::TensorView> inputs, const kernels::TensorView& output) const {
    return run(kernel, std::move(params), space, box, std::move(inputs), std::vector{output}, {box});
  }
  // `boxes`: where the outputs are in their arrays.
  Status run(std::string_view kernel, std::string params, const ir::Shape& space, const ir::Box& box,
             std::vector<kernels::TensorView> inputs, const std::vector<kernels::TensorView>& outputs,
             const std::vector<ir::Box>& boxes) const {
    ir::Op op;
    op.kind = ir::OpKind::kCall;
    op.attrs = ir::CallAttrs{.kernel = std::string(kernel), .version = "1", .params = std::move(params)};
    op.space = *ir::Grid::uniform(space, space);
    for (const kernels::TensorView& output : outputs) op.outputs.push_back({0, output.dtype, op.space});
    for (const kernels::TensorView& view : inputs) op.operands.push_back({0, ir::View::identity(view.shape)});
    kernels::KernelCall call;
    call.op = &op;
    call.space_shape = space;
    call.box = box;
    for (const kernels::TensorView& view : inputs) {
      call.inputs.push_back(view);
      call.input_boxes.push_back(
          {ir::Index(view.shape.size(), 0), ir::Index(view.shape.begin(), view.shape.end())});
    }
    call.outputs = {outputs.begin(), outputs.end()};
    call.output_boxes = {boxes.begin(), boxes.end()};
    return set->run(call);
  }
  Status once(std::string_view kernel, std::string params) const {
    std::int64_t done = -1;
    return run(kernel, std::move(params), {1}, {{0}, {1}}, {}, {&done, ir::DType::kInt64, {1}, {1}});
  }
};

}  // namespace

TEST_CASE("an array goes to disk block by block and comes back, also of a dtype that no other file has") {
  const Kernels k;
  const ir::Grid grid({*ir::DimGrid::cuts(6, {0, 4}), *ir::DimGrid::cuts(10, {0, 7})});
  const checkpoint::File file{9, 60 * 2, grid, "array 1 (6, 10)", k.folder};
  const std::string params = checkpoint::text(file);
  const Status tended =
      k.once(checkpoint::kTend, checkpoint::text(checkpoint::Folder{1, 2, true, 9, {}, k.folder}));
  REQUIRE_MESSAGE(tended.has_value(), tended.error().message);
  REQUIRE(k.once(checkpoint::kCreate, params).has_value());
  const ir::Shape shape = {6, 10};
  std::vector<std::uint16_t> data(60), back(60);  // the transpose lies in memory: 10 x 6
  for (std::size_t i = 0; i < 60; ++i) data[i] = static_cast<std::uint16_t>(i * i);
  const ir::Box boxes[] = {{{0, 0}, {4, 7}}, {{0, 7}, {4, 10}}, {{4, 0}, {6, 7}}, {{4, 7}, {6, 10}}};
  std::int64_t created = 0;
  const kernels::TensorView after{&created, ir::DType::kInt64, {1}, {1}};
  for (const ir::Box& box : boxes) {
    std::int64_t bytes = 0;
    REQUIRE(
        k.run(checkpoint::kWrite, params, shape, box,
              {{data.data() + box.lo[1] * 6 + box.lo[0], ir::DType::kBFloat16, box.shape(), {1, 6}}, after},
              {&bytes, ir::DType::kInt64, {1, 1}, {1, 1}})
            .has_value());
    CHECK(bytes == box.volume() * 2);
  }
  REQUIRE(k.once(checkpoint::kCommit, params).has_value());
  const auto restore = [&](const ir::Box& box) {
    return k.run(checkpoint::kRestore, checkpoint::text(checkpoint::Files{file}), shape, box, {},
                 {back.data(), ir::DType::kBFloat16, box.shape(), {box.hi[1] - box.lo[1], 1}});
  };
  for (const ir::Box& box : boxes) {
    REQUIRE(restore(box).has_value());
    std::size_t at = 0;
    for (std::int64_t r = box.lo[0]; r < box.hi[0]; ++r)
      for (std::int64_t c = box.lo[1]; c < box.hi[1]; ++c)
        CHECK(back[at++] == data[static_cast<std::size_t>(c * 6 + r)]);
  }
  {
    std::fstream there(checkpoint::path_of(file), std::ios::in | std::ios::out | std::ios::binary);
    there.seekp(4096 + (4 * 10 + 3) * 2);  // of the third block
    there.put('\x5a');
  }
  REQUIRE(restore(boxes[0]).has_value());
  const Status changed = restore(boxes[2]);
  REQUIRE(!changed.has_value());
  CHECK(changed.error().code == Errc::kWorkerLost);  // as if the file was not there
  for (const std::string& named :
       {std::string("array 1 (6, 10)"), checkpoint::path_of(file), ir::to_string(boxes[2])})
    CHECK_MESSAGE(changed.error().message.find(named) != std::string::npos, changed.error().message);
  std::filesystem::remove(checkpoint::path_of(file));
  const Status gone = restore(boxes[0]);
  REQUIRE(!gone.has_value());
  CHECK(gone.error().code == Errc::kWorkerLost);
  CHECK(gone.error().message.find("array 1 (6, 10)") != std::string::npos);
  CHECK(gone.error().message.find(checkpoint::path_of(file)) != std::string::npos);
  CHECK(k.run(checkpoint::kWrite, params, shape, boxes[0],
              {{data.data(), ir::DType::kBFloat16, boxes[0].shape(), {1, 6}}, after},
              {&created, ir::DType::kInt64, {1, 1}, {1, 1}})
            .error()
            .code == Errc::kNotFound);  // who writes too late leaves nothing
  CHECK(!std::filesystem::exists(checkpoint::path_of(file)));
}

TEST_CASE(
    "results of one op come back from a file each, in blocks of their own, and what has none is zeros") {
  const Kernels k;
  const ir::Grid halves({*ir::DimGrid::cuts(6, {0, 4})}), numbers({*ir::DimGrid::cuts(2, {0, 1})});
  const checkpoint::File values{9, 6 * 8, halves, "array 1 (6)", k.folder},
      sums{10, 2 * 8, numbers, "array 3 (2)", k.folder};
  REQUIRE(k.once(checkpoint::kTend, checkpoint::text(checkpoint::Folder{1, 2, true, 9, {}, k.folder}))
              .has_value());
  const double in[] = {1, 2, 3, 4, 5, 6}, sum[] = {10, 11};
  std::int64_t created = 0;
  const kernels::TensorView after{&created, ir::DType::kInt64, {1}, {1}};
  const auto view = [](const double* of, const ir::Box& box) {
    return kernels::TensorView{const_cast<double*>(of) + box.lo[0], ir::DType::kFloat64, box.shape(), {1}};
  };
  for (const auto& [file, from] : {std::pair{values, in}, {sums, sum}}) {
    const std::string params = checkpoint::text(file);
    REQUIRE(k.once(checkpoint::kCreate, params).has_value());
    for (std::int64_t b = 0; b < 2; ++b) {
      std::int64_t bytes = 0;
      REQUIRE(k.run(checkpoint::kWrite, params, file.grid.shape(), file.grid.box({b}),
                    {view(from, file.grid.box({b})), after}, {&bytes, ir::DType::kInt64, {1}, {1}})
                  .has_value());
    }
    REQUIRE(k.once(checkpoint::kCommit, params).has_value());
  }
  const auto restore = [&](const checkpoint::Files& files, std::int64_t b, double* value, double* gone,
                           double* number) {
    const ir::Box half = halves.box({b}), one = numbers.box({b});
    return k.run(checkpoint::kRestore, checkpoint::text(files), {6}, half, {},
                 {view(value - half.lo[0], half), view(gone - one.lo[0], one), view(number - one.lo[0], one)},
                 {half, one, one});
  };
  for (std::int64_t b = 0; b < 2; ++b) {
    double value[4] = {}, gone = 7, number = 7;
    REQUIRE(restore({values, std::nullopt, sums}, b, value, &gone, &number).has_value());
    for (std::int64_t i = 0; i < halves.box({b}).volume(); ++i)
      CHECK(value[i] == in[halves.box({b}).lo[0] + i]);
    CHECK(gone == 0);
    CHECK(number == sum[b]);
  }
  double value[4] = {}, gone = 7, number = 7;
  CHECK(restore({values, sums}, 0, value, &gone, &number).error().code == Errc::kInvalidArgument);
  std::filesystem::remove(checkpoint::path_of(sums));
  const Status lost = restore({values, std::nullopt, sums}, 0, value, &gone, &number);
  REQUIRE(!lost.has_value());
  CHECK(lost.error().code == Errc::kWorkerLost);
  CHECK(lost.error().message.find("array 3 (2)") != std::string::npos);
}
