#include "flights.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace demo {
namespace {

// The file is one flat list of {"delay":n,"distance":n,"time":n}; a full JSON reader would add nothing.
Flights parse(const std::string& text, const std::string& path) {
  Flights flights;
  static constexpr const char* kKeys[] = {"\"delay\":", "\"distance\":", "\"time\":"};
  std::size_t at = 0;
  while ((at = text.find('{', at)) != std::string::npos) {
    const std::size_t end = text.find('}', at);
    if (end == std::string::npos)
      throw std::runtime_error(path + ": record at byte " + std::to_string(at) + " has no end");
    for (const char* key : kKeys) {
      const std::size_t name = text.find(key, at);
      double value = 0;
      const char* from = text.data() + name + std::string(key).size();
      if (name == std::string::npos || name > end ||
          std::from_chars(from, text.data() + end, value).ec != std::errc()) {
        throw std::runtime_error(path + ": record at byte " + std::to_string(at) + " has no number for " +
                                 key);
      }
      flights.table.push_back(value);
    }
    at = end;
  }
  flights.rows = static_cast<std::int64_t>(flights.table.size() / 3);
  flights.source = std::to_string(flights.rows) + " real flights (vega-datasets)";
  return flights;
}

Flights generate() {
  Flights flights;
  flights.rows = 231'083;
  flights.source = "generated flights: the real ones could not be had";
  std::uint64_t h = 2001;
  const auto uniform = [&] {
    h = h * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<double>(h >> 11) * 0x1.0p-53;
  };
  for (std::int64_t i = 0; i < flights.rows; ++i) {
    const double distance = 60 + 2400 * uniform() * uniform(), time = 24 * uniform();
    const double mean = -8 + 10 * std::sin((time - 9) / 24 * 6.283185307) + distance / 800;
    const double delay = std::floor(mean - 18 * std::log(1 - uniform()));
    flights.table.insert(flights.table.end(), {delay, distance, time});
  }
  return flights;
}

}  // namespace

Flights load_flights(const std::string& path) {
  if (path.empty()) return generate();
  std::ifstream file(path);
  if (!file) return generate();
  std::ostringstream text;
  text << file.rdbuf();
  Flights flights = parse(text.str(), path);
  if (flights.rows == 0) throw std::runtime_error(path + ": holds no flights");
  return flights;
}

void write_npy(const std::string& path, const std::vector<double>& values, std::int64_t rows,
               std::int64_t columns) {
  std::string header = "{'descr': '<f8', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", " +
                       std::to_string(columns) + "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  const std::uint16_t length = static_cast<std::uint16_t>(header.size());
  file.write("\x93NUMPY\x01\x00", 8);
  file.write(reinterpret_cast<const char*>(&length), 2);
  file << header;
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(double)));
  if (!file.flush()) throw std::runtime_error("cannot write " + path);
}

}  // namespace demo
