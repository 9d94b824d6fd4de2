#include "live.h"

#include <tilewise/base/text.h>
#include <tilewise/future.h>

#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <thread>

#include "fields.h"

namespace tilewise::cli {
namespace {

using json::value;

constexpr int kGraphsOnTop = 12;
constexpr auto kLook = std::chrono::milliseconds(250);  // at a graph that is waited for

std::string bytes(const value& v, const char* key) {
  return bytes_text(static_cast<std::int64_t>(number(v, key)));
}

std::string bar(double share, int width) {
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * width + 0.5);
  return "[" + std::string(static_cast<std::size_t>(full), '#') +
         std::string(static_cast<std::size_t>(width - full), '.') + "]";
}

// The part of an id that differs within one life of the scheduler, as on the page.
std::string short_id(const std::string& id) {
  const std::uint64_t all = std::strtoull(id.c_str(), nullptr, 10);
  return std::to_string(all & ((std::uint64_t{1} << 40) - 1));
}

std::string name_of(const value& op) {
  const std::string label = text(op, "label");
  return text(op, "kind") + (label.empty() ? "" : " '" + label.substr(0, 40) + "'");
}

// "; rather than balanced (2x2 tiles over 4 devices) 1.2 ms"
std::string rejected_text(const value& op) {
  std::string out;
  for (const value& other : list(op, "rejected")) {
    out += out.empty() ? "; rather than " : ", ";
    append(out, "%s (%s)", text(other, "policy").c_str(), text(other, "placement").c_str());
    if (number(other, "seconds") > 0) out += " " + seconds_text(number(other, "seconds"));
  }
  return out;
}

// As it is printed: without the term, which may be an earlier one where the scheduler went on with its state.
Result<std::string> full_id(const value& overview, const std::string& id) {
  std::uint64_t number = 0;
  const auto [end, bad] = std::from_chars(id.data(), id.data() + id.size(), number);
  if (bad != std::errc() || end != id.data() + id.size())
    return error(Errc::kInvalidArgument, "graph '" + printable(id) + "' is no number");
  if (make_id(0, number) != number) return id;
  for (const value& g : list(overview, "graphs"))
    if (short_id(text(g, "id")) == id) return text(g, "id");
  return std::to_string(make_id(static_cast<std::uint32_t>(whole(overview, "term")), number));
}

// Until it has ended: how it did.
Status wait_for(const Web& web, const std::string& full, const std::string& label) {
  const std::string path = "/api/graph?id=" + full + "&first=4294967295";  // no ops
  for (ProgressBar bar(label);; std::this_thread::sleep_for(kLook)) {
    TW_ASSIGN(const value told, web.get_json(path));
    const value* graph = member(told, "summary");
    if (graph == nullptr) return error(Errc::kUnsupported, "the dashboard tells no summary of " + label);
    bar({whole(*graph, "done"), whole(*graph, "tasks")});
    const std::string state = text(*graph, "state");
    if (state == "running") continue;
    if (state == "done") return {};
    if (isatty(STDERR_FILENO) == 1) std::fputs("\n", stderr);  // the bar stands where it was
    const value* cause = member(*graph, "cause");
    return error(state == "cancelled" ? Errc::kCancelled : Errc::kTaskFailed,
                 label + " " + state + ": " + (cause == nullptr ? "" : text(*cause, "message")));
  }
}

std::map<long long, double> busy_of(const value* overview) {
  std::map<long long, double> out;
  if (overview == nullptr) return out;
  for (const value& d : list(*overview, "devices")) out[whole(d, "id")] = number(d, "busy_s");
  return out;
}

void add_graph_line(std::string& out, const value& g) {
  const double tasks = number(g, "tasks"), share = tasks > 0 ? number(g, "done") / tasks : 1;
  append(out, "%-8s %-9s %s %3.0f %%  %lld/%lld tasks  %lld ops  %s\n", short_id(text(g, "id")).c_str(),
         text(g, "state").c_str(), bar(share, 20).c_str(), share * 100, whole(g, "done"), whole(g, "tasks"),
         whole(g, "ops"), text(g, "client").substr(0, 40).c_str());
}

}  // namespace

std::string top_text(const json::value& o, const json::value* before) {
  std::string out;
  const value* totals = member(o, "totals");
  const value none(nullptr);
  const value& t = totals != nullptr ? *totals : none;
  const double passed = before == nullptr ? 0 : number(o, "now") - number(*before, "now");
  const value* earlier = before == nullptr ? nullptr : member(*before, "totals");
  const double rate = earlier == nullptr || passed <= 0
                          ? 0
                          : (number(t, "tasks_done") - number(*earlier, "tasks_done")) / passed;
  append(out,
         "tilewise %s   up %s   graphs: %lld running, %lld done, %lld failed   tasks: %lld, %.0f/s   arrays: "
         "%lld\n",
         text(o, "version").c_str(), seconds_text(number(o, "now")).c_str(), whole(t, "graphs_running"),
         whole(t, "graphs_done"), whole(t, "graphs_failed"), whole(t, "tasks_done"), rate,
         whole(t, "arrays"));
  for (const value& w : list(o, "warnings")) {
    const value* serious = member(w, "serious");
    const bool problem = serious != nullptr && serious->is_bool() && serious->get_bool();
    out += std::string(problem ? "PROBLEM: " : "warning: ") + text(w, "what") + "\n         " +
           text(w, "to_do") + "\n";
  }
  out += "\n";
  append(out, "%-18s %-5s %27s %30s\n", "device", "kind", "load", "memory");
  const std::map<long long, double> was = busy_of(before);
  for (const value& d : list(o, "devices")) {
    const auto it = was.find(whole(d, "id"));
    const double load = it == was.end() || passed <= 0 ? 0
                                                       : (number(d, "busy_s") - it->second) / passed /
                                                             std::max(1.0, number(d, "streams"));
    const double memory = number(d, "memory");
    append(out, "%-18s %-5s %s %3.0f %%  %s %s of %s\n", text(d, "name").substr(0, 18).c_str(),
           text(d, "kind").c_str(), bar(load, 20).c_str(), std::clamp(load, 0.0, 1.0) * 100,
           bar(memory > 0 ? number(d, "used") / memory : 0, 14).c_str(), bytes(d, "used").c_str(),
           bytes(d, "memory").c_str());
  }
  out += "\ngraph    state\n";
  int shown = 0;
  for (const value& g : list(o, "graphs")) {
    if (shown++ == kGraphsOnTop) {
      append(out, "and %zu more\n", list(o, "graphs").size() - kGraphsOnTop);
      break;
    }
    add_graph_line(out, g);
    if (text(g, "state") != "running") continue;
    for (const value& op : list(g, "groups")) {
      if (number(op, "tasks") <= 0) continue;
      const double share = number(op, "done") / number(op, "tasks");
      append(out, "           %s %3.0f %%  %s x %lld\n", bar(share, 12).c_str(), share * 100,
             name_of(op).c_str(), whole(op, "ops"));
    }
  }
  std::map<std::string, double> lanes, lanes_before;
  for (const value& l : list(o, "lanes")) lanes[text(l, "lane")] += number(l, "bytes");
  if (before != nullptr)
    for (const value& l : list(*before, "lanes")) lanes_before[text(l, "lane")] += number(l, "bytes");
  if (!lanes.empty()) out += "\n";
  for (const auto& [lane, total] : lanes) {
    const double per_s =
        passed > 0 && lanes_before.contains(lane) ? (total - lanes_before[lane]) / passed : 0;
    append(out, "lane %-14s %12s/s %12s in all\n", lane.c_str(),
           bytes_text(static_cast<std::int64_t>(per_s)).c_str(),
           bytes_text(static_cast<std::int64_t>(total)).c_str());
  }
  return out;
}

std::string arrays_text(const json::value& all) {
  std::string out;
  append(out, "%lld arrays alive\n%-16s %-10s %-24s %12s %20s  %-6s %s\n", whole(all, "live"), "id", "type",
         "shape", "bytes", "blocks made", "held", "where; name");
  for (const value& a : list(all, "arrays")) {
    std::string shape;
    for (const value& n : list(a, "shape"))
      shape += (shape.empty() ? "" : ", ") + std::to_string(n.is_number() ? n.to_number<std::int64_t>() : 0);
    const value* held = member(a, "held");
    append(out, "%-16s %-10s %-24s %12s %9lld/%-10lld  %-6s %s; %s\n", text(a, "id").c_str(),
           text(a, "dtype").c_str(), ("(" + shape + ")").c_str(), bytes(a, "bytes").c_str(), whole(a, "made"),
           whole(a, "blocks"), held != nullptr && held->is_bool() && held->get_bool() ? "yes" : "no",
           text(a, "placement").c_str(), name_of(a).c_str());
  }
  const long long more = whole(all, "live") - static_cast<long long>(list(all, "arrays").size());
  if (more > 0) append(out, "and %lld more\n", more);
  return out;
}

std::string graph_text(const json::value& g) {
  std::string out;
  const value* summary = member(g, "summary");
  if (summary == nullptr) return out;
  add_graph_line(out, *summary);
  if (const value* cause = member(*summary, "cause"); cause != nullptr && cause->is_object())
    out += "ended because: " + text(*cause, "message") + "\n";
  append(out, "as written %lld ops", whole(g, "source_count"));
  for (const value& p : list(g, "passes")) append(out, ", %s %lld", text(p, "name").c_str(), whole(p, "ops"));
  out += "\n\n";
  append(out, "%-44s %22s %10s %10s %12s  %s\n", "op", "tasks", "began", "took", "result", "placed");
  for (const value& op : list(g, "ops")) {
    const value *began = member(op, "began"), *ended = member(op, "ended");
    const bool ran = began != nullptr && began->is_number() && ended != nullptr && ended->is_number();
    append(out, "%-44s %10lld/%-11lld %10s %10s %12s  %s\n",
           (std::to_string(whole(op, "position")) + " " + name_of(op)).substr(0, 44).c_str(),
           whole(op, "done"), whole(op, "tasks"),
           ran ? seconds_text(number(op, "began") - number(*summary, "submitted")).c_str() : "-",
           ran ? seconds_text(number(op, "ended") - number(op, "began")).c_str() : "-",
           bytes(op, "bytes").c_str(), text(op, "why").c_str());
  }
  if (number(g, "forgotten") > 0) append(out, "%lld ops are not remembered\n", whole(g, "forgotten"));
  return out;
}

std::string account_text(const json::value& g, const json::value& overview) {
  std::string out;
  const value* summary = member(g, "summary");
  if (summary == nullptr) return out;
  add_graph_line(out, *summary);
  append(out, "\n%-44s %9s %10s %10s %11s %12s  %s\n", "op", "tasks", "estimate", "busiest", "all devices",
         "copied", "placed");
  for (const value& op : list(g, "ops")) {
    const auto time = [&](const char* key) {
      return number(op, key) > 0 ? seconds_text(number(op, key)) : std::string("-");
    };
    append(out, "%-44s %9lld %10s %10s %11s %12s  %s\n",
           (std::to_string(whole(op, "position")) + " " + name_of(op)).substr(0, 44).c_str(),
           whole(op, "tasks"), time("predicted_s").c_str(), time("busiest_s").c_str(), time("busy_s").c_str(),
           bytes(op, "bytes_moved").c_str(), (text(op, "why") + rejected_text(op)).c_str());
  }
  if (number(g, "forgotten") > 0) append(out, "%lld ops are not remembered\n", whole(g, "forgotten"));
  std::map<long long, std::string> names;
  for (const value& d : list(overview, "devices")) names[whole(d, "id")] = text(d, "name");
  append(out, "\n%-18s %12s %12s\n", "device", "before", "peak");
  for (const value& peak : list(g, "peaks")) {
    const json::array* p = peak.if_array();
    if (p == nullptr || p->size() < 3) continue;
    const auto at = [&](std::size_t i) {
      return (*p)[i].is_number() ? (*p)[i].to_number<std::int64_t>() : 0;
    };
    const auto name = names.find(at(0));
    append(out, "%-18s %12s %12s\n",
           (name != names.end() ? name->second : "device " + std::to_string(at(0))).c_str(),
           bytes_text(at(2)).c_str(), bytes_text(at(1)).c_str());
  }
  const value* alone = member(g, "alone");
  if (alone != nullptr && alone->is_bool() && !alone->get_bool())
    out += "other graphs ran meanwhile: peaks are of all of them\n";
  return out;
}

std::string links_text(const json::value& links, const json::value& overview) {
  std::map<long long, std::string> names;
  for (const value& d : list(overview, "devices")) names[whole(d, "id")] = text(d, "name");
  const auto device = [&](const value& of, const char* key) {
    const auto name = names.find(whole(of, key));
    return name != names.end() ? name->second : "client " + std::to_string(whole(of, key));
  };
  std::string out;
  append(out, "%-16s %-16s %-14s %10s %12s  %s\n", "from", "to", "lane", "latency", "bytes/s",
         "probed: one for all that are alike, while nothing ran");
  for (const value& c : list(links, "classes")) {
    const json::array& sizes = list(c, "sizes");
    const value* inside = member(c, "inside");
    const bool in_process = inside != nullptr && inside->is_bool() && inside->get_bool();
    const std::string kinds = text(c, "from_kind") + " to " + text(c, "to_kind") +
                              (in_process                                   ? " in a process"
                               : text(c, "from_host") == text(c, "to_host") ? " on a host"
                                                                            : " between hosts");
    if (sizes.empty()) {
      append(out, "%-16s %-16s %-14s %10s %12s  %s, %s%s\n", "-", "-", "-", "-", "-", kinds.c_str(),
             text(c, "state").c_str(), text(c, "why").empty() ? "" : (": " + text(c, "why")).c_str());
      continue;
    }
    std::string told;
    for (const value& size : sizes)
      told += (told.empty() ? "" : ", ") + bytes(size, "bytes") + " " + seconds_text(number(size, "seconds"));
    const value* mapped = member(c, "mapped");
    if (mapped != nullptr && mapped->is_bool() && mapped->get_bool()) told += "; blocks are read in place";
    const double ago = number(overview, "now") - number(c, "at");
    append(out, "%-16s %-16s %-14s %10s %12s  %s, %s ago: %s%s\n", device(c, "from").c_str(),
           device(c, "to").c_str(), text(sizes.back(), "lane").c_str(),
           seconds_text(number(c, "latency_s")).c_str(), bytes(c, "bytes_per_s").c_str(), kinds.c_str(),
           seconds_text(std::max(0.0, ago)).c_str(), told.c_str(),
           text(c, "state") == "measured" ? "" : (" (" + text(c, "state") + ")").c_str());
  }
  if (list(links, "classes").empty()) out += "none: one host, or the scheduler has --no-link-probes\n";
  append(out, "\n%-16s %-16s %-14s %10s %12s  %s\n", "from", "to", "lane", "blocks", "bytes",
         "blocks that moved");
  for (const value& l : list(links, "links")) {
    const double each = number(l, "transfers") > 0 ? number(l, "busy_s") / number(l, "transfers") : 0;
    append(out, "%-16s %-16s %-14s %10lld %12s  %s\n", device(l, "from").c_str(), device(l, "to").c_str(),
           text(l, "lane").c_str(), whole(l, "transfers"), bytes(l, "bytes").c_str(),
           each > 0 ? (seconds_text(each) + " each").c_str() : "read in place");
  }
  const long long more = whole(links, "count") - static_cast<long long>(list(links, "links").size());
  if (more > 0) append(out, "and %lld more\n", more);
  return out;
}

Status top(const Web& web, Format format, double interval_s, bool once) {
  if (format == Format::kJson) {
    TW_ASSIGN(const std::string body, web.get("/api/overview"));
    std::puts(body.c_str());
    return {};
  }
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  value before(nullptr);
  for (bool first = true;; first = false) {
    TW_ASSIGN(value now, web.get_json("/api/overview"));
    const bool last = once || !terminal;
    if (last && first) {  // rates need two looks
      before = std::move(now);
      std::this_thread::sleep_for(std::chrono::seconds(1));
      continue;
    }
    const std::string page = top_text(now, before.is_null() ? nullptr : &before);
    if (!last) std::fputs("\x1b[H\x1b[2J", stdout);
    std::fputs(page.c_str(), stdout);
    std::fflush(stdout);
    if (last) return {};
    before = std::move(now);
    std::this_thread::sleep_for(std::chrono::duration<double>(interval_s));
  }
}

Status arrays(const Web& web, Format format) {
  if (format == Format::kJson) {
    TW_ASSIGN(const std::string body, web.get("/api/arrays"));
    std::puts(body.c_str());
    return {};
  }
  TW_ASSIGN(const value all, web.get_json("/api/arrays"));
  std::fputs(arrays_text(all).c_str(), stdout);
  return {};
}

Status links(const Web& web, Format format) {
  TW_ASSIGN(const std::string body, web.get("/api/links"));
  if (format == Format::kJson) {
    std::puts(body.c_str());
    return {};
  }
  TW_ASSIGN(const value overview, web.get_json("/api/overview"));
  boost::system::error_code ec;
  std::fputs(links_text(boost::json::parse(body, ec), overview).c_str(), stdout);
  return {};
}

Status graph(const Web& web, const std::string& id, bool wait, Format format) {
  TW_ASSIGN(const value overview, web.get_json("/api/overview"));
  if (id.empty()) {
    if (format == Format::kJson) {
      std::puts(boost::json::serialize(list(overview, "graphs")).c_str());
      return {};
    }
    std::string out;
    for (const value& g : list(overview, "graphs")) add_graph_line(out, g);
    std::fputs(out.empty() ? "no graph has run since the scheduler was started\n" : out.c_str(), stdout);
    return {};
  }
  TW_ASSIGN(const std::string full, full_id(overview, id));
  Status ended;
  if (wait) ended = wait_for(web, full, "graph " + short_id(full));
  TW_ASSIGN(const std::string body, web.get("/api/graph?id=" + full));
  if (format == Format::kJson) {
    std::puts(body.c_str());
    return ended;
  }
  boost::system::error_code ec;
  std::fputs(graph_text(boost::json::parse(body, ec)).c_str(), stdout);
  return ended;
}

Status explain_past(const Web& web, GraphId graph, Format format) {
  TW_ASSIGN(const std::string body, web.get("/api/graph?id=" + std::to_string(graph.value)));
  if (format == Format::kJson) {
    std::puts(body.c_str());
    return {};
  }
  TW_ASSIGN(const value overview, web.get_json("/api/overview"));
  boost::system::error_code ec;
  std::fputs(account_text(boost::json::parse(body, ec), overview).c_str(), stdout);
  return {};
}

Status login_link(const Web& web, config::Role role, Format format) {
  TW_ASSIGN(const std::string body, web.post("/api/login-link", {{"role", config::name_of(role)}}));
  boost::system::error_code ec;
  const value answer = boost::json::parse(body, ec);
  const std::string link = web.origin() + text(answer, "path");
  if (format == Format::kJson)
    std::printf("{\"link\":%s}\n", json_quote(link).c_str());
  else
    std::printf("%s\n", link.c_str());
  return {};
}

}  // namespace tilewise::cli
