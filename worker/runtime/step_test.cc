#include <tilewise/worker/step.h>

#include <doctest/doctest.h>

#include <new>

namespace tilewise::worker {
namespace {

TimeNs waits(const ResolvedStep& step) {
  TimeNs all = 0;
  for (int tries = 0; patience(step, tries) > 0; ++tries) all += patience(step, tries);
  return all;
}

// A step that is refused memory until `attempts` have been made.
struct Refused {
  explicit Refused(bool again) {
    step.op = &entry;
    step.run.again = again;
  }
  Status run() {
    return run_patiently(step, [&]() -> Status {
      if (++made == attempts) return {};
      if (made == 2) throw std::bad_alloc();
      return error(Errc::kOutOfMemory, "no memory");
    });
  }
  OpEntry entry;
  ResolvedStep step;
  int attempts = 5, made = 0;
};

TEST_CASE(
    "what makes again what was lost is tried for seconds when it is refused memory, all else for a tenth") {
  Refused first(false), again(true);
  CHECK(waits(first.step) == 111 * kMillisecond);
  CHECK(waits(again.step) == 10 * kSecond + 111 * kMillisecond);
  const Status failed = first.run();
  CHECK(failed.error().code == Errc::kOutOfMemory);
  CHECK(first.made == 4);
  CHECK(again.run().has_value());
  CHECK(again.made == 5);
}

TEST_CASE("a step that may have done something is not tried twice; one that reads a checkpoint may be") {
  Refused user(true);
  user.entry.op.kind = ir::OpKind::kCall;
  user.entry.op.attrs = ir::CallAttrs{.kernel = "users.own"};
  CHECK(waits(user.step) == 0);
  CHECK(user.run().error().code == Errc::kOutOfMemory);
  CHECK(user.made == 1);
  user.entry.op.attrs = ir::CallAttrs{.kernel = "tilewise.write_checkpoint"};
  CHECK(waits(user.step) == 0);
  user.entry.op.attrs = ir::CallAttrs{.kernel = "tilewise.restore_checkpoint"};
  CHECK(waits(user.step) > 10 * kSecond);
}

}  // namespace
}  // namespace tilewise::worker
