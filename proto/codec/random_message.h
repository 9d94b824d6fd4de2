// Random messages of every type, for tests: well-formed as the codec sees it, not as the verifier does.
#pragma once
#include <tilewise/base/prng.h>
#include <tilewise/msg/msg.h>

namespace tilewise::codec {

// Of the alternative number `index`.
msg::Message random_message(std::size_t index, Prng& prng);
ir::Op random_op(ir::OpKind kind, Prng& prng);

}  // namespace tilewise::codec
