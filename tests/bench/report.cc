#include "report.h"
#include <sched.h>

#include <cstdio>
#include <exception>
#include <optional>

namespace tilewise::bench {

void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  sched_setaffinity(0, sizeof(set), &set);
}

namespace {

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

}  // namespace

void Report::add(Figure figure, const char* sign, double bound) {
  if (figure.reference.empty())
    figure.ratio = figure.value;
  else
    figure.ratio = figure.reference_value > 0 ? figure.value / figure.reference_value : 0;
  figure.met = sign[0] == '>' ? figure.ratio >= bound : figure.ratio <= bound;
  figure.target = std::string(sign) + " " + number(bound);
  if (figures_.empty()) {
    std::printf("%-44s %11s %-8s %11s %9s %-10s\n", "metric", "value", "unit", "reference", "ratio",
                "target");
  }
  std::printf("%-44s %11s %-8s %11s %9s %-10s %s%s%s\n", figure.metric.c_str(), number(figure.value).c_str(),
              figure.unit.c_str(), figure.reference.empty() ? "-" : number(figure.reference_value).c_str(),
              number(figure.ratio).c_str(), figure.target.c_str(), figure.met ? "met" : "NOT MET",
              figure.reference.empty() ? "" : "  vs ", figure.reference.c_str());
  std::fflush(stdout);
  figures_.push_back(std::move(figure));
}

void Report::at_least(Figure figure, double bound) { add(std::move(figure), ">=", bound); }
void Report::at_most(Figure figure, double bound) { add(std::move(figure), "<=", bound); }

void Report::note(const std::string& text) {
  std::printf("note: %s\n", text.c_str());
  std::fflush(stdout);
}

bool Report::write(
    const std::string& path) const {  // names and units here hold nothing that JSON would escape
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  std::fprintf(file, "[\n");
  for (std::size_t i = 0; i < figures_.size(); ++i) {
    const Figure& f = figures_[i];
    std::fprintf(file,
                 "  {\"metric\": \"%s\", \"value\": %s, \"unit\": \"%s\", \"reference\": \"%s\", "
                 "\"reference_value\": %s, \"ratio\": %s, \"target\": \"%s\", \"met\": %s}%s\n",
                 f.metric.c_str(), number(f.value).c_str(), f.unit.c_str(), f.reference.c_str(),
                 number(f.reference_value).c_str(), number(f.ratio).c_str(), f.target.c_str(),
                 f.met ? "true" : "false", i + 1 < figures_.size() ? "," : "");
  }
  std::fprintf(file, "]\n");
  return std::fclose(file) == 0;
}

namespace {

// Nothing where the arguments are wrong.
std::optional<Settings> settings_of(int argc, char** argv, const std::vector<Part>& parts) {
  Settings settings;
  std::string names;
  for (const Part& part : parts) names += (names.empty() ? "" : "|") + part.name;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--quick") {
      settings.quick = true;
    } else if (argument == "--json" && i + 1 < argc) {
      settings.json = argv[++i];
    } else if (argument == "--only" && i + 1 < argc) {
      settings.only = argv[++i];
    } else {
      std::fprintf(stderr, "usage: %s [--json FILE] [--quick] [--only %s]\n", argv[0], names.c_str());
      return {};
    }
  }
  return settings;
}

}  // namespace

int run_parts(int argc, char** argv, const std::vector<Part>& parts) {
  const std::optional<Settings> settings = settings_of(argc, argv, parts);
  if (!settings) return 2;
  Report report;
  bool failed = false;
  for (const Part& part : parts) {
    if (!settings->only.empty() && settings->only != part.name) continue;
    try {
      part.run(*settings, report);
    } catch (const std::exception& e) {
      report.note(part.name + " FAILED: " + e.what());
      failed = true;
    }
  }
  if (!settings->json.empty() && !report.write(settings->json)) {
    std::fprintf(stderr, "cannot write %s\n", settings->json.c_str());
    failed = true;
  }
  return failed ? 1 : 0;
}

}  // namespace tilewise::bench
