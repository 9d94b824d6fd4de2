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

}  // namespace tilewise::place
