// Faults of links. What is broken is mended again at the end of each.
#include <algorithm>
#include <csignal>
#include <functional>
#include <thread>

#include "monkey.h"

namespace tilewise::testing {

using std::chrono::milliseconds;

void Monkey::break_links() {
  links_bad_until_ = Clock::now() + seconds(60);
  const bool long_ones = settings_.run_s >= 60;
  const double dice = prng_.uniform();
  if (dice < 0.4)
    cut_two(long_ones && prng_.chance(0.2));
  else if (dice < 0.55)
    reset_somebody();
  else if (dice < 0.7)
    flap();
  else if (dice < 0.8)
    slow_somebody_down();
  else if (dice < 0.9)
    lose_some();
  else if (long_ones)
    leave_half_open();
}

// Each fault of links once, the long ones too.
void Monkey::break_each() {
  links_bad_until_ = Clock::now() + seconds(180);
  const std::vector<std::function<void()>> faults{[&] { cut_two(false); },   [&] { reset_somebody(); },
                                                  [&] { flap(); },           [&] { slow_somebody_down(); },
                                                  [&] { lose_some(); },      [&] { cut_two(true); },
                                                  [&] { leave_half_open(); }};
  for (const auto& fault : faults) {
    fault();
    look();
  }
}

// One way or both: for a moment, which nobody may notice, or until silence is noticed and, after 5 s, the younger of the two leaves.
void Monkey::cut_two(bool long_one) {
  const int one = somebody();
  std::vector<int> others;
  std::copy_if(members_.begin(), members_.end(), std::back_inserter(others),
               [&](int i) { return !ways_->together(one, i); });
  if (others.empty()) return;
  const int two = others[static_cast<std::size_t>(prng_.below(others.size()))];
  if (!ways_->cut(one, two, prng_.chance(0.3))) return;
  ++counts_.ways.cuts;
  if (long_one) ++counts_.ways.long_cuts;
  std::this_thread::sleep_for(long_one ? milliseconds(static_cast<std::int64_t>(2000 * settings_.silence_s))
                                       : milliseconds(prng_.between(50, 3'000)));
  ways_->mend();
}

void Monkey::reset_somebody() {
  const int one = somebody(), two = somebody();
  const bool done = ways_->reset(one, two);
  (ways_->together(one, two) ? counts_.ways.client_resets : counts_.ways.resets) += done;
}

// Half as long as silence is borne; TCP tries again after up to twice as long, so that some are missed all the same.
void Monkey::flap() {
  ++counts_.ways.flaps;
  ways_->isolate(somebody());
  std::this_thread::sleep_for(milliseconds(static_cast<std::int64_t>(500 * settings_.silence_s)));
  ways_->mend();
}

void Monkey::slow_somebody_down() {
  if (ways_->slow_down(somebody(), 1'000'000)) ++counts_.ways.slow;
  std::this_thread::sleep_for(milliseconds(prng_.between(500, 8'000)));
  ways_->mend();
}

// A twentieth of the packets: TCP sends them again, and all that is seen of it is that bytes come late.
void Monkey::lose_some() {
  if (ways_->lose_some(somebody(), 0.05)) ++counts_.ways.lossy;
  std::this_thread::sleep_for(milliseconds(prng_.between(500, 8'000)));
  ways_->mend();
}

// A host's workers die where nobody can hear it: peers and scheduler have links without another end, until they miss them.
void Monkey::leave_half_open() {
  ++counts_.ways.half_open;
  const int one = somebody();
  ways_->isolate(one);
  std::vector<int> dead;
  std::copy_if(members_.begin(), members_.end(), std::back_inserter(dead),
               [&](int i) { return ways_->together(one, i); });
  for (const int i : dead) {
    cluster_.worker(i).signal(SIGKILL);
    (void)cluster_.worker(i).wait();
  }
  std::this_thread::sleep_for(milliseconds(static_cast<std::int64_t>(1200 * settings_.silence_s)));
  ways_->mend();
  for (const int i : dead) replace(i);
}

}  // namespace tilewise::testing
