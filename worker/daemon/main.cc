// tilewise-worker: one or more on every host of a cluster.
#include <tilewise/config/allowance.h>
#include <tilewise/config/token.h>
#include <tilewise/config/version.h>
#include <tilewise/daemon/log.h>
#include <tilewise/daemon/program.h>
#include <tilewise/device/cuda.h>
#include <tilewise/kernels/host_info.h>
#include <tilewise/kernels/plugin.h>

#include <unistd.h>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>

#include "daemon.h"
#include "devices.h"
#include "last_words.h"
#include "supervisor.h"

using namespace tilewise;

namespace {

const std::string kName = "tilewise-worker";
constexpr TimeNs kTellNs = 2 * kSecond;  // the scheduler waits for less
constexpr auto kEndTime =
    std::chrono::milliseconds(1'500);  // for kernels under way, after which nobody waits for them
// With a device that has failed for good. Its worker is gone within 1 s, whatever the driver or its own loop is busy with.
constexpr auto kBrokenTime = std::chrono::milliseconds(500);
constexpr auto kLastWordTime = std::chrono::milliseconds(150);

struct Settings {
  daemon::CommonOptions common;
  std::string scheduler, devices, memory, name, spill_dir, spill_limit, pinned_limit;
  std::string in_flight, in_flight_per_peer;
  std::vector<std::string> plugins;
  double connect_timeout_s = 30, reconnect_timeout_s = 60, lease_s = 0, transfer_timeout_s = 30;
  std::uint64_t trace_records = worker::StepLog::kUsual;
  std::optional<double> step_timeout_s;  // where it was given
  int black_box = -1;
  bool no_supervisor = false, respawn = false, no_map = false, strict_lanes = false,
       reference_kernels = false;
};

// The peers' addresses: an abstract socket, over which memory can be handed over, and the network's.
std::vector<std::string> peer_addresses(const net::Address& listen) {
  std::vector<std::string> all;
  if (listen.kind == net::Address::Kind::kTcp) {
    std::array<std::byte, 8> random{};
    std::uint64_t number = 0;
    if (net::fill_random(random)) std::memcpy(&number, random.data(), sizeof number);
    all.push_back("unix-abstract:tilewise-" + std::to_string(getpid()) + "-" + std::to_string(number));
  }
  all.push_back(listen.to_string());
  return all;
}

struct Setup {
  worker::DaemonOptions options;
  std::vector<worker::DeviceName> names;
  worker::DevicePlan plan;
};

// Everything that can be wrong with the options, before anything is started.
Result<Setup> check(const Settings& settings) {
  Setup setup{{.scheduler = {}, .token = *net::Token::generate()}, {}, {}};
  if (settings.scheduler.empty()) {
    return error(Errc::kInvalidArgument,
                 "which scheduler? Give --scheduler HOST:PORT or set TILEWISE_SCHEDULER");
  }
  TW_TRY(daemon::check_name("--name", settings.name));
  TW_ASSIGN(setup.options.scheduler, net::Address::parse(settings.scheduler));
  TW_ASSIGN(const net::Address listen, net::Address::parse(settings.common.listen));
  const auto token = config::find_token(settings.common.token_file, false);
  TW_TRY(net::check_exposure(listen, token.has_value()));
  if (!token) return token.error();
  setup.options.token = token->token;
  setup.options.listen = peer_addresses(listen);
  setup.options.advertise = settings.common.advertise;
  setup.options.name = settings.name.empty() ? config::process_name() : settings.name;
  setup.options.map_peers = !settings.no_map;
  setup.options.strict_lanes = settings.strict_lanes;
  setup.options.reference_kernels = settings.reference_kernels;
  setup.options.silence_ns = static_cast<TimeNs>(settings.common.silence_timeout_s * 1e9);
  setup.options.trace_records = settings.trace_records;
  setup.options.connect_timeout_ns = static_cast<TimeNs>(settings.connect_timeout_s * 1e9);
  setup.options.reconnect_timeout_ns = static_cast<TimeNs>(settings.reconnect_timeout_s * 1e9);
  setup.options.lease_ns = static_cast<TimeNs>(settings.lease_s * 1e9);
  setup.plan.cores = daemon::usable_cores(settings.common.cores);
  if (!settings.memory.empty()) {
    TW_ASSIGN(setup.plan.memory_bytes, daemon::parse_bytes(settings.memory));
    if (setup.plan.memory_bytes < worker::kLeastMemory)
      return error(Errc::kInvalidArgument, "--memory " + settings.memory + ": 1MiB of each device at least");
  }
  setup.options.spill.directory = settings.spill_dir;
  if (!settings.spill_limit.empty()) {
    if (settings.spill_dir.empty())
      return error(Errc::kInvalidArgument, "--spill-limit without --spill-dir: where is the disk?");
    TW_ASSIGN(setup.options.spill.limit_bytes, daemon::parse_bytes(settings.spill_limit));
  }
  setup.options.transfer_ns = static_cast<TimeNs>(settings.transfer_timeout_s * 1e9);
  if (!settings.in_flight.empty()) {
    TW_ASSIGN(setup.options.in_flight_bytes, daemon::parse_bytes(settings.in_flight));
  }
  setup.options.in_flight_peer_bytes =
      std::min(setup.options.in_flight_peer_bytes, setup.options.in_flight_bytes);
  if (!settings.in_flight_per_peer.empty()) {
    TW_ASSIGN(setup.options.in_flight_peer_bytes, daemon::parse_bytes(settings.in_flight_per_peer));
  }
  if (setup.options.in_flight_peer_bytes > setup.options.in_flight_bytes)
    return error(Errc::kInvalidArgument, "--in-flight-per-peer " + settings.in_flight_per_peer +
                                             " is more than --in-flight allows for all peers together");
  const bool cuda = settings.devices.find("cuda") != std::string::npos;
  if (!settings.pinned_limit.empty()) {
    if (!cuda)
      return error(Errc::kInvalidArgument,
                   "--pinned-limit without a GPU among --devices: only their blocks go to pinned memory");
    TW_ASSIGN(setup.options.pinned_bytes, daemon::parse_bytes(settings.pinned_limit));
    if (setup.options.pinned_bytes < 1 << 20)
      return error(Errc::kInvalidArgument, "--pinned-limit " + settings.pinned_limit + ": 1MiB at least");
  }
  // The driver is asked only where a GPU is wanted: it takes its time.
  TW_ASSIGN(setup.names, worker::parse_devices(settings.devices, cuda ? device::cuda_device_count() : 0));
  return setup;
}

// A kernel of minutes must not keep a process that was told to end, nor a driver that never returns one that has to. It may be main()
// that has ended by then.
void end_in_time(int code, std::chrono::milliseconds time) {
  std::thread([code, time] {
    std::this_thread::sleep_for(time);
    daemon::log_last_word("tilewise-worker", "kernels still running, ending without them", kLastWordTime);
    _exit(code);
  }).detach();
}

// A supervisor's word on its worker; for so long, where the scheduler is away, 0: once.
Status tell(const Settings& settings, const msg::LastWords& words, TimeNs patience_ns) {
  TW_ASSIGN(const net::Address scheduler, net::Address::parse(settings.scheduler));
  const auto token = config::find_token(settings.common.token_file, false);
  if (!token) return token.error();
  if (patience_ns == 0) return worker::tell_last_words(scheduler, token->token, words, kTellNs);
  return worker::offer_last_words(scheduler, token->token, words, kTellNs, patience_ns);
}

// A parent for the worker, unless this is the worker of one already.
int supervise(int argc, char** argv, const Settings& settings) {
  const bool limit_given = settings.step_timeout_s.value_or(0) > 0;
  if (settings.no_supervisor && (settings.respawn || limit_given))
    return daemon::fail(kName,
                        error(Errc::kInvalidArgument, std::string("--no-supervisor with --") +
                                                          (settings.respawn ? "respawn" : "step-timeout") +
                                                          ": nobody would be there to do it"),
                        daemon::kExitUsage);
  if (Status ok = daemon::start_log(kName, settings.common.log_level, settings.common.log_format); !ok)
    return daemon::fail(kName, ok.error(), daemon::kExitUsage);
  worker::SupervisorOptions options;
  options.respawn = settings.respawn;
  if (settings.step_timeout_s) options.step_timeout_ns = static_cast<TimeNs>(*settings.step_timeout_s * 1e9);
  options.silence_ns = static_cast<TimeNs>(settings.common.silence_timeout_s * 1e9);
  options.tell = [&](const msg::LastWords& words) { return tell(settings, words, 0); };
  const auto patience_ns = static_cast<TimeNs>(settings.reconnect_timeout_s * 1e9);
  if (patience_ns > 0) {
    options.offer = [&settings, patience_ns](const msg::LastWords& words) {
      return tell(settings, words, patience_ns);
    };
  }
  return worker::supervise(argc, argv, options);
}

int work(const Settings& settings) {
  const auto usage = [](const Error& error) { return daemon::fail(kName, error, daemon::kExitUsage); };
  const auto failure = [](const Error& error) { return daemon::fail(kName, error, daemon::kExitFailure); };
  const daemon::CommonOptions& common = settings.common;
  if (Status ok = daemon::start_log(kName, common.log_level, common.log_format); !ok)
    return usage(ok.error());
  auto setup = check(settings);
  if (!setup) return usage(setup.error());
  kernels::PluginTable plugins;
  if (Status ok = plugins.add(kernels::builtin_kernels()); !ok) return failure(ok.error());
  for (const std::string& path : settings.plugins) {
    if (Status ok = plugins.load(path); !ok) return usage(ok.error());
  }
  const config::Allowance room = config::memory_allowance().now;
  setup->plan.room = room;
  auto devices = worker::make_devices(setup->names, setup->plan);
  if (!devices) return failure(devices.error());
  if (const std::int64_t asked = worker::host_bytes(*devices); asked > room.bytes)
    daemon::log_warn(
        "more memory than can be had: before any block leaves it the system may kill this worker for want of "
        "it",
        {{"bytes", asked}, {"can_be_had", room.bytes}, {"limit", room.by}, {"option", "--memory"}});
  std::unique_ptr<worker::BlackBox> black_box;
  if (settings.black_box >= 0) {
    auto opened = worker::BlackBox::open(settings.black_box);
    if (!opened) return usage(opened.error());
    black_box = std::move(*opened);
    setup->options.black_box = black_box.get();
  }
  setup->options.on_broken = [box = black_box.get()](const Error& why) {
    if (box != nullptr) box->gpu_broke();
    end_in_time(daemon::kExitFailure, kBrokenTime);
    daemon::log_error("a device has failed for good, ending", {{"why", daemon::to_string(why)}});
  };

  const bool spare = setup->plan.cores > static_cast<int>(setup->names.size());
  setup->options.one_core =
      setup->plan.cores == 1 && setup->names.size() == 1 && setup->names[0].kind == device::Kind::kHost;
  auto loop = net::EventLoop::create({.spin_ns = spare ? 20 * kMicrosecond : 0});
  if (!loop) return failure(loop.error());
  Status outcome;
  const Status signals = (*loop)->on_signals([&](int signal) {
    if (signal == SIGHUP) return daemon::log_hangup();
    daemon::log_info("ending", {{"signal", strsignal(signal)}});
    (*loop)->stop();
  });
  if (!signals) return failure(signals.error());
  const auto ended = [&](Status why) {
    outcome = std::move(why);
    (*loop)->stop();
  };
  const auto ready = [&](const std::vector<std::string>& addresses) {
    if (const std::string why = kernels::host_warning(); !why.empty())
      daemon::log_warn("slow products", {{"why", why}});
    daemon::log_info(
        "ready",
        {{"address", addresses.back()}, {"devices", settings.devices}, {"cores", setup->plan.cores}});
    if (common.address_file.empty()) return;
    if (Status ok = daemon::write_address_file(common.address_file, addresses.back()); !ok) ended(ok);
  };
  auto worker = worker::Daemon::start(**loop, setup->options, std::move(*devices), plugins, ready, ended);
  if (!worker)
    return worker.error().code == Errc::kInvalidArgument ? usage(worker.error()) : failure(worker.error());
  (*loop)->run();
  if (black_box) black_box->close();
  const int code = outcome ? daemon::kExitOk : failure(outcome.error());
  end_in_time(code, kEndTime);
  worker->reset();
  if (outcome) daemon::log_info("ended");
  daemon::never_destroy(std::move(*loop));
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  daemon::outlive_readers();
  daemon::name_refusals("tilewise-worker");
  daemon::raise_file_limit();
  transfer::UcxEngine::prepare_process();
  Settings s;
  s.devices = "host:0";
  CLI::App app("A worker of a Tilewise cluster: devices, their memory and what runs on them", kName);
  daemon::add_common_options(app, s.common);
  app.add_option("--scheduler", s.scheduler, "Address of the scheduler, HOST:PORT");
  app.add_option("--devices", s.devices, "host:0-3, host:4, cuda:0-1, cuda:all; several with commas")
      ->capture_default_str();
  app.add_option("--memory", s.memory,
                 "Memory of each device, e.g. 4GiB; default: 60 % of what the host and its control groups "
                 "have free, shared");
  app.add_option("--spill-dir", s.spill_dir,
                 "Directory on a local disk for blocks that memory has no room for; default: none");
  app.add_option("--spill-limit", s.spill_limit,
                 "At most so much of it, e.g. 200GiB; default: half of what is free there");
  app.add_option(
      "--pinned-limit", s.pinned_limit,
      "So much pinned host memory for blocks that GPUs have no room for, e.g. 64GiB; default: none");
  app.add_option("--in-flight", s.in_flight,
                 "Bytes on their way from other processes at most, e.g. 512MiB; default: 1GiB");
  app.add_option("--in-flight-per-peer", s.in_flight_per_peer,
                 "Of these, from one of them; default: 256MiB, or as --in-flight where that is less");
  app.add_option("--transfer-timeout", s.transfer_timeout_s,
                 "Seconds without headway after which a transfer has failed and is tried again, or elsewhere")
      ->capture_default_str()
      ->check(CLI::Range(1.0, 3600.0));
  app.add_option("--plugin", s.plugins, "Shared object with kernels; may be repeated")->delimiter(',');
  app.add_option("--name", s.name, "Name for people; default HOST/PID");
  app.add_option("--connect-timeout", s.connect_timeout_s, "Seconds to go on trying to reach the scheduler")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--reconnect-timeout", s.reconnect_timeout_s,
                 "Seconds to wait for a scheduler that keeps its state (--state-dir) and went away")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--trace-records", s.trace_records,
                 "So many steps, waits and transfers are remembered for the timeline, 80 bytes each")
      ->capture_default_str()
      ->check(CLI::Range(std::uint64_t{1} << 10, worker::StepLog::kMost));
  app.add_option(
         "--lease", s.lease_s,
         "Seconds that the link to the scheduler may be broken before the worker counts as lost; 0: none")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 10.0));  // peers and clients wait little longer for a worker that is gone
  app.add_flag("--no-map", s.no_map,
               "Copy blocks between processes of this host instead of reading them in place");
  app.add_flag(
      "--strict-lanes", s.strict_lanes,
      "A transfer of GPU memory that goes through the host, or one over TCP inside a host, is an error");
  app.add_flag("--reference-kernels", s.reference_kernels, "Plain, slow kernels, for comparison");
  app.add_flag("--respawn", s.respawn, "Start the worker again when it dies");
  app.add_option(
         "--step-timeout", s.step_timeout_s,
         "Seconds after which a step that has not ended ends its worker, and counts against its task; "
         "0: none")
      ->default_str("3600")  // SupervisorOptions
      ->check(CLI::IsMember({0.0}) | CLI::Range(0.1, 1e6));
  app.add_flag(
      "--no-supervisor", s.no_supervisor,
      "One process only, with no parent that tells the scheduler what it was executing when it dies");
  app.add_option("--black-box", s.black_box, "Descriptor inherited from a supervisor")->group("");
  if (const auto code = daemon::parse(app, argc, argv)) return *code;
  daemon::keep_freed_memory();
  const bool alone = s.no_supervisor && !s.respawn && s.step_timeout_s.value_or(0) == 0;
  return s.black_box >= 0 || alone ? work(s) : supervise(argc, argv, s);
}
