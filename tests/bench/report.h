// Figures: measured beside what they are compared with, printed as a table and written as JSON.
#pragma once
#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace tilewise::bench {

inline double now() {  // seconds
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// This thread, to one core: a wish.
void pin(int core);

inline double seconds_of(const std::function<void()>& body) {
  const double start = now();
  body();
  return now() - start;
}

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n == 0 ? 0 : n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// One line. `ratio` is what `target` bounds: value / reference where there is a reference, else the value.
struct Figure {
  std::string metric;
  double value = 0;
  std::string unit, reference;  // no reference: empty
  double reference_value = 0, ratio = 0;
  std::string target;  // for people: ">= 0.93"
  bool met = false;
};

class Report {
 public:
  void at_least(Figure figure, double bound);
  void at_most(Figure figure, double bound);
  void note(const std::string& text);  // a figure that could not be taken, and why
  const std::vector<Figure>& figures() const { return figures_; }
  bool write(const std::string& path) const;  // JSON

 private:
  void add(Figure figure, const char* sign, double bound);
  std::vector<Figure> figures_;
};

// What a benchmark program was asked for: [--json FILE] [--quick] [--only PART].
struct Settings {
  std::string json, only;
  bool quick = false;
  int repeats = 5;  // of each figure
};
struct Part {
  std::string name;
  std::function<void(const Settings&, Report&)> run;
};

// main() of a benchmark program: its parts one after the other, one that throws does not keep the others from running.
// Returns the exit status: 1 where a part failed or the file could not be written, 2 for wrong arguments.
int run_parts(int argc, char** argv, const std::vector<Part>& parts);

}  // namespace tilewise::bench
