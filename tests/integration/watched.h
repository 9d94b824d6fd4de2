// A cluster with a page, and what the tool says of it.
#pragma once
#include <doctest/doctest.h>
#include <tilewise/json/json.h>

#include <string>
#include <vector>

#include "harness.h"

namespace tilewise::testing {

struct Watched {
  explicit Watched(ClusterOptions options) : cluster(with_page(std::move(options), folder / "page")) {}
  static ClusterOptions with_page(ClusterOptions options, const std::string& file) {
    for (const std::string& word : {std::string("--dashboard-listen"), std::string("127.0.0.1:0"),
                                    std::string("--dashboard-address-file"), file})
      options.scheduler_args.push_back(word);
    return options;
  }
  Ran tool(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--dashboard", read_file(folder / "page")});
    return cluster.tool(arguments);
  }
  json::object ask(const char* command) const {
    const Ran ran = tool({command, "--json"});
    REQUIRE_MESSAGE(ran.code == 0, ran.errors);
    return boost::json::parse(ran.output).as_object();
  }
  // The classes of links, once so many are measured.
  json::array measured(std::size_t count) const {
    json::array found;
    CHECK(eventually([&] {
      found.clear();
      const json::object page = ask("links");
      for (const json::value& c : page.at("classes").as_array())
        if (c.at("state").as_string() == "measured") found.push_back(c);
      return found.size() == count;
    }));
    return found;
  }

  TempFolder folder;
  Cluster cluster;
};

}  // namespace tilewise::testing
