// What tests of placement ask: an op with its operands' arrays, where they are, and the devices there are.
#pragma once
#include <tilewise/place/place.h>

#include <doctest/doctest.h>

#include <optional>
#include <vector>

namespace tilewise::place {

struct Case {
  ir::Op op;
  std::vector<ir::SourceArray> arrays;
  std::vector<ir::Placement> placements;
  std::vector<Device> devices;
  std::vector<Input> inputs;
  std::optional<ir::Geometry> geometry;

  // Of this case as it is now; valid until the next one.
  Request request() {
    inputs.clear();
    for (std::size_t i = 0; i < arrays.size(); ++i) inputs.push_back({&arrays[i], &placements[i]});
    auto made = ir::Geometry::make(op, arrays);
    REQUIRE_MESSAGE(made.has_value(), made.error().message);
    geometry.emplace(std::move(*made));
    return {&op, &*geometry, inputs, devices, devices, {}};
  }
};

inline ir::Grid grid(const ir::Shape& shape, const ir::Shape& block) {
  return *ir::Grid::uniform(shape, block);
}

inline ir::TapeInstr load(int operand) {
  ir::TapeInstr i;
  i.op = ir::TapeOp::kLoad;
  i.imm_i = operand;
  return i;
}

inline std::vector<Device> hosts(int n, int per_host = 1) {
  std::vector<Device> out;
  for (int i = 0; i < n; ++i) {
    out.push_back({DeviceId{static_cast<std::uint32_t>(i + 1)}, kHostKind,
                   static_cast<std::uint32_t>(i / per_host), 0});
  }
  return out;
}
inline std::vector<DeviceId> ids(const std::vector<Device>& devices) {
  std::vector<DeviceId> out;
  for (const Device& d : devices) out.push_back(d.id);
  return out;
}
inline ir::Placement even(const ir::Grid& g, const std::vector<Device>& devices, bool cyclic = false) {
  const ir::PerDim<double> cost(static_cast<std::size_t>(g.rank()), 1.0);
  return tiled(g.counts(), ids(devices), cost, cyclic);
}

inline Case map_of(const ir::Grid& g, std::vector<std::pair<ir::Grid, ir::View>> operands, int devices) {
  Case c;
  c.devices = hosts(devices);
  c.op.kind = ir::OpKind::kMap;
  c.op.space = g;
  c.op.outputs = {{100, ir::DType::kFloat64, g}};
  ir::Tape tape;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    c.op.operands.push_back({i + 1, operands[i].second});
    c.arrays.push_back({ir::DType::kFloat64, operands[i].first});
    c.placements.push_back(even(operands[i].first, c.devices));
    tape.code.push_back(load(static_cast<int>(i)));
  }
  if (tape.code.empty()) tape.code.push_back({});
  if (operands.size() == 2) {
    ir::TapeInstr add;
    add.op = ir::TapeOp::kAdd, add.a = 0, add.b = 1;
    tape.code.push_back(add);
  }
  c.op.attrs = ir::MapAttrs{tape};
  return c;
}

// A device of ratio r takes r times as long; of one family, measured.
inline Speeds speeds_of(const std::vector<Device>& devices, const std::vector<double>& ratios,
                        std::string_view family) {
  Speeds speeds;
  for (std::size_t d = 0; d < devices.size(); ++d)
    speeds.learn(devices[d], family, static_cast<std::int64_t>(1e9 * ratios[d]), 1'000'000'000);
  return speeds;
}

}  // namespace tilewise::place
