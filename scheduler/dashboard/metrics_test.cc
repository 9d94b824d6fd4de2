// /metrics by the rules of Prometheus: the text format 0.0.4 (prometheus.io, "Exposition formats") and its "Metric and label
// naming". Then that what people are given to read them by, docs/dashboard.md and deploy/, speaks of metrics that exist.
#include "metrics.h"

#include <tilewise/json/json.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "test_cluster.h"

namespace tilewise::dashboard {
namespace {

struct Family {
  std::string type, help;
  std::set<std::string> labels;  // names, of all samples
  int samples = 0;
};
using Families = std::map<std::string, Family>;

bool one_of(const std::string& text, std::initializer_list<const char*> all) {
  return std::find(all.begin(), all.end(), text) != all.end();
}

// name="value", ...; the value with its escapes. Fails the test at what is none.
std::map<std::string, std::string> labels_of(const std::string& text) {
  static const std::regex kName("[a-zA-Z_][a-zA-Z0-9_]*");
  std::map<std::string, std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t equals = text.find("=\"", at);
    REQUIRE(equals != std::string::npos);
    const std::string name = text.substr(at, equals - at);
    CHECK(std::regex_match(name, kName));
    CHECK(!name.starts_with("__"));  // Prometheus' own
    CHECK(!one_of(name, {"le", "quantile", "job", "instance"}));
    std::string value;
    for (at = equals + 2; at < text.size() && text[at] != '"'; ++at) {
      REQUIRE(text[at] != '\n');
      if (text[at] == '\\') REQUIRE(one_of(std::string(1, text[++at]), {"\\", "\"", "n"}));
      value += text[at];
    }
    REQUIRE(at < text.size());
    CHECK(out.emplace(name, value).second);
    ++at;
    if (at < text.size()) REQUIRE(text[at++] == ',');
  }
  return out;
}

Families read(const std::string& text) {
  static const std::regex kName("tilewise_[a-z][a-z0-9_]*[a-z0-9]");
  Families out;
  std::set<std::string> series;
  std::string current, expected;  // the family whose samples may come; the one whose TYPE must come
  REQUIRE(text.ends_with("\n"));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    CHECK(json::utf8(line) == line);
    std::smatch m;
    if (line.starts_with("# HELP ")) {
      REQUIRE(std::regex_match(line, m, std::regex("# HELP (\\S+) (.+)")));
      REQUIRE(
          out.emplace(m[1], Family{"", m[2], {}, 0}).second);  // once, so all samples of it stand together
      CHECK(std::regex_match(m[1].str(), kName));
      CHECK(m[2].str().ends_with("."));
      expected = m[1];
      current.clear();
    } else if (line.starts_with("# TYPE ")) {
      REQUIRE(std::regex_match(line, m, std::regex("# TYPE (\\S+) (counter|gauge)")));
      REQUIRE(m[1] == expected);
      out.at(expected).type = m[2];
      current = expected;
    } else {
      REQUIRE(std::regex_match(line, m, std::regex("([a-z0-9_]+)(\\{(.*)\\})? (\\S+)")));
      REQUIRE(m[1] == current);
      CHECK(series.insert(line.substr(0, line.rfind(' '))).second);
      std::size_t end = 0;
      const double value = std::stod(m[4].str(), &end);
      CHECK(end == m[4].str().size());
      CHECK((out.at(current).type != "counter" || value >= 0));
      ++out.at(current).samples;
      for (const auto& [name, ignored] : labels_of(m[3])) out.at(current).labels.insert(name);
    }
  }
  return out;
}

std::string everything() {
  scheduler::Overview o = test::cluster(2);
  o.status.peers[0].descriptions[0].name = "w1/\"evil\"\n\\x\xFF";
  o.status.lanes.emplace_back(WorkerId{1}, msg::LaneStats{msg::Lane::kMapped, 3, 2048});
  o.status.lanes.emplace_back(WorkerId{2}, msg::LaneStats{msg::Lane::kTcp, 1, 7});
  return metrics_text(o, warnings(o, nullptr), {1, 2, 3, 4}, "0.1.0");
}

std::string file(const std::string& path) {
  std::ifstream in(std::string(TILEWISE_SOURCE_DIR) + "/" + path);
  REQUIRE(in.good());
  return {std::istreambuf_iterator<char>(in), {}};
}

std::set<std::string> names_in(const std::string& text) {
  static const std::regex kName("\\btilewise_[a-z0-9_]+");
  std::set<std::string> out;
  for (std::sregex_iterator at(text.begin(), text.end(), kName), end; at != end; ++at) out.insert(at->str());
  return out;
}

TEST_CASE("metrics are Prometheus' text format, whatever names say") {
  const std::string text = everything();
  const Families all = read(text);
  for (const auto& [name, family] : all) {
    CAPTURE(name);
    CHECK(family.samples > 0);
    CHECK(!family.type.empty());
  }
  const auto has = [&](const char* line) { return text.find(line) != std::string::npos; };
  CHECK(has("tilewise_device_memory_used_bytes{device=\"w2/host:0\",kind=\"host\"} 100\n"));
  CHECK(has("device=\"w1/\\\"evil\\\"\\n\\\\x\xEF\xBF\xBD\""));
  CHECK(has("tilewise_lane_bytes_total{worker=\"w1\",lane=\"mapped\"} 2048\n"));
  CHECK(has("tilewise_scheduler_uptime_seconds 100\n"));
  CHECK(has("tilewise_warnings{code=\"stuck\"} 0\n"));
}

TEST_CASE("metrics without a cluster are as well formed") {
  for (const auto& [name, family] : read(metrics_text({}, {}, {}, ""))) CHECK(!family.type.empty());
}

TEST_CASE("names say unit and kind: counters end in _total, nothing else does, units are seconds and bytes") {
  for (const auto& [name, family] : read(everything())) {
    CAPTURE(name);
    CHECK(name.ends_with("_total") == (family.type == "counter"));
    const std::string base = family.type == "counter" ? name.substr(0, name.size() - 6) : name;
    for (const char* other : {"_ms", "_ns", "_us", "milliseconds", "minutes", "kib", "mib", "kilobytes",
                              "percent", "_count", "_sum", "_bucket"})
      CHECK(!base.ends_with(other));
    if (base.find("bytes") != std::string::npos) CHECK(base.ends_with("_bytes"));
    if (base.find("seconds") != std::string::npos) CHECK(base.ends_with("_seconds"));
    for (const std::string& label :
         family.labels) {  // each with as many values as the cluster has such things
      CHECK(one_of(
          label, {"device", "kind", "worker", "name", "host", "lane", "role", "outcome", "code", "version"}));
      CHECK(name.find("_" + label + "_total") == std::string::npos);
    }
  }
}

TEST_CASE("the documentation lists every metric, and none that is not there") {
  std::set<std::string> there;
  for (const auto& [name, family] : read(everything())) there.insert(name);
  CHECK(names_in(file("docs/dashboard.md")) == there);
}

TEST_CASE("the Grafana dashboard asks for metrics and labels that exist") {
  const Families all = read(everything());
  const json::value board = boost::json::parse(file("deploy/grafana-dashboard.json"));
  std::vector<std::string> asked;
  const std::function<void(const json::value&)> walk = [&](const json::value& v) {
    if (const auto* object = v.if_object()) {
      for (const auto& [key, value] : *object) {
        if (key == "expr") asked.emplace_back(value.as_string().c_str());
        walk(value);
      }
    } else if (const auto* list = v.if_array()) {
      for (const json::value& value : *list) walk(value);
    }
  };
  walk(board);
  CHECK(asked.size() >= 10);
  for (const std::string& expr : asked) {
    CAPTURE(expr);
    std::set<std::string> labels;
    for (const std::string& name : names_in(expr)) {
      REQUIRE(all.contains(name));
      labels.insert(all.at(name).labels.begin(), all.at(name).labels.end());
      // A counter is looked at through its growth, a gauge is not.
      const bool grows = std::regex_search(expr, std::regex("(rate|increase)\\(" + name));
      CHECK(grows == (all.at(name).type == "counter"));
    }
    CHECK(!names_in(expr).empty());
    std::smatch m;
    if (std::regex_search(expr, m, std::regex("by \\((\\w+)\\)"))) CHECK(labels.contains(m[1]));
    if (std::regex_search(expr, m, std::regex("\\{(\\w+)="))) CHECK(labels.contains(m[1]));
  }
}

}  // namespace
}  // namespace tilewise::dashboard
