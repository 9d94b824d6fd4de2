// What a session sends again and again: programs that the scheduler keeps for it (msg/program.h). A program comes once: its
// digest is remembered. Twice: the scheduler is asked to keep it. From then on it is compared, op by op, and named.
#pragma once
#include <tilewise/msg/program.h>

#include <array>
#include <deque>
#include <optional>
#include <span>

namespace tilewise::client {

class Programs {
 public:
  // The program of this size that the scheduler keeps and `same` says yes to, by the number of its request.
  template <class Same>
  std::optional<std::uint64_t> find(std::size_t ops, std::uint64_t outputs, std::uint64_t inputs,
                                    const Same& same) {
    ++clock_;
    for (Place& place : places_) {
      const msg::Program& p = place.program;
      if (place.request == 0 || p.ops.size() != ops || p.outputs != outputs || p.inputs != inputs) continue;
      if (!same(p)) continue;
      place.used = clock_;
      return place.request;
    }
    return std::nullopt;
  }

  // A program that find() has not found is sent with this request, as `ops`. Submit::keep_as for it; 0 as a rule: it comes for
  // the first time, is too large, or the places are taken by programs in use.
  std::uint32_t sent(std::uint64_t digest, std::uint64_t request, const std::vector<ir::Op>& ops);

  // It was refused, or did not leave: nobody can say what the scheduler has.
  void forget(std::uint64_t request);

 private:
  static constexpr std::size_t kRemembered = 64;  // digests
  static constexpr std::uint64_t kInUse = 16;     // submissions since it was named
  struct Place {
    std::uint64_t request = 0, used = 0;
    msg::Program program;
  };
  std::array<Place, msg::kKeptPrograms> places_;
  std::deque<std::uint64_t> once_;
  std::uint64_t clock_ = 0;
};

}  // namespace tilewise::client
