// Devices with twice the memory that their part of the data takes, and no disk: what sorts, counts, transforms or cuts anew holds
// no more than blocks of the tasks at hand beside the operand and the result. Which task asks first is up to threads: each is
// run several times.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numeric>

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

// What is sorted is made for it, and gone when it has been read. Kept besides it takes a share more: elements are in pieces before they
// move and in windows behind (docs/design/data-dependent.md).
TEST_CASE("sorting within twice the share") {
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    TestCluster cluster(form_for(2, 6));  // all elements, before and after they move
    const Session& s = cluster.session;
    const auto x = [&] { return s.random.normal({kLength}, {.seed = 3, .block = {kBlock}}); };
    Doubles want = x().get<double>();
    std::ranges::sort(want);
    CHECK(sort(x()).get<double>() == want);
  }
}

TEST_CASE("sorting within twice the share where the operand is kept") {
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    TestCluster cluster(form_for(2, 6));
    const Session& s = cluster.session;
    const Array x = s.random.normal({kLength}, {.seed = 3, .block = {kBlock}});
    Doubles want = x.get<double>();
    std::ranges::sort(want);
    CHECK(sort(x).get<double>() == want);
    CHECK(sort(x).get<double>() == want);
  }
}

// A share more: what is sorted stays until all of it has been compared, and what is read in place by others does not move.
TEST_CASE("different elements within three times the share where the operand is kept") {
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    TestCluster cluster(form_for(3, 6));
    const Session& s = cluster.session;
    const Array x = s.random.normal({kLength}, {.seed = 3, .block = {kBlock}});
    const Doubles plain = x.get<double>();
    Doubles want = plain;
    std::ranges::sort(want);
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
    const auto x = [&] { return s.random.normal({kLength}, {.seed = 4, .block = {kBlock}}); };
    Doubles want = x().get<double>();
    std::ranges::sort(want);
    {
      const UniqueCounts found = unique_counts(x());
      CHECK(found.values.get<double>() == want);
      CHECK(found.counts.get<std::int64_t>() == Ints(want.size(), 1));
    }
    {
      UniqueInverse found = unique_inverse(x());
      found.values.persist().wait();
      found.inverse_indices.persist().wait();
      CHECK(all(take(found.values, found.inverse_indices) == x()).item<bool>());
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

// The bound of these: a device's share of the operand and of the result, 8 blocks each of 64 KiB, and six blocks for the tasks at hand (a
// device has two streams; a task has the block it writes and reads one at a time). Whole rows of the arrays below, half of one or all
// of it, would not fit.
TEST_CASE("few long rows and one are reshaped within twice the share") {
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    TestCluster cluster(form_for(2, 6));
    const Session& s = cluster.session;
    const Array line = s.random.normal({kLength}, {.seed = 3, .block = {kBlock}});
    const Doubles plain = line.get<double>();
    CHECK(line.reshape({2, kLength / 2}).get<double>() == plain);
    CHECK(line.reshape({1, 2, -1}).get<double>() == plain);
    const Array odd = s.random.normal({4, kLength / 4 - 3}, {.seed = 4, .block = {1, kBlock}});
    CHECK(odd.reshape({-1}).get<double>() == odd.get<double>());
    const Array blocks = s.random.normal({4, kLength / 4}, {.seed = 4, .block = {2, kBlock / 2}});
    CHECK(blocks.reshape({-1}).get<double>() == blocks.get<double>());
    CHECK(blocks.reshape({2, -1}).get<double>() == blocks.get<double>());
  }
}

TEST_CASE("copies side by side within the share of what they make") {
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    // A device's share of the operand, 8 blocks, of the result, 16, and six blocks for the tasks at hand.
    TestCluster cluster(form_for(3, 6));
    const Session& s = cluster.session;
    const Array x = s.random.normal({kLength}, {.seed = 3, .block = {kBlock}});
    Doubles want = x.get<double>();
    const std::int64_t n = static_cast<std::int64_t>(want.size());
    want.resize(static_cast<std::size_t>(2 * n));
    std::copy_n(want.begin(), n, want.begin() + n);
    const Array twice = tile(x, {2});
    CHECK(twice.grid() == *Grid::uniform({2 * n}, {kBlock}));
    CHECK(twice.get<double>() == want);
    // Elements twice in a row: a reshape of what repeats.
    Doubles doubled;
    for (std::int64_t i = 0; i < n; ++i) doubled.insert(doubled.end(), 2, want[static_cast<std::size_t>(i)]);
    CHECK(repeat(x, 2, 0).get<double>() == doubled);
  }
}

TEST_CASE("a product over all axes within the share of what is multiplied") {
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    // Shares of two operands and of both as lines, 8 blocks each, and six for the tasks at hand; the result is one element.
    TestCluster cluster(form_for(4, 6));
    const Session& s = cluster.session;
    const std::int64_t rows = 16, columns = kLength / rows;
    const Shape block{4, kBlock / 4};
    const Array x = floor(s.random.uniform({rows, columns}, {.seed = 3, .block = block}) * 8.0),
                y = floor(s.random.uniform({rows, columns}, {.seed = 4, .block = block}) * 8.0);
    const double want = sum(x * y).item<double>();  // of integers: exact in any order
    CHECK(tensordot(x, y, 2).item<double>() == want);
    CHECK(tensordot(x, y, {1, 0}, {1, 0}).item<double>() == want);
  }
}

TEST_CASE("sorted positions and the largest elements within the share of values and positions") {
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    // Values and as many positions, before and after an exchange of two blocks: four shares of 8 blocks, and eight for the tasks at hand.
    TestCluster cluster(form_for(4, 8));
    const Session& s = cluster.session;
    const auto x = [&] { return s.random.normal({kLength}, {.seed = 4, .block = {kBlock}}); };
    const Doubles plain = x().get<double>();
    std::vector<std::int64_t> order(plain.size());
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::ranges::stable_sort(order, [&](std::int64_t a, std::int64_t b) {
      return plain[static_cast<std::size_t>(a)] < plain[static_cast<std::size_t>(b)];
    });
    CHECK(argsort(x()).get<std::int64_t>() == order);
    constexpr std::int64_t kMost = 1000;
    const auto [values, indices] = topk(x(), kMost);
    Doubles best;
    for (std::int64_t i = 0; i < kMost; ++i)
      best.push_back(plain[static_cast<std::size_t>(order[order.size() - 1 - static_cast<std::size_t>(i)])]);
    CHECK(values.get<double>() == best);
    CHECK(take(x(), indices).get<double>() == best);
  }
}
