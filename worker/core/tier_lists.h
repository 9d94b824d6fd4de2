// Lists of a worker whose devices spill: everything that is begun is ended, until nothing is.
#pragma once
#include "lists.h"

#include <array>
#include <functional>
#include <set>

namespace tilewise::worker::test {

constexpr std::int64_t kBlock = 4096;  // bytes; so many a place below, too

inline ir::Op blocks_of(std::uint64_t array, std::int64_t blocks) {
  return source(array, blocks, kBlock / 8);
}

struct TierLists {
  explicit TierLists(Options options) : lists(std::move(options)) {}
  virtual ~TierLists() = default;

  void log(std::vector<msg::LogEntry> entries) {
    take(lists.log(std::move(entries)));
    run();
  }
  void run() {
    while (launched != done || !open.empty()) {
      std::vector<Event> ends;
      for (const TierIo& io : std::exchange(open, {}))
        ends.push_back(IoDone{io.io, {fails ? fails(io) : failing, "injected"}});
      for (std::uint16_t d = 0; d < done.size(); ++d)
        if (launched[d] > done[d]) ends.push_back(StreamCompleted{d, 0, ++done[d]});
      take(lists.step(std::move(ends)));
    }
  }
  void take(const Actions& actions) {
    for (const Launch& launch : actions.launches) {
      ++launched[launch.device];
      saw(launch);
    }
    for (const Vacated& place : actions.vacated) {
      const auto meets = [&](std::int64_t at) { return at >= place.at && at < place.at + place.bytes; };
      for (const TierIo& io : open) CHECK_FALSE((io.tier == Tier::kDisk && meets(io.at)));
      std::erase_if(on_disk, meets);
    }
    for (const TierIo& io : actions.ios) {
      if (io.write && io.tier == Tier::kDisk) on_disk.insert(io.at);
      saw(io);
      open.push_back(io);
      all.push_back(io);
    }
  }
  msg::DeviceStats stats(std::size_t device = 0) const { return lists.core->device_stats()[device]; }

  Lists lists;
  std::array<std::uint64_t, 2> launched{}, done{};  // by device
  std::vector<TierIo> open, all;
  std::set<std::int64_t> on_disk;  // places that are not vacated
  Errc failing = Errc::kOk;
  std::function<Errc(const TierIo&)> fails;  // instead

 private:
  virtual void saw(const Launch&) {}
  virtual void saw(const TierIo&) {}
};

}  // namespace tilewise::worker::test
