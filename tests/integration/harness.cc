#include "harness.h"
#include "network.h"

#include <tilewise/io/stored.h>
#include <tilewise/remote/connect.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace tilewise::testing {
namespace {

int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(left) + 1;
}

// Nothing of the surroundings: a cluster of the developer's own must not be joined.
std::vector<std::string> environment_of(const Environment& added) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view said(*entry);
    if (!said.starts_with("TILEWISE_") && !added.contains(std::string(said.substr(0, said.find('=')))))
      all.emplace_back(said);
  }
  for (const auto& [name, value] : added) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

TempFolder& logs() {
  static TempFolder folder;
  return folder;
}

}  // namespace

bool eventually(const std::function<bool()>& condition, Clock::duration within) {
  const Clock::time_point deadline = Clock::now() + within;
  while (!condition()) {
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  std::string out = text.str();
  while (!out.empty() && out.back() == '\n' && out.find('\n') == out.size() - 1) out.pop_back();
  return out;
}

// ---- one process ---------------------------------------------------------------------------------------------------

Process::Process(const std::string& label, std::vector<std::string> command, const Environment& environment) {
  static std::atomic<int> count = 0;  // several threads may begin processes
  const std::string name = label + "." + std::to_string(++count);
  output_ = logs() / (name + ".out");
  errors_ = logs() / (name + ".err");
  std::vector<std::string> variables = environment_of(environment);
  const std::vector<char*> argv = pointers(command), envp = pointers(variables);
  const int parent = getpid();
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  const int out = open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int err = open(errors_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  execve(argv[0], argv.data(), envp.data());
  _exit(127);
}

Process::~Process() {
  if (wait(Clock::duration(0))) return;
  signal(SIGKILL);
  (void)wait(seconds(10));
}

void Process::signal(int number) const {
  if (!code_) kill(pid_, number);
}

std::optional<int> Process::wait(Clock::duration within) {
  if (code_) return code_;
  const Clock::time_point deadline = Clock::now() + within;
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  pollfd waiting{handle, POLLIN, 0};
  int ready = 0;
  do {
    ready = poll(&waiting, 1, milliseconds_until(deadline));
  } while (ready < 0 && errno == EINTR);
  close(handle);
  int status = 0;
  if (ready <= 0 || waitpid(pid_, &status, 0) != pid_) return std::nullopt;
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return code_;
}

int child_of(int pid) {
  const std::string number = std::to_string(pid);
  const std::string said = read_file("/proc/" + number + "/task/" + number + "/children");
  return said.empty() ? 0 : std::stoi(said);
}

int working(int pid) {
  const int child = child_of(pid);
  return child != 0 ? child : pid;
}

Ran run(std::vector<std::string> command, const Environment& environment, Clock::duration within) {
  Process process("run", std::move(command), environment);
  const std::optional<int> code = process.wait(within);
  return {code.value_or(-1), process.output(), process.errors()};
}

std::string scheduler_program() { return TILEWISE_SCHEDULER_PROGRAM; }
std::string worker_program() { return TILEWISE_WORKER_PROGRAM; }
std::string tool_program() { return TILEWISE_TOOL_PROGRAM; }
std::string client_program() { return TILEWISE_CLIENT_PROGRAM; }

// ---- a cluster -----------------------------------------------------------------------------------------------------

Cluster::Cluster(const ClusterOptions& options)
    : options_(options), token_file_(folder_ / "token"), devices_(options.devices) {
  if (options.network != nullptr && !net::Token::create(token_file_)) throw std::runtime_error("no token");
  start_scheduler(options.network != nullptr ? options.network->here() + ":0" : "127.0.0.1:0", state_dir());
  address_ = read_file(folder_ / "scheduler");
  for (int i = 0; i < options.workers; ++i) add_worker(options.worker_args);
  for (int i = 0; i < options.workers; ++i) expect_file(worker_file(i), worker(i));
}

void Cluster::expect_file(const std::string& file, Process& process) {
  const bool ok = eventually([&] { return std::filesystem::exists(file) || !process.running(); });
  if (!ok || !std::filesystem::exists(file))
    throw std::runtime_error("the cluster did not start:\n" + words());
}

void Cluster::start_scheduler(const std::string& listen, const std::string& state_dir) {
  const std::string address_file = folder_ / "scheduler";
  std::filesystem::remove(address_file);
  std::vector<std::string> command{scheduler_program(), "--listen",    listen,
                                   "--address-file",    address_file,  "--token-file",
                                   token_file_,         "--log-level", "debug"};
  const std::vector<std::string>& more = options_.scheduler_args;
  // A dashboard where a test asks for one: its usual port is one for all.
  if (std::find(more.begin(), more.end(), "--dashboard-listen") == more.end())
    command.insert(command.end(), {"--dashboard-listen", "off"});
  if (options_.keep_state) command.insert(command.end(), {"--state-dir", state_dir});
  command.insert(command.end(), more.begin(), more.end());
  scheduler_ = std::make_unique<Process>("scheduler", command, options_.scheduler_environment);
  expect_file(address_file, *scheduler_);
}

void Cluster::restart_scheduler(bool same_state) {
  if (!scheduler_->wait()) throw std::runtime_error("the scheduler has not ended");
  past_words_ += scheduler_->output() + scheduler_->errors() + "\n---- again\n";
  start_scheduler(address_.substr(address_.find("//") + 2),
                  same_state ? state_dir() : state_dir() + "-other");
}

void Cluster::add_worker(const std::vector<std::string>& arguments, const std::string& scheduler,
                         const Environment& environment) {
  const int i = static_cast<int>(workers_.size());
  std::vector<std::string> command{worker_program(),
                                   "--scheduler",
                                   scheduler.empty() ? address_ : scheduler,
                                   "--token-file",
                                   token_file_,
                                   "--address-file",
                                   worker_file(i),
                                   "--cores",
                                   "1",
                                   "--memory",
                                   options_.memory,
                                   "--name",
                                   "worker-" + std::to_string(i),
                                   "--log-level",
                                   "debug",
                                   "--reconnect-timeout",
                                   std::to_string(options_.reconnect.count())};
  if (std::find(arguments.begin(), arguments.end(), "--devices") == arguments.end())
    command.insert(command.end(), {"--devices", "host:0-" + std::to_string(devices_ - 1)});
  if (options_.network != nullptr) {
    const int host = i % options_.network->hosts();
    const std::vector<std::string> there = options_.network->prefix(host);
    command.insert(command.begin(), there.begin(), there.end());
    command.insert(command.end(), {"--listen", "0.0.0.0:0", "--advertise", options_.network->address(host)});
  }
  command.insert(command.end(), arguments.begin(), arguments.end());
  workers_.push_back(std::make_unique<Process>("worker", command, environment));
}

Environment Cluster::environment() const {
  return {{"TILEWISE_SCHEDULER", address_}, {"TILEWISE_TOKEN_FILE", token_file_}};
}

Ran Cluster::tool(std::vector<std::string> arguments) const {
  arguments.insert(arguments.begin(), tool_program());
  return run(std::move(arguments), environment());
}

std::string Cluster::status() const { return tool({"status", "--json"}).output; }

Session Cluster::session(const std::string& name, bool map_peers, const std::string& scheduler) const {
  remote::Options options{.scheduler = *net::Address::parse(scheduler.empty() ? address_ : scheduler),
                          .token = token()};
  options.name = name;
  options.map_peers = map_peers;
  options.reconnect_ns = options_.reconnect.count() * kSecond;
  auto endpoint = remote::connect(options);
  if (!endpoint) throw ArrayError(endpoint.error());
  return make_session(std::move(*endpoint), {.name = name, .timeout = kPatience, .inspect = io::inspect});
}

std::string Cluster::words() const {
  std::string text = "scheduler: " + past_words_ + scheduler_->output() + scheduler_->errors();
  for (const auto& worker : workers_) text += "\nworker: " + worker->output() + worker->errors();
  return text;
}

bool nothing_left(const Cluster& cluster) {
  return eventually([&] { return cluster.status().find("\"arrays_live\":0,") != std::string::npos; });
}

Array long_work(const Session& session) {
  Array x = session.random.uniform({1024, 1024}, {.seed = 3, .block = {256, 256}});
  for (int i = 0; i < 400; ++i) x = matmul(x, x) * (1.0 / 512);
  return x;
}

}  // namespace tilewise::testing
