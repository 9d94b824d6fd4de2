// A cluster of real processes to measure: a scheduler and two workers with one core and one host device each.
#pragma once
#include <tilewise/tilewise.h>

#include <memory>
#include <string>
#include <vector>

#include "../integration/harness.h"

namespace tilewise::bench {

// The tests' harness chooses memory and logs for tests; figures want their own.
class Cluster {
 public:
  explicit Cluster(const std::string& memory, const std::vector<std::string>& more = {});

  std::unique_ptr<client::Endpoint> endpoint() const;
  // With both workers there. Throws where they do not come.
  static Session session(std::unique_ptr<client::Endpoint> endpoint);
  Session session() const { return session(endpoint()); }

  // CPU time of the scheduler's process so far.
  double scheduler_cpu_seconds() const;
  // Most memory that the scheduler's process has had, and has, resident.
  std::int64_t scheduler_resident_bytes() const;

 private:
  void start(std::vector<std::string> command, const std::string& address_file);

  testing::Folder folder_;
  std::string address_;
  std::vector<std::unique_ptr<testing::Process>> processes_;  // the scheduler first
};

}  // namespace tilewise::bench
