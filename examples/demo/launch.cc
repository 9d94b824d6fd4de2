#include "launch.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace demo {
namespace {

std::string read_all(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Installed, the programs are beside this one; in a build tree, where theirs are built.
std::string program(const std::string& name, const std::string& build_folder) {
  const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const std::filesystem::path beside = here / name, built = here / build_folder / name;
  if (std::filesystem::exists(beside)) return beside;
  if (std::filesystem::exists(built)) return built.lexically_normal();
  throw std::runtime_error(beside.string() + ": no such program");
}

std::string first_line(std::string text) { return text.substr(0, text.find('\n')); }

}  // namespace

ProcessCluster::ProcessCluster(const Options& options) {
  std::string pattern = (std::filesystem::temp_directory_path() / "tilewise-demo.XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  folder_ = pattern;
  watch_over_folder();
  const std::string token = folder_ / "token";
  spawn({program("tilewise-scheduler", "../../scheduler/daemon"), "--listen", "127.0.0.1:0", "--address-file",
         folder_ / "scheduler", "--token-file", token, "--log-level", "warn"},
        "scheduler.log");
  address_ = await_file("scheduler", "scheduler.log");
  for (int w = 0; w < options.workers; ++w) {
    const std::string name = "worker" + std::to_string(w);
    spawn({program("tilewise-worker", "../../worker/daemon"), "--scheduler", address_, "--token-file", token,
           "--address-file", folder_ / name, "--devices", options.devices, "--cores",
           std::to_string(options.cores), "--name", name, "--log-level", "warn"},
          name + ".log");
  }
  for (int w = 0; w < options.workers; ++w) {
    const std::string name = "worker" + std::to_string(w);
    (void)await_file(name, name + ".log");
  }
}

ProcessCluster::~ProcessCluster() {
  for (pid_t pid : processes_) kill(pid, SIGTERM);
  for (pid_t pid : processes_) {
    for (int i = 0; i < 200 && waitpid(pid, nullptr, WNOHANG) == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (i == 199) kill(pid, SIGKILL);
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
  close(alive_);
  waitpid(janitor_, nullptr, 0);
}

// The folder holds a token and goes even if this process is interrupted or killed: a process that does nothing else sees
// the end of the pipe. Workers and scheduler end by PR_SET_PDEATHSIG.
void ProcessCluster::watch_over_folder() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  janitor_ = fork();
  if (janitor_ < 0) throw std::runtime_error("fork failed");
  alive_ = ends[1];
  if (janitor_ > 0) {
    close(ends[0]);
    return;
  }
  close(ends[1]);
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  for (int fd = 0; fd < 64; ++fd) {
    if (fd != ends[0]) close(fd);  // who waits for the end of our output must not wait for this process
  }
  char byte;
  while (read(ends[0], &byte, 1) < 0 && errno == EINTR) {
  }
  std::error_code ignored;
  for (int i = 0; i < 20 && std::filesystem::exists(folder_, ignored);
       ++i) {  // what still ends may still write
    std::filesystem::remove_all(folder_, ignored);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  _exit(0);
}

pid_t ProcessCluster::spawn(const std::vector<std::string>& command, const std::string& log) {
  const std::string path = folder_ / log;
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("fork failed");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    const int out = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  processes_.push_back(pid);
  return pid;
}

std::string ProcessCluster::await_file(const std::string& name, const std::string& log) const {
  for (int i = 0; i < 3000; ++i) {
    if (std::filesystem::exists(folder_ / name)) return first_line(read_all(folder_ / name));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  throw std::runtime_error(name + " did not start:\n" + read_all(folder_ / log));
}

void ProcessCluster::enter_environment() const {
  setenv("TILEWISE_SCHEDULER", address_.c_str(), 1);
  setenv("TILEWISE_TOKEN_FILE", (folder_ / "token").c_str(), 1);
}

std::string ProcessCluster::run_tool(const std::string& arguments) const {
  std::string out;
  FILE* pipe = popen((program("tilewise", ".") + " " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return "the tool did not start";
  char buffer[4096];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) out.append(buffer, n);
  pclose(pipe);
  return out;
}

}  // namespace demo
