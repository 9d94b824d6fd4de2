#include <doctest/doctest.h>
#include <tilewise/io/npy.h>
#include <tilewise/kernels/kernels.h>

#include <cstdio>

using namespace tilewise;

TEST_CASE("blocks written by tasks come back, whatever the view and the grid") {
  const std::string path = "kernels_file_test.npy";
  const auto set = kernels::make_host_kernels(nullptr);
  const ir::Shape shape = {6, 10};
  std::vector<std::int32_t> data(60);  // the transpose of the array: 10 x 6
  for (int i = 0; i < 60; ++i) data[static_cast<std::size_t>(i)] = i * i;
  ir::Op write;
  write.kind = ir::OpKind::kWriteNpy;
  ir::NpyAttrs attrs;
  attrs.path = path;
  attrs.token = 77;
  write.attrs = attrs;
  for (const ir::Box& box : {ir::Box{{0, 0}, {6, 4}}, ir::Box{{0, 4}, {6, 10}}}) {
    std::int64_t bytes = 0;
    kernels::KernelCall call;
    call.op = &write;
    call.box = box;
    call.space_shape = shape;
    call.inputs.push_back({data.data() + box.lo[1] * 6, ir::DType::kInt32, box.shape(), {1, 6}});
    call.input_boxes.push_back(box);
    call.outputs.push_back({&bytes, ir::DType::kInt64, {1, 1}, {1, 1}});
    REQUIRE((set->run(call)).has_value());
    CHECK(bytes == box.volume() * 4);
  }
  REQUIRE((io::commit(path, "77", ir::DType::kInt32, shape)).has_value());
  const auto info = io::read_npy_header(path);
  REQUIRE(info.has_value());
  ir::Op read;
  read.kind = ir::OpKind::kReadNpy;
  attrs.data_offset = info->data_offset;
  read.attrs = attrs;
  std::vector<std::int32_t> back(6);
  kernels::KernelCall call;
  call.op = &read;
  call.box = {{2, 3}, {4, 6}};
  call.space_shape = shape;
  call.outputs.push_back({back.data(), ir::DType::kInt32, {2, 3}, {3, 1}});
  REQUIRE((set->run(call)).has_value());
  for (int r = 0; r < 2; ++r) {
    for (int c = 0; c < 3; ++c) {
      const int i = (c + 3) * 6 + r + 2;
      CHECK(back[static_cast<std::size_t>(r * 3 + c)] == i * i);
    }
  }
  std::remove(path.c_str());
}
