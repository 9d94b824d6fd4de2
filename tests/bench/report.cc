#include "report.h"

#include <cstdio>

namespace tilewise::bench {
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

}  // namespace tilewise::bench
