// The flights of the demo: delay (minutes), distance (miles), time of day (hours), from vega-datasets' flights-200k.json
// or, where that is not at hand, generated numbers of the same shape.
#pragma once
#include <string>
#include <vector>

namespace demo {

struct Flights {
  std::vector<double> table;  // rows x 3, C order
  std::int64_t rows = 0;
  std::string source;  // for people
};

// `path` may be empty. A file that is not such a list of records throws std::runtime_error saying where.
Flights load_flights(const std::string& path);

// Writes a float64 .npy file; the demo does it once, the workers read it block by block.
void write_npy(const std::string& path, const std::vector<double>& values, std::int64_t rows,
               std::int64_t columns);

}  // namespace demo
