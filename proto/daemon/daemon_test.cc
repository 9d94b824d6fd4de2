#include <tilewise/base/text.h>
#include <tilewise/daemon/log.h>
#include <tilewise/daemon/program.h>

#include <doctest/doctest.h>
#include <cstdlib>
#include <fstream>

#include "temp_folder.h"

using namespace tilewise;

namespace {

struct Parsed {
  std::optional<int> code;
  daemon::CommonOptions options;
};

Parsed parse(std::vector<std::string> arguments) {
  Parsed out;
  CLI::App app("test", "program");
  daemon::add_common_options(app, out.options);
  arguments.insert(arguments.begin(), "program");
  std::vector<char*> argv;
  for (std::string& a : arguments) argv.push_back(a.data());
  out.code = daemon::parse(app, static_cast<int>(argv.size()), argv.data());
  return out;
}

}  // namespace

TEST_CASE("the command line wins over the environment, and that over the file") {
  const testing::TempFolder folder;
  const std::string file = folder / "tilewise.toml";
  std::ofstream(file) << "log-level = \"error\"\ncores = 3\nlog-format = \"json\"\n";
  setenv("TILEWISE_LOG_LEVEL", "warn", 1);
  setenv("TILEWISE_CORES", "5", 1);
  const Parsed p = parse({"--config", file, "--cores", "7"});
  unsetenv("TILEWISE_LOG_LEVEL");
  unsetenv("TILEWISE_CORES");
  REQUIRE(!p.code);
  CHECK(p.options.cores == 7);
  CHECK(p.options.log_level == "warn");
  CHECK(p.options.log_format == "json");
}

TEST_CASE("mistakes are exit code 2") {
  CHECK(parse({"--no-such-option"}).code == daemon::kExitUsage);
  CHECK(parse({"--cores", "many"}).code == daemon::kExitUsage);
  CHECK(parse({"--config", "/no/such/file"}).code == daemon::kExitUsage);
  const testing::TempFolder folder;
  const std::string file = folder / "typo.toml";
  std::ofstream(file) << "loglevel = \"error\"\n";
  CHECK(parse({"--config", file}).code == daemon::kExitUsage);
  CHECK(parse({"--version"}).code == daemon::kExitOk);
  CHECK(!daemon::start_log("x", "loud", "text"));
  CHECK(!daemon::start_log("x", "info", "xml"));
}

TEST_CASE("sizes are parsed, or refused with the text") {
  CHECK(*daemon::parse_bytes("4GiB") == std::int64_t{4} << 30);
  CHECK(*daemon::parse_bytes("512MB") == 512'000'000);
  CHECK(*daemon::parse_bytes("64k") == 65'536);
  CHECK(*daemon::parse_bytes("1.5 KiB") == 1536);
  CHECK(*daemon::parse_bytes("77") == 77);
  for (const char* bad : {"", "-1GiB", "GiB", "4XB", "nan", "1e99", "4GiBs", "0"}) {
    CAPTURE(bad);
    CHECK(!daemon::parse_bytes(bad));
  }
}

TEST_CASE("what is advertised can be connected to") {
  const net::Address all{net::Address::Kind::kTcp, "0.0.0.0", 4000, {}};
  CHECK(daemon::advertised("", all).error().code == Errc::kInvalidArgument);
  CHECK(daemon::advertised("10.0.0.7:0", all)->to_string() == "tcp://10.0.0.7:4000");
  CHECK(daemon::advertised("", {net::Address::Kind::kTcp, "127.0.0.1", 5, {}})->port == 5);
}

TEST_CASE("json strings are quoted") { CHECK(json_quote("a\"b\\c\n\x01") == "\"a\\\"b\\\\c\\n\\u0001\""); }
