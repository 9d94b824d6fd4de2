// A cluster of real processes to measure: a scheduler and two workers with one core and one host device each.
#pragma once
#include <tilewise/tilewise.h>

#include <memory>
#include <string>
#include <vector>

#include "../integration/harness.h"

namespace tilewise::bench {

struct ClusterSettings {
  std::string memory;
  std::vector<std::string> worker_args = {}, scheduler_args = {};
  bool dashboard = false;
  std::string build = {};  // another build's folder, whose programs are to be measured; empty: this one's
};

// The tests' harness chooses memory and logs for tests; figures want their own.
class Cluster {
 public:
  explicit Cluster(const ClusterSettings& settings);
  explicit Cluster(const std::string& memory, const std::vector<std::string>& worker_args = {},
                   bool dashboard = false)
      : Cluster(ClusterSettings{memory, worker_args, {}, dashboard}) {}

  std::unique_ptr<client::Endpoint> endpoint() const;
  // With both workers there. Throws where they do not come.
  static Session session(std::unique_ptr<client::Endpoint> endpoint);
  Session session() const { return session(endpoint()); }

  // CPU time of the scheduler so far: of its main thread, which does all the work.
  double scheduler_cpu_seconds() const;
  // CPU time of all threads so far, of all its processes or of one: 0 the scheduler, then the workers. A supervisor's
  // worker counts as its own.
  double cpu_seconds() const;
  double cpu_seconds(std::size_t process) const;
  std::size_t size() const { return processes_.size(); }
  std::string dashboard() const {
    return testing::read_file(folder_ / "dashboard");
  }  // "tcp://127.0.0.1:..."
  net::Token token() const { return *net::Token::load(folder_ / "token"); }
  // Memory that a process has resident now: 0 the scheduler, then the workers.
  std::int64_t resident_bytes(std::size_t process) const;
  // The command-line tool, with the addresses of this cluster.
  testing::Ran tool(std::vector<std::string> arguments) const;
  // Most bytes of blocks that each device has had at once, as the workers say.
  std::vector<std::int64_t> peaks() const;

 private:
  void start(std::vector<std::string> command, const std::string& address_file);

  testing::TempFolder folder_;
  std::string address_;
  std::vector<std::unique_ptr<testing::Process>> processes_;  // the scheduler first
};

}  // namespace tilewise::bench
