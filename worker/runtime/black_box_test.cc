#include <tilewise/worker/black_box.h>

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

using namespace tilewise;
using namespace tilewise::worker;

TEST_CASE("what a process was executing when it died is known afterwards; what had ended is not told") {
  const auto box = BlackBox::create().value();
  const std::uint64_t first = box->number();
  CHECK(first != 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto own = BlackBox::open(dup(box->fd()));
    if (!own || (*own)->number() != first) _exit(1);
    (*own)->set_worker(WorkerId{7}, true);
    (*own)->slot(0, 0)->begin(OpId{11}, DeviceId{3}, 5);
    (*own)->slot(0, 0)->end();
    (*own)->slot(0, 1)->begin(OpId{12}, DeviceId{3}, 6);
    (*own)->slot(2, 3)->begin(OpId{13}, DeviceId{5}, 1LL << 40);
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  const msg::LastWords words = box->words("killed");
  CHECK(words ==
        msg::LastWords{
            WorkerId{7}, first, "killed", {{OpId{12}, DeviceId{3}, 6}, {OpId{13}, DeviceId{5}, 1LL << 40}}});
  box->close();  // as it would have done, had it ended of its own accord
  CHECK(box->words("ended").running.empty());
  REQUIRE(box->renew().has_value());
  CHECK(box->number() != first);
  CHECK(box->words("").running.empty());
  CHECK_FALSE(box->words("").worker);
}

TEST_CASE("when a GPU has broken all that was open on it is told, once each, and nothing that hosts run") {
  const auto box = BlackBox::create().value();
  CHECK_FALSE(box->scheduler_returns());  // none was found
  box->set_worker(WorkerId{7}, true);
  CHECK(box->scheduler_returns());
  box->give_scheduler_up();
  CHECK_FALSE(box->scheduler_returns());
  box->slot(0, 0)->begin(OpId{11}, DeviceId{3}, 5);
  box->gpu_slot(1, 0)->begin(OpId{12}, DeviceId{4}, 6);
  CHECK(box->words("").running.size() == 2);
  box->gpu_broke();
  box->add_open(OpId{12}, DeviceId{4}, 6);
  box->add_open(OpId{12}, DeviceId{4}, 7);
  box->close();
  using Running = msg::LastWords::Running;
  CHECK(box->words("").running ==
        std::vector<Running>{{OpId{12}, DeviceId{4}, 6}, {OpId{12}, DeviceId{4}, 7}});
  for (std::int64_t i = 0; i < 10'000; ++i) box->add_open(OpId{13}, DeviceId{4}, i);
  CHECK(box->words("").running.size() == 1 + 511);
}

TEST_CASE("there is room for 64 devices; what is no black box is not taken for one") {
  const auto box = BlackBox::create().value();
  CHECK(box->slot(63, 3) != nullptr);
  CHECK(box->slot(64, 0) == nullptr);
  CHECK(BlackBox::open(-1).error().code == Errc::kIo);
  const int other = memfd_create("other", 0);
  CHECK(BlackBox::open(other).error().code == Errc::kInvalidArgument);
  close(other);
}

TEST_CASE(
    "a step is overdue when it was seen to run for so long: that step, not the next one of its stream") {
  const auto box = BlackBox::create().value();
  using Running = msg::LastWords::Running;
  const TimeNs limit = 10 * kSecond;
  const auto late = [&](TimeNs at) {
    box->beat();
    return box->overdue(at * kSecond, {.step = limit});
  };
  BlackBox::Slot& host = *box->slot(0, 1);
  host.begin(OpId{11}, DeviceId{3}, 5);
  CHECK_FALSE(late(100).any());  // it may have begun long ago, but nobody has seen that
  CHECK_FALSE(late(109).any());
  CHECK(late(110).steps == std::vector<Running>{{OpId{11}, DeviceId{3}, 5}});
  CHECK_FALSE(late(111).disk);
  host.end();
  CHECK_FALSE(late(112).any());
  // The same point again (another panel of a product) between two looks is another step.
  for (TimeNs at = 113; at < 160; at += 9) {
    host.begin(OpId{11}, DeviceId{3}, 5);
    CHECK_FALSE(late(at).any());
    host.end();
  }
  // What a GPU's stream shows again and again is one step while its number is.
  BlackBox::Slot& gpu = *box->gpu_slot(1, 0);
  for (TimeNs at = 200; at < 210; ++at) {
    gpu.begin(OpId{12}, DeviceId{4}, 6, 77);
    CHECK_FALSE(late(at).any());
  }
  CHECK(late(210).steps == std::vector<Running>{{OpId{12}, DeviceId{4}, 6}});
  gpu.begin(OpId{12}, DeviceId{4}, 7, 78);
  CHECK_FALSE(late(211).any());
  CHECK(late(221).steps.size() == 1);
  gpu.end();
  // A disk has no step.
  CHECK(box->disk_slot(63) != nullptr);
  CHECK(box->disk_slot(64) == nullptr);
  box->disk_slot(1)->begin(OpId{1}, {}, 0);
  CHECK_FALSE(late(300).any());
  CHECK(late(310).disk);
  CHECK(late(310).steps.empty());
  CHECK(box->words("").running.empty());
  box->disk_slot(1)->end();
  CHECK_FALSE(late(311).any());

  host.begin(OpId{13}, DeviceId{3}, 1);
  CHECK_FALSE(late(400).any());
  box->close();  // it ends by itself, in its own time
  CHECK_FALSE(late(500).any());
  REQUIRE(box->renew().has_value());
  box->slot(0, 1)->begin(OpId{13}, DeviceId{3}, 1);
  CHECK_FALSE(late(600).any());  // the next process's time is its own
}

TEST_CASE(
    "a loop is overdue when it has not come round for so long, and what it executes itself is to blame") {
  const auto box = BlackBox::create().value();
  using Running = msg::LastWords::Running;
  BlackBox::Limits limits{.step = 0, .loop = 30 * kSecond};
  const auto late = [&](TimeNs at) { return box->overdue(at * kSecond, limits); };
  CHECK_FALSE(late(100).any());
  CHECK_FALSE(late(1'000).any());  // it has not begun: what is made ready may take long
  limits.step = 3'000 * kSecond;
  CHECK_FALSE(late(3'099).any());
  CHECK(late(3'100).start);  // but not for ever
  CHECK_FALSE(late(3'100).loop);
  limits.step = 0;

  box->beat();
  CHECK_FALSE(late(4'000).any());  // it may have been long ago, but nobody has seen that
  CHECK_FALSE(late(4'029).any());
  box->beat();
  CHECK_FALSE(late(4'030).any());
  CHECK_FALSE(late(4'059).any());
  BlackBox::Slot& other = *box->slot(0, 0);
  other.begin(OpId{11}, DeviceId{3}, 5);
  CHECK(late(4'060).loop);
  CHECK(late(4'060).steps.empty());  // its company
  BlackBox::Slot& own = *box->slot(0, 1);
  box->loop_runs(&own);
  CHECK(late(4'061).steps.empty());
  own.begin(OpId{12}, DeviceId{3}, 6);
  CHECK(late(4'061).steps == std::vector<Running>{{OpId{12}, DeviceId{3}, 6}});
  own.end();
  box->loop_runs(nullptr);
  CHECK(late(4'061).steps.empty());

  box->begin_anew();  // it was stopped meanwhile
  CHECK_FALSE(late(4'062).any());
  box->close();  // and this takes too long
  CHECK_FALSE(late(4'091).any());
  CHECK(late(4'092).loop);
  CHECK(late(4'092).steps.empty());

  // What else is overdue says more.
  REQUIRE(box->renew().has_value());
  CHECK_FALSE(late(5'000).any());
  limits.step = 10 * kSecond;
  box->beat();
  other.begin(OpId{11}, DeviceId{3}, 5);
  CHECK_FALSE(late(5'001).any());
  CHECK(late(5'100).steps.size() == 1);
  CHECK_FALSE(late(5'100).loop);
}
