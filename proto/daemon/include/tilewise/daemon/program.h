// What the three programs share: options that are also environment variables and lines of a config file, and how a
// program ends.
//
//   command line  --log-level debug     wins over
//   environment   TILEWISE_LOG_LEVEL    wins over
//   --config FILE log-level = "debug"   (TOML or INI; a key that is no option is an error)
#pragma once
#include <tilewise/base/result.h>
#include <tilewise/net/address.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

namespace tilewise::daemon {

constexpr int kExitOk = 0;
constexpr int kExitFailure = 1;  // while running, or nobody there
constexpr int kExitUsage = 2;    // bad options: nothing was started
constexpr int kExitRefused = 3;  // host memory or a thread, by the system

struct CommonOptions {
  std::string listen = "127.0.0.1:0";
  std::string advertise;  // empty: what is listened on
  int cores = 0;          // 0: what the process may use
  std::string token_file;
  std::string log_level = "info";
  std::string log_format = "text";
  std::string address_file;
  double silence_timeout_s = 10;  // what says nothing for so long is taken for gone
};

void add_common_options(CLI::App& app, CommonOptions& common);

// --help and --version print and give kExitOk; a mistake is one line on stderr and kExitUsage; nothing: go on.
// Adds --version and --config, and refuses numbers of floating point that are not finite.
std::optional<int> parse(CLI::App& app, int argc, char** argv);

// One line on stderr (log_end). Returns `code`.
int fail(const std::string& program, const Error& error, int code);

// Where nobody answers for host memory or a thread that the system refuses the process (a std::bad_alloc, or a std::system_error of
// EAGAIN, that leaves a thread or what must not throw), it says so in one line on stderr, and what to look at, and ends with
// kExitRefused; no memory is asked for meanwhile. Any other end is as before. For main(); `program` lasts as long as the process,
// which is why it is no string.
void name_refusals(const char* program);

// For main() of what serves: whoever read the log may end (SIGPIPE), and so may the terminal (SIGHUP).
void outlive_readers();
// What is said where a SIGHUP came.
void log_hangup();

// As many open files as the hard limit allows, up to 1,048,576: the soft one (often 1,024) is for programs that use select(). A peer takes a few,
// a slab of memory one. For main(): children have it too.
void raise_file_limit();

// Memory of one plan is kept for the next: a thousand ops come and go with each, and without this their pages go back to
// the system and are faulted in again. For main(): it sets what malloc does in this process.
void keep_freed_memory();

// The cores that this process may use (affinity, and the quota of its control groups), or `asked` where that is above 0.
int usable_cores(int asked);

// What others should connect to: `advertise` (a port 0 or none there: the actual one), else the actual address. An
// address that means "all interfaces" cannot be connected to: kInvalidArgument asking for --advertise.
Result<net::Address> advertised(const std::string& advertise, const net::Address& actual);

// Appears complete or not at all, with one line: the address.
Status write_address_file(const std::string& path, const std::string& address);

// It is there until the process has ended, for main() to say at its end: with an event loop would go what handles signals, and a second one
// would end what has ended. To block them is not enough, since other threads of the process may still be there.
template <class T> void never_destroy(std::unique_ptr<T> object) {
  [[maybe_unused]] static T* volatile last = nullptr;  // so that it is no leak
  last = object.release();
}

// A name that others read on their terminals: at most limits::kMaxNameBytes of printable UTF-8, or kInvalidArgument naming the option.
Status check_name(const std::string& option, const std::string& name);

// "4GiB", "512MB", "1.5e9", "1024": bytes. kInvalidArgument, kOutOfRange.
Result<std::int64_t> parse_bytes(std::string_view text);

}  // namespace tilewise::daemon
