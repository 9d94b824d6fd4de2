// What can never fit, from closed-form bounds: found before anything runs, and told as figures.
#pragma once
#include "state.h"

#include <tilewise/ir/geometry.h>

#include <optional>
#include <span>

namespace tilewise::scheduler {

struct Draft;

// What lies below a device's memory and can take its blocks: what all devices of its worker may have there together.
std::int64_t below_bytes(const State& s, const Device& device);

// A device, if there is one, that cannot hold what one step of its tasks has to have there at once: what it writes, and what it
// reads of that device's own and of other hosts' blocks (others may be read in place). Looks at three tasks of each device, and
// only where the largest could be too large for the smallest device.
std::optional<msg::NeedAccount> step_too_large(const State& s, const ir::Op& op, const ir::Geometry& geometry,
                                               std::span<const place::Input> inputs,
                                               const ir::Placement& placement);

// Devices, if there are such, that are to hold more of the draft's results than they and what lies below them have room for:
// one, or those of one worker.
std::optional<msg::NeedAccount> holds_too_much(const State& s, const Draft& draft);

// For people: "4096 bytes, where 1024 and 512 below are".
std::string text_of(const msg::NeedAccount& need);

}  // namespace tilewise::scheduler
