#include <doctest/doctest.h>
#include <tilewise/io/npy.h>
#include <tilewise/kernels/kernels.h>

#include <array>
#include <cstdio>
#include <filesystem>

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
  const auto temporary = io::create_temp(path, "77", ir::DType::kInt32, shape);
  REQUIRE(temporary.has_value());
  io::FileId begun = *io::id_of(*temporary);
  const ir::Box boxes[] = {{{0, 0}, {6, 4}}, {{0, 4}, {6, 10}}};
  const auto run = [&](const ir::Box& box) -> Status {
    std::int64_t into = 0;
    kernels::KernelCall call;
    call.op = &write;
    call.box = box;
    call.space_shape = shape;
    call.inputs.push_back({data.data() + box.lo[1] * 6, ir::DType::kInt32, box.shape(), {1, 6}});
    call.input_boxes.push_back(box);
    call.inputs.push_back({&begun, ir::DType::kInt64, box.shape(), {0, 0}});
    call.input_boxes.push_back(box);
    call.outputs.push_back({&into, ir::DType::kInt64, {1, 1}, {1, 1}});
    const Status done = set->run(call);
    if (done) CHECK(into == begun);
    return done;
  };
  for (const ir::Box& box : boxes) REQUIRE(run(box).has_value());
  REQUIRE((io::commit(path, "77", ir::DType::kInt32, shape, std::array{begun})).has_value());
  CHECK(run(boxes[0]).has_value());  // again: it is in place
  CHECK(!std::filesystem::exists(*temporary));
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
  const Status late = run(boxes[1]);  // and who comes after all is gone makes nothing
  REQUIRE(!late.has_value());
  CHECK(late.error().code == Errc::kNotFound);
  CHECK(!std::filesystem::exists(*temporary));
  CHECK(!std::filesystem::exists(path));
}
