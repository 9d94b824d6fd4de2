// Looks at this machine the way a worker would, and says what is not as it should be.
#include <tilewise/config/token.h>
#include <tilewise/config/version.h>
#include <tilewise/daemon/log.h>
#include <tilewise/device/cuda.h>
#include <tilewise/remote/connect.h>
#include <tilewise/transfer/ucx_engine.h>

#include <sys/mman.h>
#include <sys/resource.h>
#include <tilewise/base/text.h>
#include <tilewise/base/utf8.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "commands.h"
#include "control.h"
#include "doctor_system.h"
#include "links.h"

namespace tilewise::cli {
namespace {

class Report {
 public:
  explicit Report(Format format) : format_(format) {}
  void ok(const char* what, const std::string& text) { line("ok", what, text); }
  void warn(const char* what, const std::string& text) { line("warn", what, text), ++warnings_; }
  void fail(const char* what, const std::string& text) { line("fail", what, text), ++failures_; }
  void add(const Finding& finding) {
    finding.verdict == Finding::Verdict::kOk ? ok(finding.what, finding.text)
                                             : warn(finding.what, finding.text);
  }
  int finish() const {
    if (format_ == Format::kJson)
      std::printf("{\"failed\":%d,\"warnings\":%d,\"checks\":[%s]}\n", failures_, warnings_, json_.c_str());
    else
      std::printf("%d failed, %d warnings\n", failures_, warnings_);
    return failures_ > 0 ? 1 : 0;
  }

 private:
  void line(const char* verdict, const char* what, const std::string& text) {
    if (format_ == Format::kText)
      return (void)std::printf("%-5s %-12s %s\n", verdict, what, printable(text).c_str());
    json_ += std::string(json_.empty() ? "" : ",") + "{\"verdict\":" + json_quote(verdict) +
             ",\"what\":" + json_quote(what) + ",\"text\":" + json_quote(text) + "}";
  }
  Format format_;
  std::string json_;
  int failures_ = 0, warnings_ = 0;
};

std::string read_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void check_ucx(Report& report) {
  transfer::UcxEngine::prepare_process();
  auto engine = transfer::UcxEngine::create({});
  if (!engine) return report.fail("ucx", engine.error().message);
  const bool cuda = (*engine)->supports(device::Kind::kCuda);
  report.ok("ucx", std::string("works; memory types: host") + (cuda ? ", cuda" : "") + ", worker address " +
                       std::to_string((*engine)->address().size()) + " bytes");
  if (!cuda && device::cuda_device_count() > 0) {
    report.warn("ucx",
                "this build cannot move CUDA memory: blocks between hosts will be staged through the host");
  }
  const char* tls = std::getenv("UCX_TLS");
  if (tls != nullptr) report.warn("ucx", std::string("UCX_TLS=") + tls + " limits its choice of transports");
}

void check_memfd(Report& report) {
  const int fd = memfd_create("tilewise-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ftruncate(fd, 1 << 20) != 0) {
    report.fail("memfd", std::string(std::strerror(errno)) + ": host devices keep their blocks in memfds");
  } else {
    report.ok("memfd", "can be made");
  }
  if (fd >= 0) close(fd);
}

void check_huge_pages(Report& report) {
  const std::string shmem = read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  if (shmem.empty())
    return report.warn("huge pages", "this kernel has none for shared memory: first touch of slabs is slow");
  if (shmem.find("[advise]") == std::string::npos && shmem.find("[always]") == std::string::npos &&
      shmem.find("[within_size]") == std::string::npos && shmem.find("[force]") == std::string::npos) {
    return report.warn("huge pages", "shmem_enabled is " + shmem +
                                         ": first touch of slabs is slow; root can write " +
                                         "'advise' to /sys/kernel/mm/transparent_hugepage/shmem_enabled");
  }
  report.ok("huge pages", "shmem_enabled " + shmem);
}

void check_limits(Report& report) {
  struct rlimit limit {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const std::string files = std::to_string(limit.rlim_max) +
                            " open files (the hard limit, which workers and schedulers take; soft " +
                            std::to_string(limit.rlim_cur) + ")";
  if (limit.rlim_max < 4096)
    report.warn("nofile",
                files +
                    ": a scheduler needs one a peer, a worker a few a peer and one a slab of memory; "
                    "raise it with ulimit -Hn, LimitNOFILE or --ulimit nofile");
  else
    report.ok("nofile", files);
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur == RLIM_INFINITY)
    report.ok("memlock", "unlimited");
  else
    report.warn("memlock",
                bytes_text(static_cast<std::int64_t>(limit.rlim_cur)) +
                    ": RDMA and pinned memory need 'ulimit -l unlimited'; TCP and shared memory do not");
}

void check_cuda(Report& report) {
  const int count = device::cuda_device_count();
  if (count > 0) return report.ok("cuda", std::to_string(count) + " usable device" + (count == 1 ? "" : "s"));
  report.warn("cuda", "none: " + device::cuda_unavailable_reason() + "; host devices are used");
}

void check_environment(Report& report) {
  for (const char* name : {"OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"}) {
    const char* value = std::getenv(name);
    if (value == nullptr) continue;
    report.warn("openblas", std::string(name) + "=" + value +
                                (std::strcmp(name, "OPENBLAS_CORETYPE") == 0
                                     ? " presets the kernels of OpenBLAS and can halve their speed: unset it"
                                     : " is ignored: the engine owns the threads"));
  }
  if (std::getenv("OPENBLAS_CORETYPE") == nullptr) report.ok("openblas", "picks its kernels for this CPU");
}

void check_processes(Report& report) {
  const std::string scope = read_line("/proc/sys/kernel/yama/ptrace_scope");
  if (scope.empty() || scope == "0")
    report.ok("ptrace", "processes of one user may read each other");
  else if (scope == "1")
    report.ok("ptrace", "yama/ptrace_scope is 1: workers and clients permit their peers to read them");
  else
    report.warn("ptrace", "yama/ptrace_scope is " + scope +
                              ": what is not mapped is copied twice between processes of a host");
  for (const Finding& finding : look_at_namespaces("/proc")) report.add(finding);
}

std::string output_of(const std::string& program) {
  std::string text;
  std::FILE* pipe = ::popen(("'" + program + "' -b 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return text;
  char part[4096];
  for (std::size_t n; text.size() < (1u << 20) && (n = std::fread(part, 1, sizeof part, pipe)) > 0;)
    text.append(part, n);
  ::pclose(pipe);
  return text;
}

// The library tells nobody how it was built; the tool that comes with it does.
void check_ucx_build(Report& report) {
  const std::string library = loaded_library("/proc/self/maps", "libucp.so");
  const std::string tool = ucx_info_beside(library);
  if (tool.empty() || tool.find('\'') != std::string::npos)
    return report.ok("ucx build", library + ": no ucx_info beside it, so its settings cannot be told");
  const std::optional<bool> asserts = has_assertions(output_of(tool));
  if (!asserts) return report.ok("ucx build", library + ": " + tool + " does not tell its settings");
  if (*asserts)
    return report.warn("ucx build",
                       library +
                           " was built with assertions, as Debian's is: it is slower, and may end the "
                           "process where a connection breaks at a bad moment");
  report.ok("ucx build", library + ", without assertions");
}

std::string rate_text(double bytes_per_second) {
  return bytes_text(static_cast<std::int64_t>(bytes_per_second)) + "/s";
}

void check_link(Report& report, const LinkSpeed& link, double copy, double network) {
  const bool in_memory = link.lane == "mapped" || link.lane == "shared-memory" || link.one_host;
  const double limit = in_memory ? copy : network;
  std::string text =
      link.from + " -> " + link.to + ": " + link.lane + ", " + rate_text(link.bytes_per_second);
  if (limit > 0) text += in_memory ? " (one core here copies " : " (the network interface here: ";
  if (limit > 0) text += rate_text(limit) + ")";
  char hop[48];
  std::snprintf(hop, sizeof hop, ", %.0f us a hop", link.hop_us);
  text += hop;
  if (link.bytes_per_second <= 0) return report.warn("link", text + ": nothing was moved");
  if (link.lane == "staged")
    return report.warn("link", text + "; by way of host memory: UCX there has no CUDA (see ucx above)");
  if (link.one_host && link.lane != "mapped")
    return report.warn(
        "link", text +
                    "; one host, yet copied: a worker has --no-map, a GPU cannot be mapped, or they are in " +
                    "different containers (network or PID namespace, user)");
  if (limit > 0 && link.bytes_per_second < limit / 2)
    return report.warn("link",
                       text + "; less than half of that: other work, UCX_TLS, or the network between");
  report.ok("link", text);
}

// Moves real blocks between the workers, so it waits for its turn beside other graphs.
void check_links(Report& report, const DoctorOptions& options, const msg::StatusReply& status) {
  const auto ask = [&]() -> Status {
    TW_ASSIGN(const net::Address address, net::Address::parse(options.scheduler));
    TW_ASSIGN(const config::FoundToken token, config::find_token(options.token_file, false));
    remote::Options remote{.scheduler = address, .token = token.token, .name = "doctor"};
    remote.timeout_ns = options.timeout_ns;
    TW_ASSIGN(auto endpoint, remote::connect(remote));
    const Session session = make_session(
        std::move(endpoint), {.name = "doctor", .timeout = std::chrono::nanoseconds(options.timeout_ns)});
    std::map<WorkerId, std::string> hosts;
    for (const msg::PeerInfo& peer : status.peers) hosts[peer.id] = peer.host_id;
    if (!session.wait_for_devices(status.devices.size(), std::chrono::nanoseconds(options.timeout_ns)))
      return error(Errc::kTimeout, "the devices have not been told of in time");
    bool all = true;
    const std::vector<LinkSpeed> links = measure_links(session, hosts, all);
    const double copy = copy_rate(), network = network_rate();
    for (const LinkSpeed& link : links) check_link(report, link, copy, network);
    if (links.empty()) report.ok("link", "one worker, so there are none");
    if (!all) report.ok("link", "of each worker to the next only: there are many");
    return {};
  };
  try {
    if (Status ok = ask(); !ok) report.warn("link", "not measured: " + daemon::to_string(ok.error()));
  } catch (const ArrayError& e) {
    report.warn("link", std::string("not measured: ") + e.what());
  }
}

void check_scheduler(Report& report, const DoctorOptions& options) {
  if (options.scheduler.empty()) {
    return report.warn("scheduler", "not asked: give --scheduler or set TILEWISE_SCHEDULER");
  }
  auto control = Control::connect(options.scheduler, options.token_file, options.timeout_ns);
  if (!control) return report.fail("scheduler", daemon::to_string(control.error()));
  auto status = (*control)->status();
  if (!status) return report.fail("scheduler", daemon::to_string(status.error()));
  const std::string text =
      (*control)->address() + " answers: " + std::to_string(status->devices.size()) + " devices";
  if (status->devices.empty())
    return report.warn("scheduler", text + ", so nothing can run: start tilewise-worker");
  report.ok("scheduler", text);
  check_links(report, options, *status);
}

}  // namespace

int doctor(const DoctorOptions& options) {
  Report report(options.format);
  report.ok("version", config::software_version() + ", host id " + config::host_id());
  check_ucx(report);
  check_ucx_build(report);
  check_memfd(report);
  check_huge_pages(report);
  report.add(look_at_memory(""));
  report.add(look_at_cores(""));
  check_limits(report);
  check_cuda(report);
  report.add(look_at_gpudirect("/proc", "/sys"));
  check_environment(report);
  check_processes(report);
  if (auto token = config::find_token(options.token_file, false))
    report.ok("token", "from " + token->source);
  else
    report.warn("token", token.error().message);
  check_scheduler(report, options);
  return report.finish();
}

}  // namespace tilewise::cli
