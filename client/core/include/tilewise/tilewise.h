// Tilewise: NumPy-style programs on arrays cut into blocks and spread over many devices and hosts.
//
//   auto session = tilewise::connect();
//   auto x = session.random.normal({200'000, 28}, {.seed = 7, .block = {25'000, 28}});
//   auto p = 1.0 / (1.0 + tilewise::exp(-tilewise::matmul(x, session.zeros({28}))));
//   std::vector<double> grad = (tilewise::matmul(x.T(), p) / 200'000).get<double>();
#pragma once
#include <tilewise/account.h>
#include <tilewise/array.h>
#include <tilewise/dtypes.h>
#include <tilewise/error.h>
#include <tilewise/fft.h>
#include <tilewise/functions.h>
#include <tilewise/future.h>
#include <tilewise/kernel.h>
#include <tilewise/linalg.h>
#include <tilewise/local_blocks.h>
#include <tilewise/md_span.h>
#include <tilewise/out_of_memory.h>
#include <tilewise/session.h>
#include <tilewise/types.h>

namespace tilewise {

// A session with the scheduler at $TILEWISE_SCHEDULER, or, where that is not set, with a cluster embedded in this
// process. Defined by the library that brings both; throws ArrayError (kUnavailable, kUnauthenticated ...).
Session connect(SessionOptions options = {});

}  // namespace tilewise
