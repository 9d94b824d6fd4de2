// Layers: ops that make some blocks of an earlier op's arrays, or say where they are now (docs/design/recovery.md).
#pragma once
#include "state.h"

#include <string>
#include <vector>

namespace tilewise::scheduler {

enum class Form {
  kAgain,     // what was lost is made again
  kAlone,     // the same, while nothing else runs on the worker
  kDoomed,    // it fails instead of running
  kKept,      // it is elsewhere
  kProvided,  // a client's array is to be known again
  kMoved      // what has not been begun is made by others
};

// Puts a layer on the head and at the end of `plans`. `runs`: of all forms but kProvided.
void add_layer(State& s, std::vector<msg::Plan>& plans, OpRecord& head, std::vector<ir::Run> runs, Form form);

// The record that stands for the point, or none.
const OpRecord* maker_of(const State& s, const OpRecord& head, const ir::Index& point);

// Devices of one class make the same bits.
const std::string& numeric_class_of(const State& s, DeviceId id);

}  // namespace tilewise::scheduler
