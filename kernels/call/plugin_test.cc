#include <doctest/doctest.h>
#include <tilewise/kernels/plugin_call.h>

#include <cstdio>
#include <cstring>
#include <fstream>

using namespace tilewise;
using namespace tilewise::kernels;

namespace {

int add_params(const tilewise_call_v1* call) {
  double by = 0;
  if (call->params_bytes != sizeof(by)) {
    std::snprintf(call->message, call->message_bytes, "wants one float64");
    return 7;
  }
  std::memcpy(&by, call->params, sizeof(by));
  const tilewise_view_v1 &in = call->inputs[0], &out = call->outputs[0];
  for (std::int64_t i = 0; i < in.shape[0]; ++i) {
    static_cast<double*>(out.data)[i] =
        static_cast<const double*>(in.data)[i * in.strides[0]] + by + static_cast<double>(in.lo[0]);
  }
  return 0;
}

int only_doubles(const std::int32_t* in, std::int32_t n, const std::int32_t*, std::int32_t, char* message,
                 std::size_t bytes) {
  for (int i = 0; i < n; ++i) {
    if (in[i] != TILEWISE_FLOAT64) {
      std::snprintf(message, bytes, "operand %d is not float64", i);
      return 1;
    }
  }
  return 0;
}

constexpr tilewise_kernel_v1 kKernels[] = {{"test.add", add_params, nullptr, 1, 1, only_doubles}};
constexpr tilewise_plugin_v1 kPlugin = {TILEWISE_PLUGIN_ABI, "test", "3", 1, kKernels};

struct Fixture {
  ir::Op op;
  KernelCall call;
  double in[8] = {0, 1, 2, 3, 4, 5, 6, 7}, out[4] = {};
  explicit Fixture(std::string kernel, double by = 0.5) {
    ir::CallAttrs attrs;
    attrs.kernel = std::move(kernel);
    attrs.params.assign(reinterpret_cast<const char*>(&by), sizeof(by));
    op.kind = ir::OpKind::kCall;
    op.attrs = attrs;
    op.operands.resize(1);
    op.outputs.resize(1);
    call.op = &op;
    call.box = {{4}, {8}};
    call.space_shape = {16};
    call.inputs.push_back({in, ir::DType::kFloat64, {4}, {2}});
    call.input_boxes.push_back({{4}, {8}});
    call.outputs.push_back({out, ir::DType::kFloat64, {4}, {1}});
    call.output_boxes.push_back({{4}, {8}});
  }
};

}  // namespace

TEST_CASE("a call reaches its kernel with views, parameters and positions") {
  PluginTable table;
  REQUIRE((table.add(kPlugin)).has_value());
  Fixture f("test.add");
  REQUIRE((make_host_kernels(&table)->run(f.call)).has_value());
  for (int i = 0; i < 4; ++i) CHECK(f.out[i] == 2 * i + 0.5 + 4);
}

TEST_CASE("failures are typed and carry the kernel's message") {
  PluginTable table;
  REQUIRE((table.add(kPlugin)).has_value());
  const auto set = make_host_kernels(&table);
  Fixture f("test.add");
  auto attrs = f.op.get<ir::CallAttrs>();
  attrs.params = "x";
  f.op.attrs = attrs;
  const auto status = set->run(f.call);
  REQUIRE(status.has_error());
  CHECK(status.error().code == Errc::kTaskFailed);
  CHECK(status.error().message == "kernel test.add: wants one float64");

  Fixture g("test.add");
  g.call.inputs[0].dtype = ir::DType::kInt64;
  CHECK(set->run(g.call).error().message == "kernel test.add: operand 0 is not float64");

  CHECK(set->supports(Fixture("test.missing").op).error().code == Errc::kNotFound);
  Fixture h("test.add");
  attrs = h.op.get<ir::CallAttrs>();
  attrs.version = "4";
  h.op.attrs = attrs;
  CHECK(set->supports(h.op).error().code == Errc::kVersionMismatch);
  h.op.operands.resize(2);
  attrs.version = "3";
  h.op.attrs = attrs;
  CHECK(set->supports(h.op).error().code == Errc::kShapeMismatch);
  CHECK(plugin_kernel(Fixture("test.add").op, &table, PluginTarget::kCuda).error().code ==
        Errc::kUnsupported);
}

TEST_CASE("a table refuses what it cannot trust and stays as it was") {
  PluginTable table;
  REQUIRE((table.add(kPlugin)).has_value());
  CHECK(table.add(kPlugin).error().code == Errc::kAlreadyExists);
  tilewise_plugin_v1 other = kPlugin;
  other.name = "other";  // same kernel name
  CHECK(table.add(other).error().code == Errc::kAlreadyExists);
  other.abi = 9;
  CHECK(table.add(other).error().code == Errc::kVersionMismatch);
  other = kPlugin;
  other.name = "";
  CHECK(table.add(other).error().code == Errc::kInvalidArgument);
  CHECK(table.load("no such file.so").error().code == Errc::kNotFound);
  const char* junk = "plugin_test_junk.so";
  std::ofstream(junk) << "not a shared object";
  CHECK(table.load(junk).error().code == Errc::kUnsupported);
  std::remove(junk);
  REQUIRE(table.entries().size() == 1);
  CHECK(table.entries()[0].kernels == std::vector<std::string>{"test.add"});
  CHECK(table.version_of("test.add") == "3");
}

TEST_CASE("a shared object is loaded, hashed and called") {
  PluginTable table;
  REQUIRE((table.load(TILEWISE_TEST_PLUGIN)).has_value());
  REQUIRE(table.entries().size() == 1);
  CHECK(table.entries()[0].name == "sample");
  CHECK(table.entries()[0].hash != 0);
  CHECK(table.load(TILEWISE_TEST_PLUGIN).error().code == Errc::kAlreadyExists);
  Fixture f("sample.triple");
  REQUIRE((make_host_kernels(&table)->run(f.call)).has_value());
  for (int i = 0; i < 4; ++i) CHECK(f.out[i] == 6 * i);
}

TEST_CASE("built-in kernels") {
  PluginTable table;
  REQUIRE((table.add(builtin_kernels())).has_value());
  const auto set = make_host_kernels(&table);
  std::int64_t iterations = 1;
  double as_bytes;
  std::memcpy(&as_bytes, &iterations, sizeof(as_bytes));
  Fixture f("tilewise.compute", as_bytes);
  REQUIRE((set->run(f.call)).has_value());
  CHECK(f.out[3] == 1.2345 * 1.2345 + 1.2345);
  Fixture z("tilewise.zero");
  REQUIRE((set->run(z.call)).has_value());
  CHECK(z.out[2] == 0);
  Fixture n("tilewise.noop");
  n.out[0] = 5;
  REQUIRE((set->run(n.call)).has_value());
  CHECK(n.out[0] == 5);
}
