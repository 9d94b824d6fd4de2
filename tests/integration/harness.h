// Real processes for tests: a program that cannot outlive the test, and a cluster of them.
#pragma once
#include <tilewise/net/token.h>
#include <tilewise/tilewise.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../sanitizers.h"
#include "../temp_folder.h"

namespace tilewise::testing {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

// Far above what anything takes, far below what a test may: on a busy machine a test is late, not wrong.
constexpr seconds kPatience{40 * kTimesSlower};

// Asks until it is true; false when the time is over.
bool eventually(const std::function<bool()>& condition, Clock::duration within = kPatience);

std::string read_file(const std::string& path);
inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

using Environment = std::map<std::string, std::string>;

// Killed with the test, whatever ends that. Output goes to files.
class Process {
 public:
  Process(const std::string& label, std::vector<std::string> command, const Environment& environment = {});
  ~Process();  // SIGKILL, if it is still there
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  int pid() const { return pid_; }
  void signal(int number) const;
  // The exit code, 128 + the signal's number, or nothing if it runs on.
  std::optional<int> wait(Clock::duration within = kPatience);
  bool running() { return !wait(Clock::duration(0)).has_value(); }
  std::string output() const { return read_file(output_); }  // stdout
  std::string errors() const { return read_file(errors_); }

 private:
  std::string output_, errors_;
  int pid_ = 0;
  std::optional<int> code_;
};

// The one process that a process has started, a supervisor's worker for one; 0 while there is none.
int child_of(int pid);
// The process that works where `pid` only watches over it; `pid` where nobody does, or nobody works just now. A worker's own
// process is its supervisor: SIGKILL there takes both, and nobody tells what was executed; a signal that is to reach the worker
// alone, or to stop it, goes here.
int working(int pid);

struct Ran {
  int code = -1;  // -1: killed for being late
  std::string output, errors;
};
Ran run(std::vector<std::string> command, const Environment& environment = {},
        Clock::duration within = kPatience);

std::string scheduler_program();
std::string worker_program();
std::string tool_program();
std::string client_program();  // client.cc

class Network;  // network.h

struct ClusterOptions {
  int workers = 2;
  int devices = 2;  // of each worker
  std::string memory = "512MiB";
  std::vector<std::string> scheduler_args = {};
  std::vector<std::string> worker_args = {};
  Environment scheduler_environment = {};
  bool keep_state = false;           // the scheduler can be started again
  seconds reconnect{60};             // of workers and sessions
  const Network* network = nullptr;  // worker i on its host i (round and round); the rest here
};

// A scheduler and workers, all ready. Throws, with the programs' own words, where that does not come about.
class Cluster {
 public:
  explicit Cluster(const ClusterOptions& options = {});

  const std::string& address() const { return address_; }
  const std::string& token_file() const { return token_file_; }
  net::Token token() const { return *net::Token::load(token_file_); }
  Process& scheduler() { return *scheduler_; }
  Process& worker(int i) { return *workers_[static_cast<std::size_t>(i)]; }
  // Where peers connect to worker i.
  std::string worker_address(int i) const { return read_file(worker_file(i)); }
  Environment environment() const;  // what a client or the tool needs
  Ran tool(std::vector<std::string> arguments) const;
  std::string status() const;  // as JSON
  // `scheduler`: by another way than the address, if there is one.
  Session session(const std::string& name = "test", bool map_peers = true,
                  const std::string& scheduler = {}) const;
  // `scheduler`: by another way than the others', if there is one.
  void add_worker(const std::vector<std::string>& arguments, const std::string& scheduler = {},
                  const Environment& environment = {});
  // After its end: another one at the same address, with the same state unless told otherwise. Returns when it is ready.
  void restart_scheduler(bool same_state = true);
  std::string state_dir() const { return folder_ / "state"; }
  std::string words() const;  // all logs

 private:
  std::string worker_file(int i) const { return folder_ / ("worker" + std::to_string(i)); }

  TempFolder folder_;
  void expect_file(const std::string& file, Process& process);
  void start_scheduler(const std::string& listen, const std::string& state_dir);

  ClusterOptions options_;
  std::string token_file_, address_;
  int devices_ = 0;
  std::unique_ptr<Process> scheduler_;
  std::string past_words_;  // of schedulers that are gone
  std::vector<std::unique_ptr<Process>> workers_;
};

// Sooner or later no array is alive any more.
bool nothing_left(const Cluster& cluster);

// Minutes of small tasks: something to be in the middle of.
Array long_work(const Session& session);

}  // namespace tilewise::testing
