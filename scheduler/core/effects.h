// Tasks that are run for what they do: a kernel whose results nobody takes, the last task of a save. Nobody would miss them, so after a loss
// they are looked for here.
#pragma once
#include "answers.h"
#include "state.h"

namespace tilewise::scheduler {

// This point of a planned op, or of a layer of it (`op`), which is the device's `ordinal`th, is run for its effect alone, and it is not
// known that it is over. (Of who died it is only known how many were over when it told so last.)
bool owes_effect(const State& s, const Answers& answers, const OpRecord& head, const OpRecord& op,
                 DeviceId device, std::int64_t ordinal, std::int64_t point);

// The op is a step of a save (ir/saving.h). Any of them may be run again: that changes nothing where it had been done.
bool is_of_save(const OpRecord& op);

}  // namespace tilewise::scheduler
