// What an operator should know, in plain words, with what to do. A pure function of two looks at the cluster.
#pragma once
#include <tilewise/scheduler/view.h>

#include <string>
#include <vector>

namespace tilewise::dashboard {

struct Warning {
  bool serious = false;
  std::string code;   // stable, for metrics and tests: "staged-lane"
  std::string what;   // a sentence
  std::string to_do;  // another
};

// `before`: an earlier look at the same cluster, for what is about rates; may be null.
std::vector<Warning> warnings(const scheduler::Overview& now, const scheduler::Overview* before);

// All codes, in the order in which they are looked for.
std::vector<std::string_view> warning_codes();

}  // namespace tilewise::dashboard
