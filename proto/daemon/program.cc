#include <tilewise/base/limits.h>
#include <tilewise/base/utf8.h>
#include <tilewise/config/allowance.h>
#include <tilewise/config/version.h>
#include <tilewise/daemon/log.h>
#include <tilewise/daemon/program.h>

#include <cxxabi.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>

namespace tilewise::daemon {
namespace {

std::string variable_of(const std::string& option) {
  std::string name = "TILEWISE_" + option;
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

bool is_given(const std::vector<std::string>& arguments, const std::string& option) {
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& a) {
    return a == "--" + option || a.starts_with("--" + option + "=");
  });
}

// CLI11's own order puts the config file above the environment. Ours is the usual one: variables become arguments in
// front of the real ones, unless the option is among those.
std::vector<std::string> with_environment(const CLI::App& app, std::vector<std::string> given) {
  std::vector<std::string> all;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (name == "help" || name == "version" || is_given(given, name)) continue;
      const char* value = std::getenv(variable_of(name).c_str());
      if (value != nullptr && *value != 0) all.push_back("--" + name + "=" + value);
    }
  }
  all.insert(all.end(), given.begin(), given.end());
  return all;
}

// A limit is no limit where it is NaN: no comparison with it is true. Infinite times and sizes overflow what is computed with them.
void want_finite_numbers(CLI::App& app) {
  const CLI::Validator finite(
      [](std::string& value) {
        const bool ok = std::isfinite(std::strtod(value.c_str(), nullptr));
        return ok ? std::string() : "'" + value + "' is no finite number";
      },
      "");
  for (CLI::Option* option : app.get_options()) {
    if (option->get_type_name().starts_with("FLOAT")) option->check(finite);
  }
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) want_finite_numbers(*command);
}

const char* refused_program = nullptr;
std::terminate_handler otherwise = nullptr;

// What the system refused, and what to look at; none: the exception in flight is something else. (std::current_exception() would ask for
// memory to be thrown again.)
const char* refused() {
  if (abi::__cxa_current_exception_type() == nullptr) return nullptr;
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return "out of memory: the system refused this process host memory, ending. Look at the limit of its "
           "address space (ulimit -v), "
           "at vm.overcommit_memory and vm.max_map_count, and at the memory of its container";
  } catch (const std::system_error& e) {
    if (e.code() != std::errc::resource_unavailable_try_again) return nullptr;
    return "out of threads: the system refused this process one more, ending. Look at the limits of "
           "processes and of address space "
           "(ulimit -u, ulimit -v), at kernel.threads-max, and at the tasks of its container (pids.max)";
  } catch (...) {
    return nullptr;
  }
}

[[noreturn]] void on_terminate() {
  const char* why = refused();
  if (why == nullptr) {
    otherwise();
    std::abort();
  }
  log_last_word(refused_program, why);
  _exit(kExitRefused);
}

}  // namespace

void outlive_readers() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
}

void log_hangup() {
  log_info("SIGHUP does nothing: no option or file is read again, and the log goes to stderr");
}

void name_refusals(const char* program) {
  refused_program = program;
  otherwise = std::set_terminate(on_terminate);
}

void raise_file_limit() {
  constexpr rlim_t kMost = 1 << 20;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min(limit.rlim_max, kMost);
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = wanted;
  (void)setrlimit(RLIMIT_NOFILE, &limit);  // where it may not be, the soft limit stays
}

void keep_freed_memory() {
  constexpr int kKeptBytes = 32 << 20;
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  mallopt(M_TOP_PAD, 1 << 20);
  mallopt(M_MMAP_THRESHOLD, kKeptBytes);  // vectors of a plan's ops, and frames
}

void add_common_options(CLI::App& app, CommonOptions& common) {
  app.add_option("--listen", common.listen,
                 "Address to listen on: HOST:PORT (port 0: any), unix:PATH, unix-abstract:NAME")
      ->capture_default_str();
  app.add_option("--advertise", common.advertise,
                 "Address that others connect to, where it differs from --listen");
  app.add_option("--cores", common.cores,
                 "Cores that this process may keep busy; 0: all it is allowed to use")
      ->capture_default_str()
      ->check(CLI::Range(0, 4096));
  app.add_option(
      "--token-file", common.token_file,
      "File (mode 0600) with the cluster's token; default ~/.config/tilewise/token. TILEWISE_TOKEN holds one "
      "in hex instead");
  app.add_option("--log-level", common.log_level, "debug, info, warn, error or off")->capture_default_str();
  app.add_option("--log-format", common.log_format, "text or json")->capture_default_str();
  app.add_option("--address-file", common.address_file,
                 "Write the actual address here once ready, for launchers");
  app.add_option("--silence-timeout", common.silence_timeout_s,
                 "Seconds after which a process or host that answers nothing is taken for gone")
      ->capture_default_str()
      ->check(CLI::Range(2.0, 20.0));  // peers and clients give a link up soon after that
}

std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  app.set_version_flag("--version", app.get_name() + " " + config::software_version(),
                       "Print the version and exit");
  app.set_config("--config", "", "Read options from this TOML or INI file");
  app.allow_config_extras(CLI::config_extras_mode::error);
  app.get_formatter()->column_width(34);
  app.footer(
      "Every option is also an environment variable (--log-level: TILEWISE_LOG_LEVEL) and a line of the\n"
      "file given with --config (log-level = \"debug\"). The command line wins, then the environment.");
  want_finite_numbers(app);
  try {
    std::vector<std::string> arguments = with_environment(app, {argv + 1, argv + argc});
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    app.parse(arguments);
    return std::nullopt;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);
    std::string text = e.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    constexpr std::string_view kNoOption = "INI was not able to parse ";  // CLI11's words
    if (text.starts_with(kNoOption))
      text = "the file given with --config: no such option: " + text.substr(kNoOption.size());
    return fail(app.get_name(), error(Errc::kInvalidArgument, text + " (see --help)"), kExitUsage);
  }
}

int fail(const std::string& program, const Error& error, int code) {
  log_end(program, error);
  return code;
}

int usable_cores(int asked) { return asked > 0 ? asked : config::core_allowance().cores; }

Result<net::Address> advertised(const std::string& advertise, const net::Address& actual) {
  if (!advertise.empty()) {
    TW_ASSIGN(net::Address address, net::Address::parse(advertise));
    if (address.kind == net::Address::Kind::kTcp && address.port == 0) address.port = actual.port;
    return address;
  }
  if (actual.kind == net::Address::Kind::kTcp && (actual.host == "0.0.0.0" || actual.host == "::")) {
    return error(Errc::kInvalidArgument, "listening on all interfaces (" + actual.to_string() +
                                             "): say with --advertise HOST which address others connect to");
  }
  return actual;
}

Status write_address_file(const std::string& path, const std::string& address) {
  const std::string draft = path + "." + std::to_string(getpid());
  std::FILE* file = std::fopen(draft.c_str(), "we");
  if (file == nullptr) return error(Errc::kIo, "cannot write the address file " + path);
  const std::string line = address + "\n";
  const bool written = std::fwrite(line.data(), 1, line.size(), file) == line.size();
  if (std::fclose(file) != 0 || !written || std::rename(draft.c_str(), path.c_str()) != 0) {
    unlink(draft.c_str());
    return error(Errc::kIo, "cannot write the address file " + path);
  }
  return {};
}

Status check_name(const std::string& option, const std::string& name) {
  if (name.size() > limits::kMaxNameBytes)
    return error(Errc::kInvalidArgument, option + ": a name of " + std::to_string(name.size()) +
                                             " bytes, at most " + std::to_string(limits::kMaxNameBytes) +
                                             " are possible");
  if (!is_printable(name))
    return error(Errc::kInvalidArgument,
                 option + " '" + printable(name) + "': a name is UTF-8 without control characters");
  return {};
}

Result<std::int64_t> parse_bytes(std::string_view text) {
  const std::string copy(text);
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  std::string unit(end);
  const auto wrong = [&] {
    return error(Errc::kInvalidArgument,
                 "'" + copy + "' is no size: write 512MiB, 4GiB, 1.5GB or a number of bytes");
  };
  if (end == copy.c_str() || !std::isfinite(number) || number <= 0) return wrong();
  while (!unit.empty() && unit.front() == ' ') unit.erase(0, 1);
  double scale = 1;
  if (!unit.empty() && unit != "B") {
    const auto power = std::string_view("kMGT").find(unit[0] == 'K' ? 'k' : unit[0]);
    const std::string rest = unit.substr(1);
    if (power == std::string_view::npos || (rest != "" && rest != "B" && rest != "iB")) return wrong();
    scale = std::pow(rest == "B" ? 1000.0 : 1024.0, static_cast<double>(power) + 1);
  }
  if (number * scale >= 0x1p56) return error(Errc::kOutOfRange, "'" + copy + "' is more than 64 PiB");
  return static_cast<std::int64_t>(number * scale);
}

}  // namespace tilewise::daemon
