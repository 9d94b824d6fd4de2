// What is known about how fast devices compute and bytes travel: measured where something has been measured, else a
// guess per kind of device and link. A plain value; deterministic.
#pragma once
#include <tilewise/base/id.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tilewise::place {

// Mirrors device::Kind on the wire; the scheduler never sees the device library.
constexpr std::uint8_t kHostKind = 0;
constexpr std::uint8_t kCudaKind = 1;

// How results go beside what is in a device's memory; the better the higher.
enum class Room : std::uint8_t {
  kNone,
  kLater,  // if nothing of earlier plans were there any more
  kTight,
  kAmple  // and a quarter of the memory is left for steps of later ops; or it is little of what is free
};

struct Device {
  DeviceId id;
  std::uint8_t kind = kHostKind;
  std::uint32_t host = 0;         // equal: memory may be shared, moving bytes is cheap
  std::int64_t load_bytes = 0;    // of live results placed there
  WorkerId worker = {};           // the process that owns it
  std::int32_t streams = 1;       // steps that run at once
  std::int64_t memory_bytes = 0;  // bound of its blocks; 0: not known
  // Of load_bytes, what will not make room while the op runs: results of earlier plans, held ones of this plan, and what it
  // or later ops of the plan read.
  std::int64_t stays_bytes = 0;
  std::int64_t earlier_bytes = 0;  // of stays_bytes: results of earlier plans
  bool spills = false;             // has a tier below its memory

  // For what an op makes, such that there is so much room; INT64_MAX where the bound is not known or kNone will do. Who spills
  // needs none beside it.
  std::int64_t headroom_bytes(Room room = Room::kTight) const;
  bool can_hold(std::int64_t block_bytes) const { return memory_bytes == 0 || block_bytes <= memory_bytes; }
  // For results of so many bytes, in blocks of no more than so many. Who spills has room for whatever it can hold a block of.
  Room room_for(double bytes, std::int64_t block_bytes) const;
};

// Larger blocks come to each other host once, and are passed on inside; while they come; and by a chain (worker::Options::tree_bytes and
// what follows it).
constexpr std::int64_t kTreeBytes = 64 << 10, kPartsBytes = 4 << 20, kChainBytes = 8 << 20;

struct LinkSpeed {
  double bytes_per_s = 0;  // 0: nothing has to move
  double latency_s = 0;
  bool mapped = false;  // read in place: takes no memory there
  double attention_s =
      0;  // of both processes for each block, however small: offers, grants, what is read and done
  // By transfers between these two processes, or by a probe of this class of links; else by others like it, or guessed.
  bool measured = false;

  // What is seen of so many bytes in so many blocks: transfers overlap, and a tenth of their latency is not hidden.
  double shown_s(double bytes, double blocks) const {
    constexpr double kShownLatency = 0.1;
    if (bytes_per_s == 0) return 0;
    return bytes / bytes_per_s + (kShownLatency * latency_s + attention_s) * blocks;
  }
};
// Before anything has been measured, by topology alone: same device, memory that can be read in place, same host, elsewhere.
LinkSpeed link_between(const Device& from, const Device& to);

// Devices that links do not tell apart: of one kind, on one host.
struct LinkEnd {
  std::uint32_t host = 0;
  std::uint8_t kind = kHostKind;
  template <class Archive> void archive(Archive& a) { a(host, kind); }
  friend auto operator<=>(const LinkEnd&, const LinkEnd&) = default;
};
// Links that are alike, in one direction: one of them is probed for all (docs/design/link-probes.md).
struct LinkClass {
  LinkEnd from, to;
  bool inside = false;  // of one process
  template <class Archive> void archive(Archive& a) { a(from, to, inside); }
  friend auto operator<=>(const LinkClass&, const LinkClass&) = default;
};
LinkClass class_of(const Device& from, const Device& to);

// What a probe has found out of a class of links. Integers, so that sums over classes can be taken back exactly.
struct ProbedLink {
  std::int64_t latency_ns = 0;  // of the smallest size; at least 1
  std::int64_t ns_per_mib = 0;  // of the largest, at least 1; 0: only the smallest was measured
  bool mapped = false;          // blocks are read in place
  template <class Archive> void archive(Archive& a) { a(latency_ns, ns_per_mib, mapped); }
};

// Ratios of measured time to the plain model's (ir/cost.h). What is old counts less: figures are of an exponential window of about
// ten seconds of steps of one family on a device (and of all its kind together), and of a second or 4,096 transfers of a link, so
// that who has become slow, or fast again, is seen.
class Speeds {
 public:
  // Cumulative figures of one device and family; less than before is ignored, and nonsense. What takes far longer than it took
  // before counts as a few times that: its process may have stood still, on all its streams. Beyond a second of each of these,
  // in one report or in several one after the other, it is slow.
  void learn(const Device& device, std::string_view family, std::int64_t busy_ns, std::int64_t model_ns);
  void forget(DeviceId device);
  // That device's; else that of its kind; else a guess.
  double ratio(const Device& device, std::string_view family) const;
  // Of each of them, for decisions: those that are about as fast as the fastest count as equal, the others are told apart in
  // coarse steps. What was measured is noisy, and must not cut every op another way.
  std::vector<double> coarse_ratios(std::span<const Device> devices, std::string_view family) const;
  // Something of this family has been measured on the device.
  bool measured(DeviceId device, std::string_view family) const;

  // Cumulative figures of blocks of one class of sizes, copied from one process to another; less than before, and what
  // cannot be, is ignored. `size_class`: 0 small (they tell the latency) to 2 large (the throughput). `way`: what other ways
  // it is like.
  enum class Way : std::uint8_t { kSameHost, kOtherHost };
  void learn_link(WorkerId from, WorkerId to, Way way, std::uint8_t size_class, std::int64_t transfers,
                  std::int64_t bytes, std::int64_t busy_ns);
  void forget_links(WorkerId process);
  // Instead of what an earlier probe of the class said; nonsense is ignored.
  void learn_probe(const LinkClass& links, const ProbedLink& found);
  void forget_probe(const LinkClass& links);
  // With the latency and throughput of, first that there is: blocks that were copied between the two processes; a probe of
  // their class of links; blocks copied between all processes that are on one host, or on two, as these are; probes of
  // classes alike in that and in kinds; topology. What is read in place keeps the guess, and so does what stays
  // within a process and was not probed.
  LinkSpeed link(const Device& from, const Device& to) const;
  // The same of what is copied though its memory could be read in place: what a host's first reader passes on.
  LinkSpeed copying(const Device& from, const Device& to) const;

  // Everything, as fields (for snapshots).
  template <class Archive> void archive(Archive& a) { a(links_, ways_, devices_, kinds_, probes_, alike_); }

 private:
  LinkSpeed measured(LinkSpeed guess, const Device& from, const Device& to) const;

  struct Sum {
    std::int64_t busy_ns = 0, model_ns = 0;                // all there has been, or as much as can be counted
    std::int64_t recent_busy_ns = 0, recent_model_ns = 0;  // in the window
    std::int64_t doubted_ns =
        0;                 // of reports since the last one that was believed whole; none after a restart
    double ratio() const;  // in the window; 0: not enough is known
    // What is to be believed of a report of a device of so many streams.
    std::int64_t believed(std::int64_t busy, std::int64_t model, std::int64_t streams);
    void count(std::int64_t busy, std::int64_t model);
    void add(std::int64_t busy, std::int64_t model);  // to the window
    template <class Archive> void archive(Archive& a) {
      a(busy_ns, model_ns, recent_busy_ns, recent_model_ns);
    }
  };
  using Families = std::map<std::string, Sum, std::less<>>;
  struct LinkSum {
    std::int64_t transfers = 0, bytes = 0, busy_ns = 0;                       // all there have been
    std::int64_t recent_transfers = 0, recent_bytes = 0, recent_busy_ns = 0;  // in the window
    void add(std::int64_t more_transfers, std::int64_t more_bytes, std::int64_t busy);
    template <class Archive> void archive(Archive& a) {
      a(transfers, bytes, busy_ns, recent_transfers, recent_bytes, recent_busy_ns);
    }
  };
  static constexpr std::size_t kSizes = 3;
  using LinkSums = std::array<LinkSum, kSizes>;
  static std::optional<double> bytes_per_s(const LinkSums& sums);
  static std::optional<double> latency_s(const LinkSums& sums);
  std::map<std::pair<WorkerId, WorkerId>, LinkSums> links_;
  std::array<LinkSums, 2> ways_;  // by Way: of all links there have been
  struct Alike {                  // sums over probed classes
    std::int64_t latencies = 0, latency_ns = 0, rates = 0, ns_per_mib = 0;
    void add(const ProbedLink& probed, std::int64_t sign);
    template <class Archive> void archive(Archive& a) { a(latencies, latency_ns, rates, ns_per_mib); }
  };
  static constexpr std::size_t kKinds = 2, kNearness = 3;  // in one process, on one host, elsewhere
  static std::size_t likeness(const LinkClass& links);
  std::map<LinkClass, ProbedLink> probes_;
  std::array<Alike, kNearness * kKinds * kKinds> alike_;
  std::map<DeviceId, Families> devices_;
  std::map<std::uint8_t, Families> kinds_;  // of all devices there have been
};

}  // namespace tilewise::place
