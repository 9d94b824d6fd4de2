// A pipeline: a network of four stages, each on devices of its own, and a batch in twelve parts that follow one another
// through them. It is written as plain loops; that stages work at the same time on different parts follows from what reads
// what. The timeline of what really ran shows it.
//
//   pipeline [TRACE.json]     writes the timeline for Perfetto or chrome://tracing
#include <tilewise/embedded/cluster.h>
#include <tilewise/tilewise.h>

#include <sched.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <vector>

namespace {

constexpr int kStages = 4, kParts = 12;
constexpr std::int64_t kRows = 512, kWidth = 256;

struct Span {
  std::int64_t begin = INT64_MAX, end = 0;
};

int run(const char* file) {
  using namespace tilewise;
  auto cluster = embedded::Cluster::start(
      {.workers = 2, .host_devices = 4, .use_cuda = false, .memory_bytes = 64 << 20});
  if (!cluster) throw ArrayError(cluster.error());
  auto session = make_session((*cluster)->connect("pipeline"));
  if (!session.wait_for_devices(8, std::chrono::seconds(10))) throw ArrayError(Errc::kTimeout, "no devices");
  const std::vector<Device> devices = session.devices();

  // Two devices a stage: each has half of every part's rows. The stage's weights are on both.
  std::vector<Mesh> stages;
  std::vector<Array> weights;
  std::map<std::string, int> stage_of;
  for (int s = 0; s < kStages; ++s) {
    stages.emplace_back(std::vector<Device>(devices.begin() + 2 * s, devices.begin() + 2 * s + 2),
                        std::vector<MeshAxis>{{"rows", 2}});
    for (const Device& d : stages.back().devices()) stage_of[d.name] = s;
    weights.push_back((session.random.normal({kWidth, kWidth}, {.seed = static_cast<std::uint64_t>(s + 1)}) *
                       (1 / std::sqrt(static_cast<double>(kWidth))))
                          .on(stages.back(), {}));
  }
  session.persist(weights).wait();
  std::vector<Array> results;
  const Array input =
      session.random.uniform({kParts * kRows, kWidth}, {.seed = 9, .block = {kRows / 2, kWidth}});
  for (int part = 0; part < kParts; ++part) {
    Array h = input.slice(0, part * kRows, (part + 1) * kRows);
    for (int s = 0; s < kStages; ++s)
      h = tanh(matmul(h, weights[static_cast<std::size_t>(s)])
                   .on(stages[static_cast<std::size_t>(s)], {"rows"}))
              .on(stages[static_cast<std::size_t>(s)], {"rows"});
    results.push_back(h);
  }
  const std::uint64_t before = [&] {  // what ran before does not count
    std::uint64_t last = 0;
    for (const TraceStep& step : session.trace().steps) last = std::max(last, step.graph);
    return last;
  }();
  session.persist(results).wait();  // one message, one plan
  const Trace trace = session.trace();

  // When did each stage work, and how many at once?
  std::vector<Span> spans(kStages);
  std::vector<std::pair<std::int64_t, int>> edges;  // +1 where a step begins, -1 where it ends
  std::map<int, int> active;
  double busy_ns = 0;
  for (const TraceStep& step : trace.steps) {
    if (step.graph <= before || step.what != "matmul") continue;
    const int s = stage_of.at(step.device);
    spans[static_cast<std::size_t>(s)].begin =
        std::min(spans[static_cast<std::size_t>(s)].begin, step.start_ns);
    spans[static_cast<std::size_t>(s)].end = std::max(spans[static_cast<std::size_t>(s)].end, step.end_ns);
    edges.emplace_back(step.start_ns, s + 1);
    edges.emplace_back(step.end_ns, -(s + 1));
    busy_ns += static_cast<double>(step.end_ns - step.start_ns);
  }
  std::sort(edges.begin(), edges.end());
  int most = 0;
  double several_ns = 0, any_ns = 0;
  std::int64_t at = edges.empty() ? 0 : edges.front().first;
  for (const auto& [time, edge] : edges) {
    int working = 0;
    for (const auto& [s, n] : active) working += n > 0;
    any_ns += working >= 1 ? static_cast<double>(time - at) : 0;
    several_ns += working >= 2 ? static_cast<double>(time - at) : 0;
    most = std::max(most, working);
    active[std::abs(edge)] += edge > 0 ? 1 : -1;
    at = time;
  }
  bool overlaps = !edges.empty();
  for (int s = 0; s < kStages; ++s) {
    const Span& span = spans[static_cast<std::size_t>(s)];
    std::printf("stage %d: %8.3f ms to %8.3f ms\n", s,
                static_cast<double>(span.begin - spans[0].begin) * 1e-6,
                static_cast<double>(span.end - spans[0].begin) * 1e-6);
    if (s > 0)
      overlaps &= span.begin < spans[static_cast<std::size_t>(s - 1)].end;  // it did not wait for all parts
  }
  std::printf("up to %d stages at once; two or more for %.0f %% of the time\n", most,
              100 * several_ns / any_ns);
  if (file != nullptr) {
    std::FILE* out = std::fopen(file, "w");
    if (out == nullptr) throw ArrayError(Errc::kIo, std::string("cannot write ") + file);
    std::fputs(trace.chrome_json().c_str(), out);
    std::fclose(out);
  }

  // The same without a pipeline, on one device after the other, gives the same bits.
  bool same = true;
  Array h = input;
  for (const Array& w : weights) h = tanh(matmul(h, w));
  const std::vector<double> whole = h.get<double>();
  for (int part = 0; part < kParts; ++part) {
    const std::vector<double> got = results[static_cast<std::size_t>(part)].get<double>();
    same &= std::equal(got.begin(), got.end(), whole.begin() + part * kRows * kWidth);
  }
  std::printf("the same without stages: %s\n", same ? "equal" : "DIFFERENT");
  cpu_set_t usable;  // on one core stages alternate instead
  const bool one_core = sched_getaffinity(0, sizeof usable, &usable) == 0 && CPU_COUNT(&usable) == 1;
  return same && overlaps && (most >= 2 || one_core) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : nullptr);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
