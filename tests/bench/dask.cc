#include "dask.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace tilewise::bench {
namespace {

constexpr double kOfDask = 0.01;  // at least 100 x below

// What a command prints, whole; nothing where it fails.
std::string output_of(const std::string& command) {
  std::string text;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  char buffer[4096];
  while (std::fgets(buffer, sizeof(buffer), pipe) != nullptr) text += buffer;
  return ::pclose(pipe) == 0 ? text : std::string();
}

// $BENCH_DASK_PYTHON, the first one on the path, Debian's, whose packages others do not see; empty: none has Dask.
std::string python_with_dask() {
  std::vector<std::string> pythons{"python3", "/usr/bin/python3"};
  if (const char* chosen = std::getenv("BENCH_DASK_PYTHON")) pythons = {chosen};
  for (const std::string& python : pythons)
    if (!output_of(python + " -c 'import distributed, numpy; print(1)' 2>/dev/null").empty()) return python;
  return {};
}

}  // namespace

void beside_dask(const std::map<std::string, double>& ours, bool quick, Report& report) {
  const std::string python = python_with_dask();
  if (python.empty()) {
    report.note(
        "no Dask beside it: no python3 has `distributed` with NumPy (Debian: python3-distributed; PyPI: "
        "distributed)");
    return;
  }
  const std::string options = quick ? " --rows 20 --repeats 1" : "";
  std::istringstream lines(output_of(python + " " + BENCH_DASK_SIDE + options + " 2>/dev/null"));
  std::string ready, version;
  if (!(lines >> ready >> version)) return report.note("Dask beside it: dask_side.py failed");
  std::string pattern;
  double metg_us = 0;
  while (lines >> pattern >> metg_us) {
    const auto mine = ours.find(pattern);
    if (mine == ours.end()) continue;
    report.at_most({.metric = "METG(50 %), " + pattern + ", width 8, beside Dask",
                    .value = mine->second,
                    .unit = "us",
                    .reference = "Dask " + version,
                    .reference_value = metg_us},
                   kOfDask);
  }
}

}  // namespace tilewise::bench
