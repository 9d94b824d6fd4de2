// tilewise-scheduler: one of these per cluster.
#include <tilewise/config/token.h>
#include <tilewise/config/version.h>
#include <tilewise/daemon/log.h>
#include <tilewise/daemon/program.h>

#include <csignal>

#include "server.h"

using namespace tilewise;

namespace {

const std::string kName = "tilewise-scheduler";

struct Settings {
  daemon::CommonOptions common;
  std::uint32_t term = 1;
  std::vector<std::string> passes_off;
  std::size_t max_peers = 4096;
};

int serve(const Settings& settings) {
  const auto usage = [](const Error& error) { return daemon::fail(kName, error, daemon::kExitUsage); };
  const auto failure = [](const Error& error) { return daemon::fail(kName, error, daemon::kExitFailure); };
  const daemon::CommonOptions& common = settings.common;
  if (Status ok = daemon::start_log(kName, common.log_level, common.log_format); !ok)
    return usage(ok.error());
  const auto listen = net::Address::parse(common.listen);
  if (!listen) return usage(listen.error());
  const auto token = config::find_token(common.token_file, net::is_loopback(*listen));
  if (!token && net::is_loopback(*listen)) return failure(token.error());
  // A token made up at this start is known to nobody: an address for other hosts needs one that somebody chose.
  if (Status ok = net::check_exposure(*listen, token && token->chosen); !ok) return usage(ok.error());
  if (!token) return failure(token.error());

  auto loop =
      net::EventLoop::create({.spin_ns = daemon::usable_cores(common.cores) > 2 ? 20 * kMicrosecond : 0});
  if (!loop) return failure(loop.error());
  scheduler::ServerOptions options{*listen, token->token, {}};
  options.core.term = settings.term;
  options.core.software_version = config::software_version();
  options.core.passes_off = settings.passes_off;
  options.core.max_peers = settings.max_peers;
  auto server = scheduler::Server::open(**loop, options, [&loop] { (*loop)->stop(); });
  if (!server) return failure(server.error());
  const auto address = daemon::advertised(common.advertise, (*server)->address());
  if (!address) return usage(address.error());
  const Status signals = (*loop)->on_signals([&](int signal) {
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
                             {"term", settings.term}});
  (*loop)->run();
  server->reset();  // closes every link: workers and clients see it at once
  daemon::log_info("ended");
  return daemon::kExitOk;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  settings.common.listen = "127.0.0.1:7420";
  CLI::App app("The scheduler of a Tilewise cluster", kName);
  daemon::add_common_options(app, settings.common);
  app.add_option("--term", settings.term,
                 "Number of this scheduler life; must rise from one life to the next")
      ->capture_default_str()
      ->check(CLI::Range(1u, 0xFFFFFFu));
  app.add_option("--passes-off", settings.passes_off, "Planning passes to leave out, by name")
      ->delimiter(',');
  app.add_option("--max-peers", settings.max_peers, "Workers, clients and tools that may be joined at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000));
  if (const auto code = daemon::parse(app, argc, argv)) return *code;
  return serve(settings);
}
