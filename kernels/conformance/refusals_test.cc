// What built-in kernels refuse: the host's and the reference's, in the same words. And which have a reference at all.
#include <tilewise/ir/linalg.h>
#include <tilewise/kernels/plugin.h>

#include <set>

#include "call/call.h"
#include "conformance/calls.h"

namespace tilewise::kernels::conformance {
namespace {

using ir::DType;

struct Sets {
  Sets() {
    REQUIRE(table.add(builtin_kernels()).has_value());
    host = make_host_kernels(&table);
    reference = make_reference_kernels(&table);
  }
  PluginTable table;
  std::unique_ptr<KernelSet> host, reference;
};

Status run_with(const KernelSet& set, Step step) {
  KernelCall call;
  call.op = &step.op;
  call.box = step.box;
  call.space_shape = step.space;
  call.step = step.step;
  call.steps = step.steps;
  const auto view = [](Array& a) {
    return TensorView{
        a.absent ? nullptr : a.bytes.data() + a.offset * static_cast<std::int64_t>(ir::size_of(a.dtype)),
        a.dtype, a.shape, a.strides};
  };
  for (Array& a : step.inputs)
    call.inputs.push_back(view(a)), call.input_boxes.push_back(ir::box_of(a.shape));
  for (Array& a : step.outputs)
    call.outputs.push_back(view(a)), call.output_boxes.push_back(ir::box_of(a.shape));
  std::copy(step.output_boxes.begin(), step.output_boxes.end(), call.output_boxes.begin());
  return set.run(call);
}

void check_refused(const Sets& sets, const Step& step, Errc code, const std::string& words) {
  for (const KernelSet* set : {sets.host.get(), sets.reference.get()}) {
    INFO((set == sets.host.get() ? "host" : "reference"));
    const Status status = run_with(*set, step);
    REQUIRE(status.has_error());
    CHECK(status.error().code == code);
    CHECK(status.error().message == words);
  }
}

Array listed(const std::vector<std::int64_t>& values) {
  Array a = Array::contiguous(DType::kInt64, {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i) a.set(static_cast<std::int64_t>(i), 0, values[i]);
  return a;
}

}  // namespace

TEST_CASE(
    "each built-in kernel has a plain version, but for those that have nothing to compute or no unique "
    "result") {
  const std::set<std::string> without = {
      "tilewise.noop",        "tilewise.zero",        "tilewise.compute",     "tilewise.eigh",
      "tilewise.svd",         "tilewise.create_npy",  "tilewise.create_zarr", "tilewise.commit_npy",
      "tilewise.discard_npy", "tilewise.read_stored", "tilewise.write_zarr",  "tilewise.commit_zarr",
      "tilewise.discard_zarr"};
  int with = 0;
  for (int i = 0; i < builtin_kernels().kernel_count; ++i) {
    const std::string name = builtin_kernels().kernels[i].name;
    CAPTURE(name);
    const bool file = without.contains(name) || name.find("checkpoint") != std::string::npos;
    const tilewise_kernel_fn plain = call::reference_of(name.c_str());
    const bool has_none = plain == nullptr, own = plain != builtin_kernels().kernels[i].host;
    CHECK(has_none == file);
    CHECK(own);
    with += plain != nullptr;
  }
  CHECK(with >= 18);
}

TEST_CASE("an index that is outside is named, by the host and the reference alike") {
  const Sets sets;
  const Array x = Array::contiguous(DType::kFloat64, {10});
  const auto out = [](const Array& at) { return std::vector{result(DType::kFloat64, at.shape)}; };
  for (const std::int64_t bad : {std::int64_t{10}, std::int64_t{-11}, INT64_MAX, INT64_MIN}) {
    const std::string words = "index " + std::to_string(bad) + " is out of bounds for axis 0 with size 10";
    const Array at = listed({3, -10, bad, 9});
    using namespace ir::builtin;
    check_refused(sets, call_step(Take{0, 10}, {4}, {at, x}, out(at)), Errc::kOutOfRange, words);
    check_refused(sets, call_step(TakeAlong{0, 10}, {4}, {at, x}, out(at)), Errc::kOutOfRange, words);
    check_refused(sets, call_step(WrapIndex{0, 10}, {4}, {at}, {result(DType::kInt64, {4})}),
                  Errc::kOutOfRange, words);
    check_refused(sets, call_step(Put{0, 10}, {10}, {x, at, Array::contiguous(DType::kFloat64, {4})}, out(x)),
                  Errc::kOutOfRange, words);
    // A step that does not bring the block still looks.
    Step absent = call_step(Take{0, 10}, {4}, {at, x}, out(at));
    absent.inputs[1].absent = true;
    check_refused(sets, absent, Errc::kOutOfRange, words);
  }
}

TEST_CASE("operands that do not fit are refused, by the host and the reference alike") {
  const Sets sets;
  using namespace ir::builtin;
  const Array x = Array::contiguous(DType::kFloat64, {4, 5}), line = Array::contiguous(DType::kFloat64, {5});
  const Array at = listed({1, 2}), narrow = Array::contiguous(DType::kInt32, {2});
  const Array mask = [] {
    Array m = Array::contiguous(DType::kBool, {4});
    for (const int e : {0, 2, 3}) m.set(e, 0, 1);
    return m;
  }();
  const Array half = Array::contiguous(DType::kFloat16, {5});
  const auto refused = [&](const Step& step, const std::string& words) {
    check_refused(sets, step, Errc::kTaskFailed, words);
  };
  refused(call_step(Take{0, 4}, {2, 5}, {narrow, x}, {result(DType::kFloat64, {2, 5})}),
          "wants int64 indices, one a result along the dimensions from 0 on");
  refused(call_step(Take{0, 4}, {2, 5}, {at, x}, {result(DType::kFloat32, {2, 5})}),
          "the array and the result differ in dtype or extents");
  refused(call_step(Take{0, 4}, {2, 6}, {at, x}, {result(DType::kFloat64, {2, 6})}),
          "the array and the result differ in dtype or extents");
  refused(call_step(TakeAlong{0, 5}, {2}, {narrow, line}, {result(DType::kFloat64, {2})}),
          "wants int64 indices of the result's shape, and axis 0");
  refused(call_step(WrapIndex{0, 5}, {2}, {narrow}, {result(DType::kInt64, {2})}),
          "wants int64 indices of the result's shape");
  refused(call_step(Put{1, 5}, {4, 5}, {x, at, x}, {result(DType::kFloat64, {4, 5})}),
          "wants a vector of int64 indices, one a value along axis 1");
  refused(call_step(Put{0, 4}, {4, 5}, {x, at, x}, {result(DType::kInt64, {4, 5})}),
          "the array, its values and the result differ in dtype or extents");
  refused(call_step(CountTrue{}, {1}, {line}, {result(DType::kInt64, {1})}),
          "wants a vector of bool, and gives one int64 a block");
  refused(call_step(Compress{}, {2}, {mask}, {result(DType::kInt64, {2})}),
          "more are true than were counted: 2");
  refused(call_step(Compress{}, {4}, {mask}, {result(DType::kInt64, {4})}), "3 are true, and 4 were counted");
  refused(call_step(Compress{}, {3}, {mask, line}, {result(DType::kFloat64, {3})}),
          "wants a vector of bool, and an array that is as long");
  refused(call_step(SearchSorted{}, {5}, {line, listed({1})}, {result(DType::kInt64, {5})}),
          "wants a sorted vector and values of one dtype");
  refused(call_step(SearchSorted{}, {5}, {line, line}, {result(DType::kInt8, {5})}), "gives int64");
  refused(call_step(Take{0, 4}, {2, 5}, {at, x},
                    {result(DType::kFloat64, {2, 5}), result(DType::kInt64, {3, 1})}),
          "keeps indices of one dimension, as int64");
  refused(call_step(Take{0, 4}, {2, 5}, {at, x},
                    {result(DType::kFloat64, {2, 5}), result(DType::kInt32, {2, 1})}),
          "keeps indices of one dimension, as int64");
  refused(call_step(SearchSorted{}, {5}, {half, half}, {result(DType::kInt64, {5})}),
          "dtype 11 has no order");
  refused(call_step(SortBlock{0}, {5}, {half}, {result(DType::kFloat16, {5})}), "dtype 11 has no order");
  refused(call_step(SortBlock{0}, {6}, {line}, {result(DType::kFloat64, {6})}),
          "the array and the result differ in dtype or extents");
  refused(
      call_step(SortBlock{0}, {5}, {line, at}, {result(DType::kFloat64, {5}), result(DType::kInt64, {5})}),
      "wants an int64 number for each element");
  // Numbers that nobody wants written are not read.
  Step unasked =
      call_step(SortBlock{0}, {5}, {line, listed({9, 8, 7, 6, 5})}, {result(DType::kFloat64, {5})});
  for (const KernelSet* set : {sets.host.get(), sets.reference.get()})
    CHECK(run_with(*set, unasked).has_value());
  const char* runs = "wants blocks of sorted runs, and of their numbers";
  refused(call_step(MergeRuns{0}, {4}, {line}, {result(DType::kFloat64, {4})}), runs);
  refused(call_step(MergeRuns{0}, {4}, {x}, {result(DType::kFloat32, {4})}), runs);
  refused(call_step(MergeRuns{0}, {4}, {x}, {result(DType::kFloat64, {4}), result(DType::kInt64, {4})}),
          runs);
  refused(call_step(MergeRuns{1}, {2, 4}, {x}, {result(DType::kFloat64, {2, 4})}), runs);
  const auto ranks = "the runs do not have the ranks that the result is made of";
  refused(call_step(MergeRuns{0}, {21}, {x}, {result(DType::kFloat64, {21})}), ranks);
  refused(call_step(MergeRuns{0, 0, {4, 5, 0, 5}, 0}, {4}, {x}, {result(DType::kFloat64, {4})}), ranks);
  Step later = call_step(MergeRuns{0, 0, {4, 4, 1, 4}, 12}, {12}, {x}, {result(DType::kFloat64, {12})});
  for (const std::int64_t at :
       {std::int64_t{24}, INT64_MAX - 20}) {  // -4 ranks come before, and more than there are numbers
    CAPTURE(at);
    later.output_boxes = {ir::box_of({12})};
    later.output_boxes[0].lo[0] += at, later.output_boxes[0].hi[0] += at;
    refused(later, ranks);
  }
  const Array row = result(DType::kFloat64, {1, 5});
  refused(call_step(SplitRuns{0, {4, 5, 0, 5}}, {5}, {x}, {result(DType::kFloat64, {5})}), runs);
  refused(call_step(SplitRuns{0, {4, 5, 0, 5}}, {1, 5}, {x}, {result(DType::kFloat32, {1, 5})}), runs);
  refused(call_step(SplitRuns{0, {4, 5, 0, 4}}, {1, 5}, {x}, {row}),
          "the runs do not have the ranks of the window");
  refused(call_step(SplitRuns{0, {4, 6, 0, 5}}, {1, 5}, {line, x, x, x}, {row}), runs);
  Step beyond = call_step(SplitRuns{0, {4, 9, 0, 5}}, {1, 5}, {x}, {row});
  beyond.output_boxes = {ir::box_of({1, 5})};
  beyond.output_boxes[0].lo[1] += 10,
      beyond.output_boxes[0].hi[1] += 10;  // window 2 begins with rank 18 of 20
  refused(beyond, "the runs do not have the ranks of the window");
  const char* dealt = "lines are not dealt to columns of such a length";
  refused(call_step(DealSorted{0, 0, 2, 1}, {1, 4}, {line}, {result(DType::kFloat64, {1, 4})}), dealt);
  refused(call_step(DealSorted{0, 0, 2, 2}, {1, 6}, {line}, {result(DType::kFloat64, {1, 6})}), dealt);
  refused(call_step(DealSorted{0, 0, 0, 1}, {1, 6}, {line}, {result(DType::kFloat64, {1, 6})}), dealt);
  refused(call_step(DealSorted{0, 0, 2, 1}, {6}, {line}, {result(DType::kFloat64, {6})}), dealt);
  const auto linalg = [&](const char* kernel, std::vector<Array> in, std::vector<Array> out) {
    const ir::Shape space = out[0].shape;
    check_refused(
        sets, kernel_step(kernel, ir::linalg::params("check").bytes(), space, std::move(in), std::move(out)),
        Errc::kShapeMismatch, "check: matrices that are not there or do not fit each other");
  };
  const auto matrix = [](std::int64_t m, std::int64_t n) { return result(DType::kFloat64, {m, n}); };
  linalg("tilewise.geqrf", {x}, {matrix(4, 5), matrix(3, 1), matrix(4, 5)});
  linalg("tilewise.geqrf", {x}, {matrix(4, 5), matrix(4, 1), matrix(4, 4)});
  linalg("tilewise.geqrf", {x}, {matrix(5, 4), matrix(4, 1), matrix(4, 5)});
  linalg("tilewise.ormqr", {x, matrix(3, 1), x}, {matrix(4, 5)});
  linalg("tilewise.ormqr", {x, matrix(4, 1), x}, {matrix(4, 4)});
  linalg("tilewise.ormqr", {x, matrix(4, 2), x}, {matrix(4, 5)});
  refused(call_step(Gamma{}, {5}, {}, {result(DType::kInt64, {5})}), "draws float32 and float64 only");
}

}  // namespace tilewise::kernels::conformance
