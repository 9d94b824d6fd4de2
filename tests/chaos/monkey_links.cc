// Faults of links, one at a time. What is broken is mended again at the end of each.
#include <algorithm>
#include <csignal>
#include <functional>

#include "monkey.h"

namespace tilewise::testing {

using std::chrono::milliseconds;

void Monkey::break_links(Hand& hand) {
  if (links_held_) return;
  hand.links = links_held_ = true;
  ++link_faults_;
  links_bad_until_ = Clock::now() + seconds(60);
  const bool long_ones = settings_.run_s >= 60;
  const double dice = hand.prng.uniform();
  if (dice < 0.4)
    cut_two(hand, long_ones && hand.prng.chance(0.2));
  else if (dice < 0.55)
    reset_somebody(hand);
  else if (dice < 0.7)
    flap(hand);
  else if (dice < 0.8)
    slow_somebody_down(hand);
  else if (dice < 0.9)
    lose_some(hand);
  else if (long_ones)
    leave_half_open(hand);
}

// Each fault of links once, the long ones too.
void Monkey::break_each(Hand& hand) {
  links_bad_until_ = Clock::now() + seconds(180);
  const std::vector<std::function<void()>> faults{
      [&] { cut_two(hand, false); },     [&] { reset_somebody(hand); }, [&] { flap(hand); },
      [&] { slow_somebody_down(hand); }, [&] { lose_some(hand); },      [&] { cut_two(hand, true); },
      [&] { leave_half_open(hand); }};
  for (const auto& fault : faults) {
    fault();
    put_down(hand);
    look();
  }
}

// One way or both: for a moment, which nobody may notice, or until silence is noticed and, after 5 s, the younger of the two leaves.
void Monkey::cut_two(Hand& hand, bool long_one) {
  const int one = take_worker(hand);
  std::vector<int> others;
  std::copy_if(members_.begin(), members_.end(), std::back_inserter(others),
               [&](int i) { return one >= 0 && !in_hand(i) && !ways_->together(one, i); });
  if (others.empty()) return;
  const int two = others[static_cast<std::size_t>(hand.prng.below(others.size()))];
  (void)take(hand, {two});
  if (!ways_->cut(one, two, hand.prng.chance(0.3))) return;
  ++counts_.ways.cuts;
  if (long_one) ++counts_.ways.long_cuts;
  hand.rest(long_one ? milliseconds(static_cast<std::int64_t>(2000 * settings_.silence_s))
                     : milliseconds(hand.prng.between(50, 3'000)));
  ways_->mend();
}

void Monkey::reset_somebody(Hand& hand) {
  const int one = take_worker(hand);
  const int two = members_[static_cast<std::size_t>(hand.prng.below(members_.size()))];
  if (one < 0 || (two != one && !take(hand, {two}))) return;
  const bool done = ways_->reset(one, two);
  (ways_->together(one, two) ? counts_.ways.client_resets : counts_.ways.resets) += done;
}

// Half as long as silence is borne; TCP tries again after up to twice as long, so that some are missed all the same.
void Monkey::flap(Hand& hand) {
  const int worker = take_worker(hand);
  if (worker < 0) return;
  ++counts_.ways.flaps;
  ways_->isolate(worker);
  hand.rest(milliseconds(static_cast<std::int64_t>(500 * settings_.silence_s)));
  ways_->mend();
}

void Monkey::slow_somebody_down(Hand& hand) {
  const int worker = take_worker(hand);
  if (worker < 0) return;
  if (ways_->slow_down(worker, 1'000'000)) ++counts_.ways.slow;
  hand.rest(milliseconds(hand.prng.between(500, 8'000)));
  ways_->mend();
}

// A twentieth of the packets: TCP sends them again, and all that is seen of it is that bytes come late.
void Monkey::lose_some(Hand& hand) {
  const int worker = take_worker(hand);
  if (worker < 0) return;
  if (ways_->lose_some(worker, 0.05)) ++counts_.ways.lossy;
  hand.rest(milliseconds(hand.prng.between(500, 8'000)));
  ways_->mend();
}

// A host's workers die where nobody can hear it: peers and scheduler have links without another end, until they miss them.
void Monkey::leave_half_open(Hand& hand) {
  const int one = take_worker(hand);
  std::vector<int> dead;
  std::copy_if(members_.begin(), members_.end(), std::back_inserter(dead),
               [&](int i) { return one >= 0 && i != one && ways_->together(one, i); });
  if (one < 0 || !take(hand, dead)) return;
  dead.push_back(one);
  ++counts_.ways.half_open;
  ways_->isolate(one);
  for (const int i : dead) {
    cluster_.worker(i).signal(SIGKILL);
    (void)cluster_.worker(i).wait();
  }
  hand.rest(milliseconds(static_cast<std::int64_t>(1200 * settings_.silence_s)));
  ways_->mend();
  for (const int i : dead) replace(i);
}

}  // namespace tilewise::testing
