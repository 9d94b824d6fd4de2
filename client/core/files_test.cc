#include <future>

#include "access.h"
#include "fake_endpoint.h"

namespace tilewise::client {
namespace {

TEST_CASE("a file system that does not answer") {
  std::promise<void> answers;
  World world({.timeout = std::chrono::milliseconds(20),
               .inspect = [until = answers.get_future().share()](ir::FileFormat, const std::string&,
                                                                 const std::string&) -> Result<ir::FileInfo> {
                 until.wait();
                 return ir::FileInfo{DType::kFloat32, {100, 4}, {}, 128, true, ""};
               }});
  const ArrayError e = thrown([&] { world.session.load_npy("x.npy"); });
  CHECK(e.code() == Errc::kTimeout);
  CHECK(says(e, "load_npy('x.npy')"));
  CHECK(thrown([&] { world.session.read_zarr("x.zarr"); }).code() == Errc::kTimeout);
  CHECK(thrown([&] { world.session.read_raw("x.bin", DType::kInt32, {10, 3}); }).code() == Errc::kTimeout);
  answers.set_value();  // the threads that asked may go on when the session has ended
}

TEST_CASE("files") {
  const auto info = [](ir::FileFormat format, const std::string& path,
                       const std::string& dataset) -> Result<ir::FileInfo> {
    if (path == "x.npy" && format == ir::FileFormat::kNpy)
      return ir::FileInfo{DType::kFloat32, {100, 4}, {}, 128, true, ""};
    if (path == "x.zarr" && format == ir::FileFormat::kZarr)
      return ir::FileInfo{DType::kInt16, {100, 4}, {30, 3}, 0, false, "zarr"};
    if (path == "x.h5" && dataset == "/a") return ir::FileInfo{DType::kFloat64, {5}, {}, 0, false, "hdf5"};
    return error(Errc::kNotFound, "no such file");
  };
  World world({.inspect = info});
  const Array x = world.session.load_npy("x.npy", {.block = {25, 4}});
  CHECK(x.dtype() == DType::kFloat32);
  CHECK(x.grid().block_count() == 4);
  const ArrayError e = thrown([&] { world.session.load_npy("y.npy"); });
  CHECK(e.code() == Errc::kNotFound);
  CHECK(says(e, "'y.npy'"));
  CHECK(thrown([&] { World().session.load_npy("x.npy"); }).code() == Errc::kUnsupported);

  const Array z = world.session.read_zarr("x.zarr");
  CHECK(z.dtype() == DType::kInt16);
  CHECK(z.grid().max_block_shape() == Shape{100, 4});  // one block: whole chunks, cut at the array's end
  CHECK(world.session.read_zarr("x.zarr", {.block = {7, 4}}).grid().block_count() == 15);
  CHECK(world.session.read_hdf5("x.h5", "/a").shape() == Shape{5});
  CHECK(thrown([&] { world.session.read_hdf5("x.h5", "/b"); }).code() == Errc::kNotFound);
  CHECK(thrown([&] { World().session.read_zarr("x.zarr"); }).code() == Errc::kUnsupported);
  CHECK(world.session.read_raw("x.bin", DType::kInt32, {10, 3}, {.offset = 7}).shape() == Shape{10, 3});
  CHECK(thrown([&] { world.session.read_raw("x.bin", DType::kInt32, {10}, {.offset = -1}); }).code() ==
        Errc::kOutOfRange);
  CHECK(thrown([&] {
          world.session.read_raw("x.bin", DType::kInt32, {10}, {.block = {2, 2}});
        }).code() == Errc::kShapeMismatch);

  const Array cut = world.session.zeros({100, 6}, {.block = {20, 6}});
  const ArrayError uneven = thrown([&] { cut.write_zarr("c.zarr", {.chunk = {15, 3}}); });
  CHECK(uneven.code() == Errc::kInvalidArgument);
  CHECK(says(uneven, "reblock((30, 6)) first"));
  CHECK(thrown([&] {
          cut.write_zarr("c.zarr", {.version = 2, .shard = {20, 6}});
        }).code() == Errc::kInvalidArgument);
  CHECK(thrown([&] {
          cut.write_zarr("c.zarr", {.chunk = {10, 3}, .shard = {15, 3}});
        }).code() == Errc::kInvalidArgument);
  CHECK(thrown([&] { cut.write_zarr("c.zarr", {.chunk = {10}}); }).code() == Errc::kInvalidArgument);
  CHECK(thrown([&] { cut.write_zarr("c.zarr", {.codec = "lzma"}); }).code() == Errc::kInvalidArgument);
  CHECK(thrown([&] { cut.write_zarr("c.zarr", {.version = 1}); }).code() == Errc::kInvalidArgument);
  CHECK(thrown([&] { cut.astype(DType::kBFloat16).write_zarr("c.zarr"); }).code() == Errc::kUnsupported);
  CHECK(world.fake.all<msg::Submit>().empty());

  Future a = x.save_npy("a.npy"), b = x.save_npy("b.npy");
  const auto all = world.fake.all<msg::Submit>();
  REQUIRE(all.size() == 2);
  // Read, begin the file, write, and the task that names the file when all is written.
  REQUIRE(all[0].ops.size() == 4);
  CHECK(all[0].ops[0].get<ir::NpyAttrs>().fortran_order);
  const ir::Op &create = all[0].ops[1], &write = all[0].ops[2], &commit = all[0].ops[3];
  CHECK(create.get<ir::CallAttrs>().kernel == "tilewise.create_npy");
  CHECK(create.get<ir::CallAttrs>().params.ends_with("\na.npy"));
  CHECK(write.operands[1].array == create.outputs[0].array);
  CHECK(write.get<ir::NpyAttrs>().path == "a.npy");
  CHECK(write.get<ir::NpyAttrs>().token != all[1].ops[2].get<ir::NpyAttrs>().token);
  CHECK(commit.get<ir::CallAttrs>().kernel == "tilewise.commit_npy");
  CHECK(commit.get<ir::CallAttrs>().params == create.get<ir::CallAttrs>().params);
  CHECK(commit.operands[1].array == create.outputs[0].array);
  world.fake.reply(all[0]);
  CHECK(!a.ready());
  world.fake.done(all[0]);
  a.wait();
  CHECK(!b.ready());
}

}  // namespace
}  // namespace tilewise::client
