#include "cluster.h"

#include <tilewise/io/stored.h>
#include <tilewise/remote/connect.h>

#include <unistd.h>
#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace tilewise::bench {
namespace {

constexpr Duration kLong = std::chrono::seconds(300);

// CPU time of a process and of its children.
double cpu_seconds_of(int pid) {
  double sum = 0;
  const std::string threads = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& thread : std::filesystem::directory_iterator(threads)) {
    std::ifstream stat(thread.path() / "schedstat"), children(thread.path() / "children");
    double ns = 0;
    if (stat >> ns) sum += ns * 1e-9;
    for (int child = 0; children >> child;) sum += cpu_seconds_of(child);
  }
  return sum;
}

}  // namespace

Cluster::Cluster(const ClusterSettings& settings) {
  const std::string address_file = folder_ / "scheduler";
  const auto program = [&](const std::string& ours, const char* part) {
    return settings.build.empty() ? ours : settings.build + part;
  };
  std::vector<std::string> scheduler{
      program(testing::scheduler_program(), "/scheduler/daemon/tilewise-scheduler"), "--listen",
      "127.0.0.1:0", "--dashboard-listen", settings.dashboard ? "127.0.0.1:0" : "off"};
  if (settings.dashboard)
    scheduler.insert(scheduler.end(), {"--dashboard-address-file", folder_ / "dashboard"});
  scheduler.insert(scheduler.end(), settings.scheduler_args.begin(), settings.scheduler_args.end());
  start(scheduler, address_file);
  address_ = testing::read_file(address_file);
  for (int i = 0; i < 2; ++i) {
    // Each on a core of its own, as a batch system would place them.
    std::vector<std::string> command{
        "/usr/bin/taskset", "-c",
        std::to_string(i),  program(testing::worker_program(), "/worker/daemon/tilewise-worker"),
        "--scheduler",      address_,
        "--cores",          "1",
        "--devices",        "host:0",
        "--memory",         settings.memory};
    command.insert(command.end(), settings.worker_args.begin(), settings.worker_args.end());
    start(command, folder_ / ("worker" + std::to_string(i)));
  }
}

std::unique_ptr<client::Endpoint> Cluster::endpoint() const {
  const auto token = net::Token::load(folder_ / "token");
  if (!token) throw ArrayError(token.error());
  auto endpoint =
      remote::connect({.scheduler = *net::Address::parse(address_), .token = *token, .name = "bench"});
  if (!endpoint) throw ArrayError(endpoint.error());
  return std::move(*endpoint);
}

Session Cluster::session(std::unique_ptr<client::Endpoint> endpoint) {
  Session session =
      make_session(std::move(endpoint), {.name = "bench", .timeout = kLong, .inspect = io::inspect});
  if (!session.wait_for_devices(2, testing::kPatience)) throw std::runtime_error("the workers are not there");
  return session;
}

double Cluster::scheduler_cpu_seconds() const {
  std::ifstream stat("/proc/" + std::to_string(processes_.front()->pid()) + "/schedstat");  // nanoseconds
  double ns = 0;
  stat >> ns;
  return ns * 1e-9;
}

double Cluster::cpu_seconds() const {
  double sum = 0;
  for (std::size_t i = 0; i < processes_.size(); ++i) sum += cpu_seconds(i);
  return sum;
}

double Cluster::cpu_seconds(std::size_t process) const { return cpu_seconds_of(processes_[process]->pid()); }

std::int64_t Cluster::resident_bytes(std::size_t process) const {
  std::ifstream statm("/proc/" + std::to_string(testing::working(processes_[process]->pid())) + "/statm");
  std::int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

testing::Ran Cluster::tool(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), {testing::tool_program(), "--scheduler", address_, "--token-file",
                                       folder_ / "token", "--timeout", "60"});
  const std::string page = folder_ / "dashboard";
  if (std::filesystem::exists(page))
    arguments.insert(arguments.end(), {"--dashboard", testing::read_file(page)});
  return testing::run(std::move(arguments), {}, kLong);
}

std::vector<std::int64_t> Cluster::peaks() const {
  const testing::Ran ran = tool({"--json", "devices"});
  std::vector<std::int64_t> out;
  static const std::string key = "\"peak_bytes\":";
  for (std::size_t at = ran.output.find(key); at != std::string::npos; at = ran.output.find(key, at + 1))
    out.push_back(std::stoll(ran.output.substr(at + key.size())));
  if (out.empty()) throw std::runtime_error("no devices in the tool's answer: " + ran.output + ran.errors);
  return out;
}

void Cluster::start(std::vector<std::string> command, const std::string& address_file) {
  for (const char* word : {"--token-file", "TOKEN", "--address-file", "FILE", "--log-level", "warn"}) {
    command.push_back(word == std::string("TOKEN")  ? folder_ / "token"
                      : word == std::string("FILE") ? address_file
                                                    : word);
  }
  processes_.push_back(std::make_unique<testing::Process>("bench", command));
  testing::Process& process = *processes_.back();
  testing::eventually([&] { return std::filesystem::exists(address_file) || !process.running(); });
  if (!std::filesystem::exists(address_file)) {
    throw std::runtime_error("the cluster did not start: " + process.output() + process.errors());
  }
}

}  // namespace tilewise::bench
