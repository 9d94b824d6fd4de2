// Devices with twice the memory that their part of the data takes, and no disk: what sorts, counts, transforms or cuts anew holds
// no more than blocks of the tasks at hand beside the operand and the result. Which task asks first is up to threads: each is
// run several times.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <complex>

#include "clusters.h"

using namespace tilewise;

namespace {

using Doubles = std::vector<double>;
using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kBlock = 8192;  // elements
constexpr std::int64_t kBlocks = 32;
constexpr std::int64_t kLength = kBlock * kBlocks;
constexpr int kRounds = 4;

// Two workers of two devices each: a device's share is of `shares` arrays of kLength elements of 8 bytes. Each has memory for its share and for
// `task_blocks` blocks of the tasks that run.
Form form_for(int shares, std::int64_t task_blocks) {
  return {"twice the share",
          {.workers = 2,
           .host_devices = 2,
           .use_cuda = false,
           .memory_bytes = (shares * kBlocks / 4 + task_blocks) * kBlock * 8,
           .spin_ns = 0}};
}

}  // namespace

TEST_CASE("sorting and different elements within twice the share") {
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    TestCluster cluster(form_for(2, 6));  // the operand and one result
    const Session& s = cluster.session;
    const Array x = s.random.normal({kLength}, {.seed = 3, .block = {kBlock}});
    const Doubles plain = x.get<double>();
    Doubles want = plain;
    std::ranges::sort(want);
    CHECK(sort(x).get<double>() == want);
    CHECK(unique_values(x).get<double>() == want);
    // Few different ones: most of what is moved goes into one block.
    const Array few = floor(x * 2.0);
    Doubles whole(plain.size());
    std::ranges::transform(plain, whole.begin(), [](double v) { return std::floor(v * 2); });
    Doubles different = whole;
    std::ranges::sort(different);
    different.erase(std::ranges::unique(different).begin(), different.end());
    CHECK(unique_values(few).get<double>() == different);
  }
}

TEST_CASE("how often, and which of the different elements, within twice the share of all that is moved") {
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    TestCluster cluster(form_for(4, 8));  // values and as many numbers, before and after
    const Session& s = cluster.session;
    const Array x = s.random.normal({kLength}, {.seed = 4, .block = {kBlock}});
    Doubles want = x.get<double>();
    std::ranges::sort(want);
    {
      const UniqueCounts found = unique_counts(x);
      CHECK(found.values.get<double>() == want);
      CHECK(found.counts.get<std::int64_t>() == Ints(want.size(), 1));
    }
    {
      UniqueInverse found = unique_inverse(x);
      found.values.persist().wait();
      found.inverse_indices.persist().wait();
      CHECK(all(take(found.values, found.inverse_indices) == x).item<bool>());
    }
  }
}

TEST_CASE("blocks are cut anew within twice the share") {
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    TestCluster cluster(form_for(2, 6));
    const Session& s = cluster.session;
    const std::int64_t rows = kBlocks, columns = kLength / rows;
    const Array wide = s.random.normal({rows, columns}, {.seed = 4, .block = {1, columns}});
    const Doubles plain = wide.get<double>();
    CHECK(wide.reblock({rows, columns / rows}).get<double>() == plain);
    CHECK(wide.reblock({5, 3000}).get<double>() == plain);
  }
}

TEST_CASE("Fourier transforms along cut axes within twice the share") {
  using Complex = std::complex<double>;
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    TestCluster cluster(form_for(4, 12));  // complex128: twice the bytes
    const Session& s = cluster.session;
    const std::int64_t rows = 64, columns = kLength / rows;
    const Array x = complex(s.random.normal({rows, columns}, {.seed = 1, .block = {8, columns / 4}}),
                            s.random.normal({rows, columns}, {.seed = 2, .block = {8, columns / 4}}));
    const std::vector<Complex> plain = x.get<Complex>();
    for (const std::int64_t axis : {0, 1}) {
      CAPTURE(axis);
      const Array back = fft::ifft(fft::fft(x, {}, static_cast<int>(axis)), {}, static_cast<int>(axis));
      const std::vector<Complex> got = back.get<Complex>();
      REQUIRE(got.size() == plain.size());
      double worst = 0;
      for (std::size_t i = 0; i < got.size(); ++i) worst = std::max(worst, std::abs(got[i] - plain[i]));
      CHECK(worst < 1e-12);
    }
  }
}
