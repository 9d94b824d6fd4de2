#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <ostream>
#include <string>

#include "skipped.h"

namespace {

constexpr int kAllSkipped = 77;  // SKIP_RETURN_CODE in cmake/TilewiseParts.cmake

unsigned cases_skipped = 0, cases_run = 0;
bool skips = false;  // the case that runs

// Counts cases, and says nothing.
struct Counter final : doctest::IReporter {
  explicit Counter(const doctest::ContextOptions&) {}
  void test_case_start(const doctest::TestCaseData&) override { skips = false; }
  void test_case_end(const doctest::CurrentTestCaseStats&) override { cases_skipped += skips; }
  void test_run_end(const doctest::TestRunStats& stats) override {
    cases_run = stats.numTestCasesPassingFilters;
  }
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};
REGISTER_LISTENER("counter", 1, Counter);

}  // namespace

void tilewise::testing::skipped(const std::string& why) {
  skips = true;
  MESSAGE("skipped: " << why);
}

int main(int argc, char** argv) {
  const int code = doctest::Context(argc, argv).run();
  return code == 0 && cases_run > 0 && cases_skipped == cases_run ? kAllSkipped : code;
}
