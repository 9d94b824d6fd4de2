// The first program: arrays that are cut into blocks, an expression, its value, a file. Runs on a cluster of its own
// inside this process, or on the one that $TILEWISE_SCHEDULER names. Exits with 1 where a result is not what it must be.
#include <tilewise/tilewise.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace {

bool near(double a, double b) { return std::abs(a - b) <= 1e-9 * (1 + std::abs(b)); }

int run(const std::string& folder) {
  const std::int64_t n = 200'000, d = 28;
  auto session = tilewise::connect();
  std::printf("devices:");
  for (const tilewise::Device& device : session.devices()) std::printf(" %s", device.name.c_str());
  std::printf("\n");

  // Eight blocks of rows. Element i of a random stream is the same number whatever the blocks and the cluster.
  auto x = session.random.normal({n, d}, {.seed = 7, .block = {25'000, d}});
  auto y = tilewise::where(tilewise::sum(x, 1) > 0.0, 1.0, 0.0);
  x.persist();  // keep x where it is made: the expressions below start from it
  auto w = session.zeros({d});
  auto p = 1.0 / (1.0 + tilewise::exp(-tilewise::matmul(x, w)));
  auto g = tilewise::matmul(x.T(), p - y) / n;  // nothing of this has run yet
  std::vector<double> gradient = g.get<double>();

  // The same by hand, on the same numbers: with w = 0 every p is 1/2.
  const std::vector<double> rows = x.get<double>();
  std::vector<double> plain(d, 0.0);
  for (std::int64_t i = 0; i < n; ++i) {
    double total = 0;
    for (std::int64_t j = 0; j < d; ++j) total += rows[i * d + j];
    for (std::int64_t j = 0; j < d; ++j) plain[j] += (0.5 - (total > 0 ? 1.0 : 0.0)) * rows[i * d + j];
  }
  int wrong = 0;
  for (std::int64_t j = 0; j < d; ++j) wrong += near(gradient[j], plain[j] / static_cast<double>(n)) ? 0 : 1;
  std::printf("gradient[0] = %.6f, by hand %.6f; %d of %d differ\n", gradient[0],
              plain[0] / static_cast<double>(n), wrong, static_cast<int>(d));

  // Files: every worker writes and reads its own blocks; a file appears under its name when it is complete.
  const std::string path = folder + "/features.npy";
  x.save_npy(path).wait({.on_progress = tilewise::ProgressBar("save")});
  auto z = session.load_npy(path, {.block = {50'000, d}});
  z.persist();
  const double difference = tilewise::max(tilewise::abs(z - x)).item<double>();
  std::printf("largest difference after saving and loading: %g\n", difference);

  // Mistakes are found at the line that makes them.
  bool refused = false;
  try {
    (void)(x + session.ones({5}));
  } catch (const tilewise::ArrayError& e) {
    std::printf("as expected: %s\n", e.what());
    refused = e.code() == tilewise::Errc::kShapeMismatch;
  }
  return wrong == 0 && difference == 0 && refused ? 0 : 1;
}

}  // namespace

int main() {
  std::string folder = (std::filesystem::temp_directory_path() / "quickstart.XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  int code = 1;
  try {
    code = run(folder);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
  }
  std::filesystem::remove_all(folder);
  return code;
}
