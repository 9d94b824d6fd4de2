// tilewise: the user's and the operator's tool.
#include <tilewise/base/text.h>
#include <tilewise/config/token.h>
#include <tilewise/config/version.h>
#include <tilewise/daemon/log.h>
#include <tilewise/daemon/program.h>

#include <unistd.h>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "commands.h"
#include "control.h"
#include "live.h"

using namespace tilewise;

namespace {

const std::string kName = "tilewise";

struct Settings {
  std::string scheduler, token_file, dashboard;
  std::string log_level = "warn", log_format = "text";
  double timeout_s = 10;
  bool json = false;
};

TimeNs timeout_of(const Settings& s) { return static_cast<TimeNs>(s.timeout_s * 1e9); }

template <class Fn> int with_scheduler(const Settings& s, Fn&& fn) {
  if (s.scheduler.empty()) {
    return daemon::fail(kName,
                        error(Errc::kInvalidArgument,
                              "which scheduler? Give --scheduler HOST:PORT or set TILEWISE_SCHEDULER"),
                        daemon::kExitUsage);
  }
  auto control = cli::Control::connect(s.scheduler, s.token_file, timeout_of(s));
  if (!control) return daemon::fail(kName, control.error(), daemon::kExitFailure);
  const Status done = fn(**control);
  return done ? daemon::kExitOk : daemon::fail(kName, done.error(), daemon::kExitFailure);
}

cli::WebOptions web_of(const Settings& s) { return {s.dashboard, s.scheduler, s.token_file, timeout_of(s)}; }

template <class Fn> int with_dashboard(const Settings& s, config::Role role, Fn&& fn) {
  const auto web = cli::Web::open(web_of(s), role);
  if (!web) return daemon::fail(kName, web.error(), daemon::kExitFailure);
  const Status done = fn(*web);
  return done ? daemon::kExitOk : daemon::fail(kName, done.error(), daemon::kExitFailure);
}

// {"key": "value"}, or the value alone.
int print_value(const Settings& s, const char* key, const std::string& prefix, const std::string& value) {
  if (s.json)
    std::printf("{\"%s\":%s}\n", key, json_quote(value).c_str());
  else
    std::printf("%s%s\n", prefix.c_str(), value.c_str());
  return daemon::kExitOk;
}

int print_token(const Settings& s, config::Role role) {
  const auto token = config::find_token(s.token_file, false);
  if (!token) return daemon::fail(kName, token.error(), daemon::kExitFailure);
  return print_value(s, "token", "", config::role_token(token->token, role));
}

// The demonstration is a program of its own, beside this one.
int run_demo(std::vector<std::string> arguments) {
  std::error_code ignored;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::string program = (self.parent_path() / "tilewise-demo").string();
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  return daemon::fail(
      kName,
      error(Errc::kNotFound, program + ": " + std::strerror(errno) + " (from a source tree: ./dev demo)"),
      daemon::kExitFailure);
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  CLI::App app("Looks after a Tilewise cluster", kName);
  app.add_option("--scheduler", s.scheduler, "Address of the scheduler, HOST:PORT");
  app.add_option("--token-file", s.token_file,
                 "File with the cluster's token; default ~/.config/tilewise/token");
  app.add_option("--dashboard", s.dashboard,
                 "Address of the dashboard, HOST:PORT; default: the scheduler's host, port 7421");
  app.add_option("--timeout", s.timeout_s, "Seconds to wait for an answer")
      ->capture_default_str()
      ->check(CLI::Range(1e-3, 1e6));
  app.add_option("--log-level", s.log_level, "debug, info, warn, error or off")->capture_default_str();
  app.add_option("--log-format", s.log_format, "text or json")->capture_default_str();
  app.add_flag("--json", s.json, "Print JSON");
  app.require_subcommand(0, 1);  // none is checked below: CLI11 would complain of that before an unknown word
  app.fallthrough();
  auto* status = app.add_subcommand("status", "What runs where: workers, clients, graphs, lanes");
  auto* devices = app.add_subcommand("devices", "The cluster's devices, their memory and their work");
  auto* doctor =
      app.add_subcommand("doctor", "Check this machine: UCX, shared memory, limits, CUDA, the scheduler");
  auto* explain = app.add_subcommand(
      "explain",
      "What the scheduler expects of a running graph and why; of one that ended, what was measured");
  std::string graph;
  explain->add_option("GRAPH", graph, "Its number")->required();
  auto* account = app.add_subcommand(
      "account", "What a graph took, or has taken so far, beside what was predicted when it was submitted");
  account->add_option("GRAPH", graph, "Its number")->required();
  auto* trace = app.add_subcommand("trace", "Write what ran last, for Perfetto or chrome://tracing");
  cli::TraceOptions traced;
  std::string traced_graph;
  trace->add_option("FILE", traced.file, "JSON; - for standard output")->required();
  trace->add_option("--graph", traced_graph, "Of this graph only");
  trace->add_option("--last", traced.last_s, "What ended at most so many seconds ago")
      ->check(CLI::Range(1e-6, 1e7));
  trace->add_option("--before", traced.before_s, "What began at least so many seconds ago")
      ->check(CLI::Range(1e-6, 1e7));
  auto* top = app.add_subcommand("top", "What runs now, again and again: graphs, devices, lanes, warnings");
  double interval_s = 1;
  bool once = false;
  top->add_option("--interval", interval_s, "Seconds between looks")
      ->capture_default_str()
      ->check(CLI::Range(0.2, 3600.0));
  top->add_flag("--once", once, "Print one page and end");
  auto* arrays = app.add_subcommand("arrays", "The arrays that are alive, held ones first");
  auto* links = app.add_subcommand(
      "links", "How fast links are: measured while nothing ran, and by the blocks that moved");
  auto* graph_view = app.add_subcommand(
      "graph", "The ops of a graph, running or ended; without a number: all that are known");
  std::string graph_id;
  auto* graph_number = graph_view->add_option("GRAPH", graph_id, "Its number");
  bool graph_wait = false;
  graph_view
      ->add_flag("--wait", graph_wait, "Until it has ended, with a progress bar; exit code 1 if it failed")
      ->needs(graph_number);
  auto* dashboard =
      app.add_subcommand("dashboard", "Print a link that logs a browser in to the dashboard, once");
  std::string role = "operator", token_role;
  dashboard->add_option("--role", role, "reader (looks) or operator (may cancel and release)")
      ->capture_default_str();
  dashboard->add_option("--print-token", token_role,
                        "Print this role's lasting token instead, for Prometheus and scripts");
  auto* drain = app.add_subcommand(
      "drain", "Let a worker leave: it ends what it has begun, and its blocks go to others");
  cli::DrainOptions leaver;
  drain->add_option("WORKER", leaver.worker, "w3, 3 or its name (see status)")->required();
  drain->add_flag("--undo", leaver.undo, "Let it stay after all");
  drain->add_flag("--ask", leaver.ask, "Only tell how far it is")->excludes("--undo");
  drain->add_option("--wait", leaver.wait_s, "Seconds to wait until it is gone")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  auto* shutdown = app.add_subcommand("shutdown", "End the scheduler and all workers");
  app.add_subcommand("demo", "Run the demonstration (arguments are passed on)");
  auto* version = app.add_subcommand("version", "Print the version");
  // Its arguments are its own; only what stands before the word is ours.
  if (argc > 1 && std::strcmp(argv[1], "demo") == 0) return run_demo({argv + 2, argv + argc});
  if (const auto code = daemon::parse(app, argc, argv)) return *code;
  if (app.get_subcommands().empty()) {
    return daemon::fail(kName, error(Errc::kInvalidArgument, "which subcommand? See --help"),
                        daemon::kExitUsage);
  }
  if (Status ok = daemon::start_log(kName, s.log_level, s.log_format); !ok) {
    return daemon::fail(kName, ok.error(), daemon::kExitUsage);
  }
  const cli::Format format = s.json ? cli::Format::kJson : cli::Format::kText;
  if (*version) return print_value(s, "version", "tilewise ", config::software_version());
  if (*top) {
    return with_dashboard(s, config::Role::kReader,
                          [&](const cli::Web& w) { return cli::top(w, format, interval_s, once); });
  }
  if (*arrays)
    return with_dashboard(s, config::Role::kReader,
                          [&](const cli::Web& w) { return cli::arrays(w, format); });
  if (*links)
    return with_dashboard(s, config::Role::kReader, [&](const cli::Web& w) { return cli::links(w, format); });
  if (*graph_view)
    return with_dashboard(s, config::Role::kReader,
                          [&](const cli::Web& w) { return cli::graph(w, graph_id, graph_wait, format); });
  if (*dashboard) {
    const auto wanted = config::role_of(token_role.empty() ? role : token_role);
    if (!wanted)
      return daemon::fail(kName, error(Errc::kInvalidArgument, "the role is reader or operator"),
                          daemon::kExitUsage);
    if (!token_role.empty()) return print_token(s, *wanted);
    return with_dashboard(s, *wanted, [&](const cli::Web& w) { return cli::login_link(w, *wanted, format); });
  }
  if (*drain) {
    leaver.format = format;
    return with_scheduler(s, [&](cli::Control& c) { return cli::drain(c, leaver); });
  }
  if (*doctor) return cli::doctor({s.scheduler, s.token_file, timeout_of(s), format});
  if (*shutdown) {
    const int code = with_scheduler(s, [](cli::Control& c) { return c.shutdown(); });
    if (code == daemon::kExitOk && s.json) print_value(s, "ended", "", s.scheduler);
    return code;
  }
  if (*explain)
    return with_scheduler(s, [&](cli::Control& c) -> Status {
      TW_ASSIGN(const GraphId id, cli::graph_of(c, graph));
      return cli::explain(c, web_of(s), id, format);
    });
  if (*account)
    return with_scheduler(s, [&](cli::Control& c) -> Status {
      TW_ASSIGN(const GraphId id, cli::graph_of(c, graph));
      return cli::account(c, id, format);
    });
  if (*trace)
    return with_scheduler(s, [&](cli::Control& c) -> Status {
      if (!traced_graph.empty()) {
        TW_ASSIGN(traced.graph, cli::graph_of(c, traced_graph));
      }
      return cli::trace(c, web_of(s), traced, format);
    });
  if (*status || *devices) {
    return with_scheduler(s, [&](cli::Control& c) -> Status {
      TW_ASSIGN(const msg::StatusReply reply, c.status());
      if (*status)
        cli::print_status(reply, c.address(), format);
      else
        cli::print_devices(reply, format);
      return {};
    });
  }
  return daemon::kExitUsage;
}
