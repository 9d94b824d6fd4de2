// Arrays in files of other formats than .npy, on every form of cluster.
#include "clusters.h"
#include "temp_folder.h"

#include <doctest/doctest.h>
#include <filesystem>
#include <fstream>
#include <numeric>

using namespace tilewise;
using testing::TempFolder;

namespace {

ArrayError error_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const ArrayError& e) {
    return e;
  }
  return ArrayError(Errc::kOk, "nothing was thrown");
}

}  // namespace

TEST_CASE("Zarr arrays: what workers write they read, in other blocks, of either version, sharded or not") {
  for (const Form& form : kForms) {
    CAPTURE(form.name);
    const TempFolder folder;
    TestCluster cluster(form);
    Session& s = cluster.session;
    const Array x = s.random.normal({50, 70}, {.seed = 3, .block = {20, 14}});
    const std::vector<double> values = x.get<double>();
    const std::vector<ZarrOptions> ways = {{},
                                           {.version = 2, .codec = "blosc", .level = 5},
                                           {.chunk = {5, 7}, .shard = {10, 14}, .codec = "gzip", .level = 1},
                                           {.version = 2, .chunk = {4, 2}, .codec = "none"}};
    for (std::size_t i = 0; i < ways.size(); ++i) {
      CAPTURE(i);
      const std::string path = folder / ("a" + std::to_string(i));
      x.write_zarr(path, ways[i]).wait();
      CHECK(s.read_zarr(path).get<double>() == values);
      CHECK(s.read_zarr(path, {.block = {9, 33}}).get<double>() == values);
    }
    CHECK(folder.files() == ways.size());
    const std::string path = folder / "a0";
    x.T().write_zarr(path).wait();  // a view, and in the place of an older one
    CHECK(s.read_zarr(path).T().get<double>() == values);
    s.zeros({0, 3}).write_zarr(folder / "none").wait();
    CHECK(s.read_zarr(folder / "none").get<double>().empty());
    s.full({}, 2.5).write_zarr(folder / "point").wait();
    CHECK(s.read_zarr(folder / "point").item<double>() == 2.5);
  }
}

TEST_CASE("raw files start where they are told to and are refused where they end too early") {
  const TempFolder folder;
  TestCluster cluster(kForms[0]);
  Session& s = cluster.session;
  const std::string path = folder / "x.bin";
  std::vector<std::int32_t> values(90'000);
  std::iota(values.begin(), values.end(), -5);
  {
    std::ofstream out(path, std::ios::binary);
    out << std::string(70'001, 'h');  // any offset, not only what a header could have
    out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * 4));
  }
  const Array x = s.read_raw(path, DType::kInt32, {300, 300}, {.offset = 70'001, .block = {70, 300}});
  CHECK(x.get<std::int32_t>() == values);
  const ArrayError e = error_of([&] {
    s.read_raw(path, DType::kInt32, {301, 300}, {.offset = 70'001}).get<std::int32_t>();
  });
  CHECK(e.code() == Errc::kCorruptData);
  CHECK(std::string(e.what()).find(path) != std::string::npos);
}

TEST_CASE("an array of a file is of the version that was looked at, or an error that names it") {
  for (const Form& form : kForms) {
    CAPTURE(form.name);
    const TempFolder folder;
    TestCluster cluster(form);
    Session& s = cluster.session;
    const auto changed = [](const Array& x, const std::string& path) {
      const ArrayError e = error_of([&] { x.get<double>(); });
      CHECK(e.code() == Errc::kNotFound);
      CHECK_MESSAGE(std::string(e.what()).find(path) != std::string::npos, std::string(e.what()));
      CHECK_MESSAGE(std::string(e.what()).find("has been changed since") != std::string::npos,
                    std::string(e.what()));
    };
    const std::string npy = folder / "x.npy", zarr = folder / "x.zarr", raw = folder / "x.bin";
    // As large, and written as soon as it was read: only its time tells.
    const Array one = s.full({3, 4}, 1.0, {.block = {2, 4}});
    one.save_npy(npy).wait();
    const Array read = s.load_npy(npy), kept = (read + 0.0);
    CHECK(read.get<double>() == std::vector<double>(12, 1.0));
    Array held = s.load_npy(npy);
    held.persist().wait();
    (read + 1.0).save_npy(npy).wait();
    changed(read, npy);
    changed(kept, npy);
    CHECK(held.get<double>() == std::vector<double>(12, 1.0));
    CHECK(s.load_npy(npy).get<double>() == std::vector<double>(12, 2.0));

    for (const int version : {2, 3}) {
      one.write_zarr(zarr, {.version = version}).wait();
      const Array old = s.read_zarr(zarr);
      (one + 1.0).write_zarr(zarr, {.version = version}).wait();
      changed(old, zarr);
      CHECK(s.read_zarr(zarr).get<double>() == std::vector<double>(12, 2.0));
      std::filesystem::remove_all(zarr);
    }

    const auto write = [&](double value) {
      const std::vector<double> values(12, value);
      std::ofstream(raw, std::ios::binary)
          .write(reinterpret_cast<const char*>(values.data()),
                 static_cast<std::streamsize>(12 * sizeof value));
    };
    write(1);
    const Array bytes = s.read_raw(raw, DType::kFloat64, {3, 4});
    CHECK(bytes.get<double>() == std::vector<double>(12, 1.0));
    write(2);  // into the same file
    changed(bytes, raw);
    CHECK(s.read_raw(raw, DType::kFloat64, {3, 4}).get<double>() == std::vector<double>(12, 2.0));
  }
}

TEST_CASE("Zarr: mistakes and damage are typed errors, and nothing is left behind") {
  const TempFolder folder;
  TestCluster cluster(kForms[0]);
  Session& s = cluster.session;
  const Array x = s.random.uniform({40, 40}, {.seed = 3, .block = {10, 10}});
  CHECK(error_of([&] { s.read_zarr(folder / "missing"); }).code() == Errc::kNotFound);
  CHECK(error_of([&] { x.write_zarr(folder / "a", {.chunk = {8, 8}}); }).code() == Errc::kInvalidArgument);
  std::filesystem::create_directory(folder / "mine");
  std::ofstream(folder / "mine/notes") << "kept";
  const ArrayError taken = error_of([&] { x.write_zarr(folder / "mine").wait(); });
  CHECK(taken.code() == Errc::kAlreadyExists);
  CHECK(std::filesystem::exists(folder / "mine/notes"));
  CHECK(error_of([&] { x.write_zarr(folder / "no/such/place").wait(); }).code() == Errc::kNotFound);
  CHECK(error_of([&] { x.write_zarr(folder / "level", {.codec = "gzip", .level = 40}).wait(); }).code() ==
        Errc::kInvalidArgument);
  x.write_zarr(folder / "a").wait();
  const Array back = s.read_zarr(folder / "a", {.block = {10, 10}});
  std::ofstream(folder / "a/c/2/3") << "damaged";
  CHECK(back.slice(0, 0, 20).get<double>() == x.slice(0, 0, 20).get<double>());  // the others are fine
  const ArrayError damaged = error_of([&] { back.get<double>(); });
  CHECK(damaged.code() == Errc::kCorruptData);
  CHECK(std::string(damaged.what()).find("a/c/2/3") != std::string::npos);
  CHECK(folder.files() == 2);
}
