#include <tilewise/config/token.h>

#include <doctest/doctest.h>
#include <cstdlib>
#include <filesystem>

#include "temp_folder.h"

using namespace tilewise;
namespace fs = std::filesystem;

TEST_CASE("a token is created once, loaded afterwards, and the environment wins") {
  const testing::TempFolder folder;
  const std::string file = folder / "deep/token";
  CHECK(config::find_token(file, false).error().code == Errc::kNotFound);
  const auto made = config::find_token(file, true);
  REQUIRE(made.has_value());
  CHECK(!made->chosen);
  CHECK((fs::status(file).permissions() & fs::perms::all) ==
        (fs::perms::owner_read | fs::perms::owner_write));
  const auto loaded = config::find_token(file, false);
  REQUIRE(loaded.has_value());
  CHECK(loaded->chosen);
  CHECK(loaded->token == made->token);
  setenv("TILEWISE_TOKEN", std::string(64, 'a').c_str(), 1);
  const auto from_environment = config::find_token(file, true);
  setenv("TILEWISE_TOKEN", "short", 1);
  const auto bad = config::find_token(file, true);
  unsetenv("TILEWISE_TOKEN");
  REQUIRE(from_environment.has_value());
  CHECK(!(from_environment->token == made->token));
  CHECK(!bad);
  fs::permissions(file, fs::perms::group_read, fs::perm_options::add);
  CHECK(config::find_token(file, true).error().code == Errc::kPermissionDenied);
}
