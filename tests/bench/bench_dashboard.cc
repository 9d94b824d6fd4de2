// What the dashboard costs: CPU time of the whole cluster a task, with nobody watching, and with a scripted reader that
// follows every view, each beside a cluster without a dashboard. Then, where Node and Chromium are there, how
// smooth the timeline is on the trace of a real run of a million tasks, and how long the page takes to open beside one.
//
//   bench_dashboard --json FILE [--quick] [--only cost|page|open]
#include <tilewise/config/role.h>
#include <tilewise/json/json.h>
#include <tilewise/net/address.h>
#include <tilewise/tilewise.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket.hpp>

#include <atomic>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cluster.h"
#include "report.h"

namespace tilewise::bench {
namespace {

namespace asio = boost::asio;
namespace websocket = boost::beast::websocket;
using asio::ip::tcp;
using boost::system::error_code;

// Follows the overview, the graph that runs, all arrays and the first of them, links and the log, as fast as they are told.
class Reader {
 public:
  explicit Reader(const Cluster& cluster) : ws_(io_) {
    const net::Address address = *net::Address::parse(cluster.dashboard());
    ws_.next_layer().connect({asio::ip::make_address(address.host), address.port});
    const std::string host = address.host + ":" + std::to_string(address.port);
    const std::string token = "Bearer " + config::role_token(cluster.token(), config::Role::kReader);
    ws_.set_option(websocket::stream_base::decorator(
        [&](websocket::request_type& r) { r.set("Authorization", token); }));
    ws_.read_message_max(64 << 20);
    ws_.handshake(host, "/ws");
    thread_ = std::thread([this] { read(); });
  }
  ~Reader() {
    error_code ec;
    ws_.next_layer().shutdown(tcp::socket::shutdown_both, ec);
    thread_.join();
  }
  int messages() const { return messages_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  void read() {
    error_code ec;
    for (std::string watched, array; !ec;) {
      boost::beast::flat_buffer buffer;
      ws_.read(buffer, ec);
      if (ec) return;
      const std::string text = boost::beast::buffers_to_string(buffer.data());
      ++messages_;
      bytes_ += static_cast<std::int64_t>(text.size());
      if (const json::value all =
              text.starts_with("{\"view\":\"arrays\"") ? boost::json::parse(text) : nullptr;
          all.is_object() && !all.at("arrays").as_array().empty())
        array = all.at("arrays").as_array()[0].at("id").as_string().c_str();
      if (!text.starts_with("{\"view\":\"overview\"")) continue;
      std::string running;
      const json::value overview = boost::json::parse(text);
      for (const json::value& graph : overview.at("graphs").as_array()) {
        if (graph.at("state") == "running") running = graph.at("id").as_string().c_str();
      }
      if (running + " " + array == watched) continue;
      watched = running + " " + array;
      const std::string wish =
          R"({"watch":[{"view":"overview"},{"view":"arrays"},{"view":"links"},{"view":"log"})" +
          (array.empty() ? std::string() : R"(,{"view":"array","id":")" + array + "\"}") +
          (running.empty() ? std::string() : R"(,{"view":"graph","id":")" + running + "\"}") + "]}";
      ws_.write(asio::buffer(wish), ec);
    }
  }

  asio::io_context io_;
  websocket::stream<tcp::socket> ws_;
  std::thread thread_;
  std::atomic<int> messages_ = 0;
  std::atomic<std::int64_t> bytes_ = 0;
};

// Microseconds of CPU that one run takes a task, all processes of the cluster together.
double cost_of(const Cluster& cluster, const Session& session, std::int64_t n) {
  const double before = cluster.cpu_seconds();
  if (sum(session.ones({n}, {.block = {1}})).item<double>() != static_cast<double>(n))
    throw std::runtime_error("the sum is wrong");
  return (cluster.cpu_seconds() - before) / (2.0 * static_cast<double>(n)) * 1e6;
}

void bench_cost(const Settings& settings, Report& report) {
  const std::int64_t n = settings.quick ? 500'000 : 1'000'000;
  const int rounds = settings.quick ? 3 : 7;
  const Cluster without("256MiB"), with("256MiB", {}, true);
  const Session plain = without.session(), looked_at = with.session();
  for (int i = 0; i < 2; ++i) cost_of(without, plain, n), cost_of(with, looked_at, n);
  std::vector<double> off, idle, watched;
  int messages = 0;
  std::int64_t bytes = 0;
  for (int round = 0; round < rounds; ++round) {  // in turn, since machines change from second to second
    if (round % 2 == 0) off.push_back(cost_of(without, plain, n));
    idle.push_back(cost_of(with, looked_at, n));
    if (round % 2 == 1) off.push_back(cost_of(without, plain, n));
    const Reader reader(with);
    watched.push_back(cost_of(with, looked_at, n));
    messages += reader.messages();
    bytes += reader.bytes();
  }
  if (messages < rounds) throw std::runtime_error("the reader was told nothing");
  report.note("the reader was told " + std::to_string(messages) + " messages, " +
              std::to_string(bytes / 1024) + " KiB, in " + std::to_string(rounds) + " runs of " +
              std::to_string(2 * n) + " tasks");
  report.at_most({.metric = "CPU a task, dashboard on, nobody watches",
                  .value = median(idle),
                  .unit = "us",
                  .reference = "dashboard off",
                  .reference_value = median(off)},
                 1.02);
  report.at_most({.metric = "CPU a task, every view is followed",
                  .value = median(watched),
                  .unit = "us",
                  .reference = "nobody watches",
                  .reference_value = median(idle)},
                 1.03);
}

// What workers remember of a graph of a million tasks, and of others that copy, wait and spill, as `tilewise trace` tells it.
void record(const Settings& settings, const std::string& disk, const std::string& file) {
  const Cluster cluster("96MiB", {"--trace-records", "4000000", "--spill-dir", disk, "--no-map"}, true);
  const Session session = cluster.session();
  const std::int64_t n = settings.quick ? 100'000 : 1'000'000;
  if (sum(session.ones({n}, {.block = {1}})).item<double>() != static_cast<double>(n))
    throw std::runtime_error("the sum is wrong");
  const Array a = session.random.uniform({1024, 1024}, {.seed = 1, .block = {32, 32}});
  (void)sum(matmul(a, a.T())).item<double>();
  Array large = session.ones({6000, 6000}, {.block = {500, 500}});  // 275 MiB, more than both devices have
  large.persist().wait();
  if (sum(large).item<double>() != 36e6) throw std::runtime_error("a block that was spilled is wrong");
  const testing::Ran ran = cluster.tool({"trace", file, "--json"});
  if (ran.code != 0 || ran.output.find("\"lost\":0,\"cut\":0") == std::string::npos)
    throw std::runtime_error("not all of it was told: " + ran.output + ran.errors);
}

// One line of JSON from the browser's side.
void bench_page(const Settings& settings, Report& report) {
  const std::string folder = BENCH_BROWSER;
  const testing::TempFolder files;
  const std::string trace = files / "trace.json";
  record(settings, files.path(), trace);
  const testing::Ran ran = testing::run({folder + "/run.sh", folder + "/frames.mjs", "--page",
                                         folder + "/../../scheduler/dashboard/web/dist", "--trace", trace},
                                        {}, std::chrono::seconds(200));
  if (ran.code == 77) return report.note("the page was not measured: " + ran.output);
  const std::size_t at = ran.output.rfind("{\"");
  if (ran.code != 0 || at == std::string::npos) throw std::runtime_error(ran.output + ran.errors);
  const json::value said = boost::json::parse(ran.output.substr(at));
  if (!said.at("spills").as_bool() || said.at("transfers").to_number<int>() < 1'000)
    throw std::runtime_error("the trace lacks spills or transfers: " + ran.output);
  report.note("replayed: " + std::to_string(said.at("transfers").to_number<std::int64_t>()) +
              " transfers beside the steps, waits and spills");
  report.at_most({.metric = "frame of the timeline, p95, " +
                            std::to_string(said.at("steps").to_number<std::int64_t>()) + " steps",
                  .value = said.at("frame_p95_ms").to_number<double>(),
                  .unit = "ms"},
                 33);
  report.at_most(
      {.metric = "its drawing alone, p95", .value = said.at("draw_p95_ms").to_number<double>(), .unit = "ms"},
      33);
}

// From the page's address to live figures, while graphs of a million tasks run one after the other.
void bench_open(const Settings& settings, Report& report) {
  const std::string folder = BENCH_BROWSER;
  const Cluster cluster("256MiB", {}, true);
  const Session session = cluster.session();
  const int times = settings.quick ? 3 : 9;
  std::jthread work([&](const std::stop_token& enough) {
    while (!enough.stop_requested()) cost_of(cluster, session, 500'000);
  });
  const testing::Ran ran =
      testing::run({folder + "/run.sh", folder + "/open.mjs", "--link", cluster.tool({"dashboard"}).output,
                    "--devices", std::to_string(session.devices().size()), "--times", std::to_string(times)},
                   {}, std::chrono::seconds(200));
  work.request_stop();
  if (ran.code == 77) return report.note("the page was not opened: " + ran.output);
  const std::size_t at = ran.output.rfind("{\"");
  if (ran.code != 0 || at == std::string::npos) throw std::runtime_error(ran.output + ran.errors);
  const json::value said = boost::json::parse(ran.output.substr(at));
  std::vector<double> open_ms;
  for (const json::value& ms : said.at("open_ms").as_array()) open_ms.push_back(ms.to_number<double>());
  if (said.at("ran").to_number<int>() < times / 2)
    throw std::runtime_error("too little ran meanwhile: " + ran.output);
  report.at_most({.metric = "page open while a million tasks run", .value = median(open_ms), .unit = "ms"},
                 1000);
}

const std::vector<Part> kParts = {{"cost", bench_cost}, {"page", bench_page}, {"open", bench_open}};

}  // namespace
}  // namespace tilewise::bench

int main(int argc, char** argv) { return tilewise::bench::run_parts(argc, argv, tilewise::bench::kParts); }
