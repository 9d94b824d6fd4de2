#include <tilewise/account.h>
#include <tilewise/base/text.h>

#include <algorithm>
#include <tuple>

#include "measured_path.h"

namespace tilewise {
namespace {

constexpr std::size_t kMaxOps = 60, kMaxLinks = 12, kMaxCritical = 12;  // lines of text
constexpr std::size_t kMaxPath = 4096;                                  // stretches

// What is not known is told as that.
std::string time_text(bool known, double seconds) { return known ? seconds_text(seconds) : "-"; }
std::string size_text(bool known, std::int64_t bytes) { return known ? bytes_text(bytes) : "-"; }

struct Way {  // a link, whatever lane
  msg::LinkAccount predicted;
  std::vector<msg::MeasuredLink> measured;
};

}  // namespace

Account::Account(msg::Explanation told, const std::vector<msg::TraceReply>& traces,
                 const std::vector<Device>& devices)
    : predicted_(std::move(told), devices) {
  // What ended on a worker since `since_ns` is all there; it was told at `now_ns`.
  for (const msg::TraceReply& reply : traces) {
    const double remembered_s = static_cast<double>(reply.now_ns - reply.since_ns) * 1e-9;
    overwritten_ |=
        reply.cut > 0 || (reply.lost > 0 && (reply.since_ns == 0 || remembered_s < measured().ago_s));
  }
  critical_ = client::measured_path(traces, measured().ops, kMaxPath);
  find_links(traces);
}

void Account::find_links(const std::vector<msg::TraceReply>& traces) {
  own_links_ = measured().alone;
  links_ = measured().links;
  if (own_links_ || overwritten_ || traces.empty()) return;
  std::map<std::tuple<DeviceId, DeviceId, msg::Lane>, msg::MeasuredLink> sums;
  for (const msg::TraceReply& reply : traces) {
    for (const msg::TracedStep& step : reply.steps) {
      if (step.kind != msg::TraceKind::kTransfer) continue;
      msg::MeasuredLink& sum = sums[{step.peer, step.device, step.lane}];
      sum.from = step.peer, sum.to = step.device, sum.lane = step.lane;
      ++sum.blocks;
      sum.bytes += step.bytes;
      sum.busy_s += static_cast<double>(step.end_ns - step.start_ns) * 1e-9;
    }
  }
  links_.clear();
  for (const auto& [key, sum] : sums) links_.push_back(sum);
  std::stable_sort(links_.begin(), links_.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  own_links_ = true;
}

double Account::critical_s() const {
  double seconds = 0;
  for (const msg::CriticalAccount& c : critical_) seconds += c.seconds;
  return seconds;
}

std::string Account::text() const {
  const msg::Explanation& a = told();
  const msg::Measured& m = measured();
  if (predicted_.refused()) return "no account: " + a.outcome.message + "\n";
  std::string out;
  append(out, "%u ops, %lld of %lld tasks %s", a.op_count, static_cast<long long>(m.tasks_done),
         static_cast<long long>(m.tasks), m.running ? "so far" : "done");
  append(out, ": %s measured", seconds_text(m.seconds).c_str());
  if (predicted()) append(out, ", %s predicted", seconds_text(a.seconds).c_str());
  out += "\n";
  if (!m.outcome.ok()) out += "it failed: " + m.outcome.message + "\n";
  if (!predicted())
    out +=
        "not predicted: " + (a.unpredicted.empty() ? "too many steps to run them on paper" : a.unpredicted) +
        "\n";
  if (!a.fits) out += "was predicted not to fit\n";
  if (!m.alone) out += "other requests ran meanwhile: what devices had in memory is theirs too\n";
  if (m.forgotten > 0) append(out, "nothing is known any more of %u ops\n", m.forgotten);

  std::vector<const msg::MeasuredOp*> of(a.ops.size());
  for (const msg::MeasuredOp& op : m.ops)
    if (op.op < of.size()) of[op.op] = &op;
  append(out, "\n%-32s %9s %10s %10s %10s %10s %10s %10s\n", "op (predicted, measured)", "tasks", "busy", "",
         "moved", "", "from", "to");
  for (std::size_t i = 0; i < a.ops.size() && i < kMaxOps; ++i) {
    const msg::OpAccount& op = a.ops[i];
    const msg::MeasuredOp* was = of[i];
    const bool began = was != nullptr && was->begin_s >= 0;
    append(out, "%-32s %9lld %10s %10s %10s %10s %10s %10s\n", op.op.substr(0, 32).c_str(),
           static_cast<long long>(was != nullptr ? was->tasks : 0), time_text(predicted(), op.busy_s).c_str(),
           time_text(was != nullptr, was != nullptr ? was->busy_s : 0).c_str(),
           size_text(predicted(), op.bytes_moved).c_str(),
           size_text(was != nullptr, was != nullptr ? was->bytes_moved : 0).c_str(),
           time_text(began, began ? was->begin_s : 0).c_str(),
           time_text(began, began ? was->end_s : 0).c_str());
  }
  if (a.ops.size() > kMaxOps) append(out, "... and %zu more ops\n", a.ops.size() - kMaxOps);

  append(out, "\n%-24s %10s %10s %12s %12s %12s %12s\n", "device (predicted, measured)", "busy", "", "peak",
         "", "spilled", "");
  std::map<DeviceId, std::pair<const msg::DeviceAccount*, const msg::MeasuredDevice*>> devices;
  if (predicted())
    for (const msg::DeviceAccount& d : a.devices) devices[d.device].first = &d;
  for (const msg::MeasuredDevice& d : m.devices) devices[d.device].second = &d;
  for (const auto& [id, both] : devices) {
    const auto [said, was] = both;
    append(out, "%-24s %10s %10s %12s %12s %12s %12s\n", predicted_.name_of(id).c_str(),
           time_text(said != nullptr, said ? said->busy_s : 0).c_str(),
           time_text(was != nullptr, was ? was->busy_s : 0).c_str(),
           size_text(said != nullptr, said ? said->bytes_peak : 0).c_str(),
           size_text(was != nullptr, was ? was->bytes_peak : 0).c_str(),
           size_text(said != nullptr, said ? said->bytes_spilled : 0).c_str(),
           size_text(was != nullptr, was ? was->bytes_spilled : 0).c_str());
  }

  std::map<std::pair<DeviceId, DeviceId>, Way> ways;
  for (const msg::LinkAccount& link : a.links) {
    msg::LinkAccount& sum = ways[{link.from, link.to}].predicted;
    sum.blocks += link.blocks, sum.bytes += link.bytes, sum.busy_s += link.busy_s;
  }
  for (const msg::MeasuredLink& link : links_) ways[{link.from, link.to}].measured.push_back(link);
  std::vector<std::pair<std::pair<DeviceId, DeviceId>, Way>> sorted(ways.begin(), ways.end());
  const auto bytes = [](const Way& way) {
    std::int64_t sum = way.predicted.bytes;
    for (const msg::MeasuredLink& link : way.measured) sum = std::max(sum, link.bytes);
    return sum;
  };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const auto& x, const auto& y) { return bytes(x.second) > bytes(y.second); });
  if (!sorted.empty())
    out += own_links_ ? "\nlinks\n" : "\nlinks; what was measured is of all requests that ran meanwhile\n";
  for (std::size_t i = 0; i < sorted.size() && i < kMaxLinks; ++i) {
    const auto& [ends, way] = sorted[i];
    out += "  " + predicted_.name_of(ends.first) + " -> " + predicted_.name_of(ends.second) + ":";
    if (predicted())
      append(out, " %lld blocks, %s predicted;", static_cast<long long>(way.predicted.blocks),
             bytes_text(way.predicted.bytes).c_str());
    for (const msg::MeasuredLink& link : way.measured)
      append(out, " %lld blocks, %s by %s;", static_cast<long long>(link.blocks),
             bytes_text(link.bytes).c_str(), std::string(msg::name_of(link.lane)).c_str());
    if (way.measured.empty()) out += " nothing measured;";
    out.back() = '\n';
  }
  if (sorted.size() > kMaxLinks) append(out, "  ... and %zu more\n", sorted.size() - kMaxLinks);

  const auto path = [&](const char* title, const std::vector<msg::CriticalAccount>& steps) {
    double seconds = 0;
    for (const msg::CriticalAccount& c : steps) seconds += c.seconds;
    append(out, "\ncritical path, %s: %s\n", title, seconds_text(seconds).c_str());
    const std::size_t first = steps.size() - std::min(steps.size(), kMaxCritical);
    if (first > 0) append(out, "  ... %zu stretches before\n", first);
    for (std::size_t i = first; i < steps.size(); ++i) {
      const msg::CriticalAccount& c = steps[i];
      append(out, "  %s %s %s %s\n", c.op < a.ops.size() ? a.ops[c.op].op.c_str() : "?",
             c.what == "moves"    ? "waits for bytes to"
             : c.what == "spills" ? "waits for room on"
             : c.what == "waits"  ? "waits on"
                                  : "runs on",
             predicted_.name_of(c.device).c_str(), seconds_text(c.seconds).c_str());
    }
  };
  if (predicted()) path("predicted", a.critical);
  if (!critical_.empty()) path("measured", critical_);
  if (overwritten_)
    out +=
        "workers have overwritten records since: the measured path may lack its beginning "
        "(--trace-records)\n";
  return out;
}

std::string Account::json() const {
  const msg::Measured& m = measured();
  std::string out = predicted_.json();
  out.pop_back();
  const auto number = [&](const char* key, double value) {
    out += std::string(out.back() == '{' ? "" : ",") + json_quote(key) + ":" + json_number(value);
  };
  const auto count = [&](const char* key, std::int64_t value) { number(key, static_cast<double>(value)); };
  const auto words = [&](const char* key, std::string_view value) {
    out += std::string(out.back() == '{' ? "" : ",") + json_quote(key) + ":" + json_quote(std::string(value));
  };
  const auto flag = [&](const char* key, bool value) {
    out += std::string(out.back() == '{' ? "" : ",") + json_quote(key) + (value ? ":true" : ":false");
  };
  const auto list = [&](const char* key, const auto& items, const auto& each) {
    out += std::string(",") + json_quote(key) + ":[";
    for (const auto& item : items) {
      out += out.back() == '[' ? "{" : ",{";
      each(item);
      out += "}";
    }
    out += "]";
  };
  words("unpredicted", told().unpredicted);
  out += ",\"measured\":{";
  flag("running", m.running);
  flag("alone", m.alone);
  if (!m.outcome.ok()) words("failure", m.outcome.message);
  number("seconds", m.seconds);
  count("tasks", m.tasks);
  count("tasks_done", m.tasks_done);
  count("ops_forgotten", m.forgotten);
  list("ops", m.ops, [&](const msg::MeasuredOp& op) {
    count("op", op.op);
    count("tasks", op.tasks);
    count("failed", op.failed);
    count("bytes_moved", op.bytes_moved);
    number("begin_seconds", op.begin_s);
    number("end_seconds", op.end_s);
    number("busy_seconds", op.busy_s);
    number("busiest_seconds", op.busiest_s);
  });
  list("devices", m.devices, [&](const msg::MeasuredDevice& d) {
    words("device", predicted_.name_of(d.device));
    count("tasks", d.tasks);
    count("bytes_before", d.bytes_before);
    count("bytes_peak", d.bytes_peak);
    count("bytes_spilled", d.bytes_spilled);
    count("bytes_returned", d.bytes_returned);
    number("busy_seconds", d.busy_s);
  });
  flag("own_links", own_links_);
  list("links", links_, [&](const msg::MeasuredLink& link) {
    words("from", predicted_.name_of(link.from));
    words("to", predicted_.name_of(link.to));
    words("lane", msg::name_of(link.lane));
    count("blocks", link.blocks);
    count("bytes", link.bytes);
    number("busy_seconds", link.busy_s);
  });
  flag("overwritten", overwritten_);
  number("critical_seconds", critical_s());
  list("critical_path", critical_, [&](const msg::CriticalAccount& c) {
    number("op", c.op < told().ops.size() ? c.op : -1.0);
    words("device", predicted_.name_of(c.device));
    words("what", c.what);
    number("seconds", c.seconds);
  });
  return out + "}}";
}

}  // namespace tilewise
