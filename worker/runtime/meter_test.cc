#include <tilewise/worker/meter.h>

#include <doctest/doctest.h>

namespace tilewise::worker {
namespace {

TEST_CASE("predictions follow what steps took, and not one that was preempted") {
  Meter meter;
  CHECK(meter.predict(1000) == 1000);  // the model's word
  meter.add(1000, 4000);
  CHECK(meter.predict(1000) == doctest::Approx(4000));
  for (int i = 0; i < 100; ++i) meter.add(1000, 2000);
  CHECK(meter.predict(1000) == doctest::Approx(2000).epsilon(0.01));
  meter.add(1000, 4'000'000);
  CHECK(meter.predict(1000) < 2600);
  CHECK(!meter.erratic());
  CHECK(meter.steps() == 102);
  CHECK(meter.busy_ns() == 4000 + 100 * 2000 + 4'000'000);
  CHECK(meter.model_ns() == 102'000);
}

TEST_CASE("a family with a step that is long beyond all prediction is told") {
  Meter meter;
  meter.add(1000, 50'000'000);  // the first says what is usual
  CHECK(!meter.erratic());
  Meter other;
  other.add(1000, 1000);
  other.add(1000, 50'000'000);
  CHECK(other.erratic());
  for (int i = 0; i < 1000; ++i) other.add(1000, 1000);
  CHECK(!other.erratic());
}

}  // namespace
}  // namespace tilewise::worker
