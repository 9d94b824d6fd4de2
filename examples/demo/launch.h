// A cluster of real processes for the demo: one scheduler, some workers, ended with the object.
#pragma once
#include <tilewise/tilewise.h>

#include <sys/types.h>
#include <filesystem>
#include <string>
#include <vector>

namespace demo {

class ProcessCluster {
 public:
  struct Options {
    int workers = 2;
    std::string devices = "host:0-1";  // of each worker
    int cores = 1;                     // of each worker
  };
  // Throws std::runtime_error with the programs' own words where something does not start within a minute.
  explicit ProcessCluster(const Options& options);
  ~ProcessCluster();  // SIGTERM, then SIGKILL
  ProcessCluster(const ProcessCluster&) = delete;
  ProcessCluster& operator=(const ProcessCluster&) = delete;

  // Sets what tilewise::connect() and the tool look for, in this process's environment.
  void enter_environment() const;
  const std::filesystem::path& folder() const { return folder_; }  // temporary; for files that workers read
  std::string run_tool(const std::string& arguments) const;        // the tool's output

 private:
  void watch_over_folder();
  pid_t spawn(const std::vector<std::string>& command, const std::string& log);
  std::string await_file(const std::string& name, const std::string& log) const;

  std::filesystem::path folder_;
  std::string address_;
  std::vector<pid_t> processes_;
  pid_t janitor_ = -1;
  int alive_ = -1;  // open as long as this process lives
};

}  // namespace demo
