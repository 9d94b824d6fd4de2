// tilewise-scheduler: one of these per cluster.
#include <tilewise/config/token.h>
#include <tilewise/config/version.h>
#include <tilewise/daemon/log.h>
#include <tilewise/daemon/program.h>
#include <tilewise/plan/plan.h>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "bridge.h"

using namespace tilewise;

namespace {

const std::string kName = "tilewise-scheduler";

struct Settings {
  daemon::CommonOptions common;
  std::uint32_t term = 1;
  std::vector<std::string> passes_off;
  std::size_t max_peers = 4096;
  double max_recompute_s = 30;
  std::size_t max_lineage_ops = scheduler::Options{}.max_lineage_ops;
  double worker_wait_s = 30;
  bool rebalance = true;
  bool no_link_probes = false;
  std::string state_dir;
  bool state_sync = false;
  double state_timeout_s = 90;
  std::string checkpoint_dir;
  std::string dashboard_listen, dashboard_address_file;  // empty: the usual one, if it is free
  std::vector<std::string> dashboard_hosts;
};

constexpr const char* kDashboardListen = "127.0.0.1:7421";
constexpr TimeNs kRebalanceNs = 100 * kMillisecond;  // how often running ops are looked at
constexpr std::size_t kHistoryGraphs = 128;          // that ended, shown by the dashboard

bool has_dashboard(const Settings& settings) { return settings.dashboard_listen != "off"; }

void keep_log(dashboard::LogRing& ring, daemon::LogLevel level, std::string_view event,
              std::initializer_list<daemon::Field> fields) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  dashboard::LogLine line{0,
                          std::chrono::duration_cast<std::chrono::milliseconds>(now).count(),
                          static_cast<int>(level),
                          std::string(event),
                          {}};
  for (const daemon::Field& field : fields) line.fields.emplace_back(field.key, field.value);
  ring.add(std::move(line));
}

// Its own address, its own rule about public ones (D12): what is wrong here is wrong with the options.
Result<dashboard::Options> dashboard_options(const Settings& settings, const config::FoundToken& token) {
  TW_ASSIGN(
      net::Address address,
      net::Address::parse(settings.dashboard_listen.empty() ? kDashboardListen : settings.dashboard_listen));
  TW_TRY(net::check_exposure(address, token.chosen));
  return dashboard::Options{.listen = std::move(address),
                            .hosts = settings.dashboard_hosts,
                            .token = token.token,
                            .version = config::software_version(),
                            .history_ns = 5 * kSecond};
}

// Peers are told first, by links that close: a process whose thread waits for a dead disk is not gone before the kernel lets go of it.
void shut_all_links() {
  const auto highest = static_cast<int>(std::min<long>(sysconf(_SC_OPEN_MAX), 1 << 20));
  for (int fd = STDERR_FILENO + 1; fd < highest; ++fd)
    (void)::shutdown(fd, SHUT_RDWR);  // of what is no socket: refused
}

std::unique_ptr<scheduler::DiskWatch> watch_disk(const Settings& settings) {
  if (settings.state_dir.empty()) return nullptr;
  const auto where = [directory = settings.state_dir](const char* doing, TimeNs waited_ns) {
    return "the disk of --state-dir " + directory + " has not answered for " +
           std::to_string(waited_ns / kSecond) + " s (" + doing + ")";
  };
  const auto on_late = [where](const char* doing, TimeNs waited_ns) {
    daemon::log_warn("everybody waits for the disk", {{"why", where(doing, waited_ns)}});
  };
  const auto on_limit = [where](const char* doing, TimeNs waited_ns) {
    shut_all_links();
    _exit(daemon::fail(kName, Error{Errc::kTimeout, where(doing, waited_ns) + ": ending (--state-timeout)"},
                       daemon::kExitFailure));
  };
  return std::make_unique<scheduler::DiskWatch>(
      scheduler::DiskWatch::Options{.limit_ns = static_cast<TimeNs>(settings.state_timeout_s * 1e9)}, on_late,
      on_limit);
}

// Workers are told the path, wherever they were started.
Status check_checkpoint_dir(const Settings& settings) {
  const std::string& path = settings.checkpoint_dir;
  if (path.empty()) return {};
  if (path.front() != '/' || path.size() > limits::kMaxPathBytes / 2)
    return error(Errc::kInvalidArgument, "--checkpoint-dir is a whole path, from / on, not '" + path + "'");
  if (settings.state_dir.empty())
    return error(
        Errc::kInvalidArgument,
        "--checkpoint-dir needs --state-dir: nobody else would know which files are left from before");
  return {};
}

int serve(const Settings& settings) {
  const auto usage = [](const Error& error) { return daemon::fail(kName, error, daemon::kExitUsage); };
  const auto failure = [](const Error& error) { return daemon::fail(kName, error, daemon::kExitFailure); };
  const daemon::CommonOptions& common = settings.common;
  if (Status ok = daemon::start_log(kName, common.log_level, common.log_format); !ok)
    return usage(ok.error());
  const auto listen = net::Address::parse(common.listen);
  if (!listen) return usage(listen.error());
  if (Status ok = check_checkpoint_dir(settings); !ok) return usage(ok.error());
  if (Status ok = plan::check_off(settings.passes_off); !ok) {
    ok.error().message = "--passes-off: " + ok.error().message;
    return usage(ok.error());
  }
  const auto token = config::find_token(common.token_file, net::is_loopback(*listen));
  if (!token && net::is_loopback(*listen)) return failure(token.error());
  // A token made up at this start is known to nobody: an address for other hosts needs one that somebody chose.
  if (Status ok = net::check_exposure(*listen, token && token->chosen); !ok) return usage(ok.error());
  if (!token) return failure(token.error());
  if (!token->chosen)
    daemon::log(common.token_file.empty() ? daemon::LogLevel::kInfo : daemon::LogLevel::kWarn,
                "there was no token, a new one was made", {{"file", token->source}});

  auto loop =
      net::EventLoop::create({.spin_ns = daemon::usable_cores(common.cores) > 2 ? 20 * kMicrosecond : 0});
  if (!loop) return failure(loop.error());
  if (settings.state_dir.empty())
    daemon::log_warn("no state is kept", {{"why", "sessions and what they hold end with this process"},
                                          {"option", "--state-dir"}});
  const auto disk_watch = watch_disk(settings);
  scheduler::ServerOptions options{.listen = *listen,
                                   .token = token->token,
                                   .core = {},
                                   .state_dir = settings.state_dir,
                                   .state_sync = settings.state_sync,
                                   .checkpoint_dir = settings.checkpoint_dir,
                                   .disk_watch = disk_watch.get()};
  options.core.silence_ns = static_cast<TimeNs>(common.silence_timeout_s * 1e9);
  options.core.ping_every_ns = std::min(options.core.ping_every_ns, options.core.silence_ns / 4);
  options.core.term = settings.term;
  options.core.software_version = config::software_version();
  options.core.passes_off = settings.passes_off;
  options.core.max_peers = settings.max_peers;
  options.core.link_probes = !settings.no_link_probes;
  options.core.max_recompute_ns = static_cast<TimeNs>(settings.max_recompute_s * 1e9);
  options.core.max_lineage_ops = settings.max_lineage_ops;
  options.core.recovery_wait_ns = static_cast<TimeNs>(settings.worker_wait_s * 1e9);
  if (settings.rebalance) options.core.rebalance.every_ns = kRebalanceNs;
  options.core.history_graphs =
      has_dashboard(settings) ? kHistoryGraphs : 1;  // the log tells of ends from it
  auto server = scheduler::Server::open(**loop, options, [&loop] { (*loop)->stop(); });
  if (!server) return failure(server.error());
  dashboard::LogRing lines;
  scheduler::Bridge bridge(**loop, **server);
  std::unique_ptr<dashboard::Dashboard> dashboard;  // its thread ends before what it asks
  if (has_dashboard(settings)) {
    const auto page = dashboard_options(settings, *token);
    if (!page) return usage(page.error());
    daemon::set_log_tap(
        [&lines](daemon::LogLevel level, std::string_view event,
                 std::initializer_list<daemon::Field> fields) { keep_log(lines, level, event, fields); });
    auto opened = dashboard::Dashboard::open(*page, bridge, lines);
    // Whoever looks the address up finds any; who expects the usual one would find somebody else's scheduler there.
    if (!opened && settings.dashboard_listen.empty() && !settings.dashboard_address_file.empty()) {
      dashboard::Options elsewhere = *page;
      elsewhere.listen.port = 0;
      opened = dashboard::Dashboard::open(elsewhere, bridge, lines);
    }
    if (!opened && !settings.dashboard_listen.empty()) return failure(opened.error());
    if (opened)
      dashboard = std::move(*opened);
    else  // somebody else's scheduler has it, most likely: not worth ending for
      daemon::log_warn("no dashboard", {{"why", opened.error().message}, {"option", "--dashboard-listen"}});
  }
  if (dashboard) {
    daemon::log_info("dashboard", {{"address", "http://" + dashboard->address().to_string().substr(6)},
                                   {"login", "tilewise dashboard"}});
    if (!settings.dashboard_address_file.empty()) {
      if (Status ok =
              daemon::write_address_file(settings.dashboard_address_file, dashboard->address().to_string());
          !ok)
        return failure(ok.error());
    }
  }
  const auto address = daemon::advertised(common.advertise, (*server)->address());
  if (!address) return usage(address.error());
  const Status signals = (*loop)->on_signals([&](int signal) {
    if (signal == SIGHUP) return daemon::log_hangup();
    daemon::log_info("ending", {{"signal", strsignal(signal)}});
    (*loop)->stop();
  });
  if (!signals) return failure(signals.error());
  if (!common.address_file.empty()) {
    if (Status ok = daemon::write_address_file(common.address_file, address->to_string()); !ok)
      return failure(ok.error());
  }
  daemon::log_info("ready", {{"address", address->to_string()},
                             {"token", token->source},
                             {"version", config::software_version()},
                             {"term", (*server)->term()}});
  (*loop)->run();
  dashboard.reset();
  const Status kept = (*server)->failure();
  server->reset();  // closes every link: workers and clients see it at once
  if (kept) daemon::log_info("ended");
  daemon::set_log_tap({});
  daemon::never_destroy(std::move(*loop));
  return kept ? daemon::kExitOk : failure(kept.error());
}

}  // namespace

int main(int argc, char** argv) {
  daemon::outlive_readers();
  daemon::name_refusals("tilewise-scheduler");
  daemon::raise_file_limit();
  Settings settings;
  settings.common.listen = "127.0.0.1:7420";
  CLI::App app("The scheduler of a Tilewise cluster", kName);
  daemon::add_common_options(app, settings.common);
  app.add_option("--term", settings.term,
                 "Number of this scheduler life; must rise from one life to the next")
      ->capture_default_str()
      ->check(CLI::Range(1u, 0xFFFFFFu));
  app.add_option(
      "--state-dir", settings.state_dir,
      "Directory to keep the state in: started again with it, the scheduler goes on where it died");
  app.add_flag("--state-sync", settings.state_sync,
               "Wait for the disk before anybody sees a step: outlives the host, not only the process");
  app.add_option(
         "--state-timeout", settings.state_timeout_s,
         "Seconds: a disk of --state-dir that has not answered for so long ends the scheduler; 0: never")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--checkpoint-dir", settings.checkpoint_dir,
                 "Folder that all workers see, for arrays that would take long to make again and that no "
                 "other worker can take");
  app.add_option("--passes-off", settings.passes_off, "Planning passes to leave out, by name")
      ->delimiter(',');
  app.add_option("--max-peers", settings.max_peers, "Workers, clients and tools that may be joined at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  app.add_option(
         "--max-recompute", settings.max_recompute_s,
         "Seconds: an array held by a client that would take longer to make again gets a second copy "
         "on another worker, or on disk (--checkpoint-dir), and what it was made from is forgotten; 0: never")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  app.add_option(
         "--max-lineage", settings.max_lineage_ops,
         "Ops kept after they are done, to make again what dies with a worker; beyond, the oldest go, and "
         "what was made from them is lost with its last copy; 0: none are kept")
      ->capture_default_str()
      ->check(CLI::Range(0, 100'000'000));
  app.add_option("--worker-wait", settings.worker_wait_s,
                 "Seconds: what is lost, and requests, wait so long for a worker when there is none")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  app.add_flag("--rebalance,!--no-rebalance", settings.rebalance,
               "Move what has not been begun from devices that are late to others, and to workers that join: "
               "the default");
  app.add_flag("--no-link-probes", settings.no_link_probes,
               "Have no links measured while nothing runs: speeds are learned from blocks that move");
  app.add_option("--dashboard-listen", settings.dashboard_listen,
                 "Where the dashboard listens, HOST:PORT, 127.0.0.1:7421 by default; off: nowhere");
  app.add_option("--dashboard-host", settings.dashboard_hosts,
                 "Another name, with the port if it is not the dashboard's, by which browsers reach it")
      ->delimiter(',');
  app.add_option("--dashboard-address-file", settings.dashboard_address_file,
                 "File to write the dashboard's address to");
  if (const auto code = daemon::parse(app, argc, argv)) return *code;
  daemon::keep_freed_memory();
  return serve(settings);
}
