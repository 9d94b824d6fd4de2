// Pieces that several sessions have become one array, and blocks are read where they lie, on every form of cluster.
#include "clusters.h"

#include <doctest/doctest.h>
#include <numeric>
#include <thread>

using namespace tilewise;

TEST_CASE("sessions with pieces of any tiling have the same array, and what it was made from is let go") {
  for (const Form& form : kForms) {
    INFO(form.name);
    auto cluster = TestCluster::start(form.options);
    const std::int64_t rows = 60, columns = 30;
    std::vector<double> whole(rows * columns);
    std::iota(whole.begin(), whole.end(), 0.0);
    // A column for the first, the rest in two bands for the second, nothing for the third.
    const std::vector<std::vector<ir::Box>> dealt{
        {{{0, 0}, {60, 7}}}, {{{0, 7}, {25, 30}}, {{25, 7}, {60, 30}}}, {}};
    std::vector<std::vector<double>> got(dealt.size());
    std::vector<long> uses(dealt.size(), -1);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < dealt.size(); ++i) {
      threads.emplace_back([&, i] {
        const Session session =
            make_session(cluster->connect("s" + std::to_string(i)), {.timeout = std::chrono::seconds(60)});
        auto owner = std::make_shared<std::vector<std::vector<double>>>();
        std::vector<LocalBlock<double>> pieces;
        for (const ir::Box& box : dealt[i]) {
          std::vector<double>& values = owner->emplace_back();
          for (std::int64_t r = box.lo[0]; r < box.hi[0]; ++r) {
            for (std::int64_t c = box.lo[1]; c < box.hi[1]; ++c) values.push_back(whole[r * columns + c]);
          }
        }
        for (std::size_t p = 0; p < dealt[i].size(); ++p)
          pieces.push_back({dealt[i][p].lo, dealt[i][p].shape(), (*owner)[p], owner});
        Array x = session.from_local_blocks("x", {rows, columns}, pieces, {.processes = 3});
        pieces.clear();
        x.persist().wait();
        got[i] = (x * 2.0).get<double>();
        x = Array();  // a cluster in this process has kept the pieces where they are
        for (int n = 0; n < 1000 && owner.use_count() > 1; ++n)
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        uses[i] = owner.use_count();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (double& value : whole) value *= 2;
    for (std::size_t i = 0; i < dealt.size(); ++i) {
      CHECK(got[i] == whole);
      CHECK(uses[i] == 1);
    }
  }
}

TEST_CASE("blocks of a cluster in this process are read where they lie") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Array x = cluster.session.arange(0, 3000, 1, {.block = {700}});  // computed when it is asked for
    const AddressableBlocks blocks = cluster.session.addressable_blocks(x);
    CHECK(static_cast<std::int64_t>(blocks.size()) + blocks.elsewhere() == 5);
    if (form.options.spill_directory.empty()) CHECK(blocks.elsewhere() == 0);
    const std::byte* before = blocks.size() > 0 ? blocks.blocks()[0].bytes.data() : nullptr;
    CHECK(cluster.session.full({3000}, 7.0, {.block = {700}}).get<double>()[0] == 7.0);
    for (const AddressableBlock& block : blocks) {
      const auto values = block.values<std::int64_t>();
      REQUIRE(static_cast<std::int64_t>(values.size()) == block.box.volume());
      for (std::size_t i = 0; i < values.size(); ++i)
        CHECK(values[i] == block.box.lo[0] + static_cast<std::int64_t>(i));
    }
    if (before != nullptr) CHECK(blocks.blocks()[0].bytes.data() == before);
  }
}
