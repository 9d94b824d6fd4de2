#include <tilewise/base/text.h>
#include <tilewise/explain.h>
#include <tilewise/out_of_memory.h>

#include <algorithm>
#include <cstdio>

namespace tilewise {
namespace {

constexpr std::size_t kMaxOps = 60, kMaxLinks = 12, kMaxCritical = 12;  // lines of text
constexpr std::int64_t kMaxDrawn = 16;  // blocks along a dimension, and slices

std::string flops_text(double flops) {
  static constexpr const char* kUnits[] = {"flop", "kflop", "Mflop", "Gflop", "Tflop", "Pflop"};
  int unit = 0;
  for (; flops >= 1000 && unit < 5; ++unit) flops /= 1000;
  std::string out;
  append(out, "%.3g %s", flops, kUnits[unit]);
  return out;
}

}  // namespace

Explanation::Explanation(msg::Explanation account, const std::vector<Device>& devices)
    : account_(std::move(account)) {
  for (const Device& device : devices) names_[device.id] = device.name;
}

std::string Explanation::name_of(DeviceId device) const {
  const auto it = names_.find(device);
  return it != names_.end() ? it->second : "client " + std::to_string(device.value);
}

std::string Explanation::text(bool passes) const {
  const msg::Explanation& a = account_;
  std::string out;
  const auto name = [&](DeviceId id) { return name_of(id); };
  const std::string needs = a.needs.empty() ? "" : needs_text(a.needs, name) + "\n";
  if (refused()) return "would be refused: " + a.outcome.message + "\n" + needs;
  if (a.op_count == 0) return "nothing to do: what was asked for is there, or has been asked for before\n";
  append(out, "%u ops, %lld tasks, %lld steps, %s", a.op_count, static_cast<long long>(a.tasks),
         static_cast<long long>(a.steps), flops_text(a.flops).c_str());
  if (a.simulated)
    append(out, ": %s predicted; no schedule is shorter than %s\n", seconds_text(a.seconds).c_str(),
           seconds_text(a.bound_s).c_str());
  else
    out += "; too many steps to run them on paper: no times, peaks and links\n";
  if (!a.fits) out += "would not fit, in the order of the plan:\n" + needs;
  if (!a.passes.empty()) {
    out += "passes:";
    for (const msg::PassAccount& pass : a.passes) append(out, " %s %u ops;", pass.name.c_str(), pass.ops);
    out.back() = '\n';
  }
  if (passes) {
    for (const msg::PassAccount& pass : a.passes) out += "\nafter " + pass.name + ":\n" + pass.dump;
    out += "\n";
  }
  append(out, "\n%-32s %9s %10s %10s %10s %10s  %s\n", "op", "tasks", "from", "to", "busy", "moved",
         "placed");
  for (std::size_t i = 0; i < a.ops.size() && i < kMaxOps; ++i) {
    const msg::OpAccount& op = a.ops[i];
    append(out, "%-32s %9lld %10s %10s %10s %10s  ", op.op.substr(0, 32).c_str(),
           static_cast<long long>(op.tasks), seconds_text(op.begin_s).c_str(), seconds_text(op.end_s).c_str(),
           seconds_text(op.busy_s).c_str(), bytes_text(op.bytes_moved).c_str());
    for (std::size_t c = 0; c < op.choices.size(); ++c) {
      const msg::ChoiceAccount& choice = op.choices[c];
      out += c == 0 ? "" : c == 1 ? "; rather than " : ", ";
      append(out, "%s (%s)", choice.policy.c_str(), choice.placement.c_str());
      if (choice.seconds > 0) out += " " + seconds_text(choice.seconds);
    }
    out += "\n";
  }
  if (a.ops.size() > kMaxOps) append(out, "... and %zu more ops\n", a.ops.size() - kMaxOps);
  if (!a.simulated) return out;
  append(out, "\n%-24s %9s %10s %12s %12s %12s %12s\n", "device", "tasks", "busy", "before", "peak", "after",
         "memory");
  for (const msg::DeviceAccount& d : a.devices) {
    append(out, "%-24s %9lld %10s %12s %12s %12s %12s\n", name_of(d.device).c_str(),
           static_cast<long long>(d.tasks), seconds_text(d.busy_s).c_str(),
           bytes_text(d.bytes_before).c_str(), bytes_text(d.bytes_peak).c_str(),
           bytes_text(d.bytes_after).c_str(), d.bytes_memory > 0 ? bytes_text(d.bytes_memory).c_str() : "?");
    if (d.bytes_spilled > 0)
      append(out, "%-24s %s leave for what lies below (%s) and %s come back: %s\n", "",
             bytes_text(d.bytes_spilled).c_str(), bytes_text(d.bytes_below).c_str(),
             bytes_text(d.bytes_returned).c_str(), seconds_text(d.spill_s).c_str());
  }
  if (!a.links.empty()) out += "\nlinks\n";
  for (std::size_t i = 0; i < a.links.size() && i < kMaxLinks; ++i) {
    const msg::LinkAccount& link = a.links[i];
    append(out, "  %s -> %s: %lld blocks, %s%s\n", name_of(link.from).c_str(), name_of(link.to).c_str(),
           static_cast<long long>(link.blocks), bytes_text(link.bytes).c_str(),
           link.mapped ? ", read in place"
                       : (", " + seconds_text(link.busy_s) + " at " +
                          bytes_text(static_cast<std::int64_t>(link.bytes_per_s)) + "/s" +
                          (link.measured ? ", measured" : ""))
                             .c_str());
  }
  if (a.links.size() > kMaxLinks) append(out, "  ... and %zu more\n", a.links.size() - kMaxLinks);
  out += "\ncritical path\n";
  const std::size_t first = a.critical.size() - std::min(a.critical.size(), kMaxCritical);
  if (first > 0) append(out, "  ... %zu stretches before\n", first);
  for (std::size_t i = first; i < a.critical.size(); ++i) {
    const msg::CriticalAccount& c = a.critical[i];
    const std::string op = c.op < a.ops.size() ? a.ops[c.op].op : "?";
    append(out, "  %s %s %s %s\n", op.c_str(),
           c.what == "moves"    ? "waits for bytes to"
           : c.what == "spills" ? "waits for room on"
           : c.what == "waits"  ? "waits for other graphs on"
                                : "runs on",
           name_of(c.device).c_str(), seconds_text(c.seconds).c_str());
  }
  return out;
}

std::string Explanation::json() const {
  const msg::Explanation& a = account_;
  std::string out = "{";
  const auto number = [&](const char* key, double value) {
    out += std::string(out.back() == '{' ? "" : ",") + json_quote(key) + ":" + json_number(value);
  };
  const auto words = [&](const char* key, const std::string& value) {
    out += std::string(out.back() == '{' ? "" : ",") + json_quote(key) + ":" + json_quote(value);
  };
  const auto flag = [&](const char* key, bool value) {
    out += std::string(out.back() == '{' ? "" : ",") + json_quote(key) + (value ? ":true" : ":false");
  };
  const auto list = [&](const char* key, const auto& items, const auto& each) {
    out += std::string(out.back() == '{' ? "" : ",") + json_quote(key) + ":[";
    for (const auto& item : items) {
      out += out.back() == '[' ? "{" : ",{";
      each(item);
      out += "}";
    }
    out += "]";
  };
  flag("refused", refused());
  if (refused()) words("why", a.outcome.message);
  flag("simulated", a.simulated);
  flag("fits", a.fits);
  list("needs", a.needs, [&](const msg::NeedAccount& need) {
    out += json_quote("devices") + ":[";
    for (const DeviceId device : need.devices)
      out += (out.back() == '[' ? "" : ",") + json_quote(name_of(device));
    out += "]";
    words("op", need.op);
    const std::pair<const char*, std::int64_t> figures[] = {
        {"needed_bytes", need.needed_bytes}, {"memory_bytes", need.memory_bytes},
        {"below_bytes", need.below_bytes},   {"input_bytes", need.input_bytes},
        {"output_bytes", need.output_bytes}, {"scratch_bytes", need.scratch_bytes},
        {"held_bytes", need.held_bytes}};
    for (const auto& [key, bytes] : figures) number(key, static_cast<double>(bytes));
  });
  number("tasks", static_cast<double>(a.tasks));
  number("steps", static_cast<double>(a.steps));
  number("flops", a.flops);
  number("seconds", a.seconds);
  number("bound_seconds", a.bound_s);
  list("passes", a.passes, [&](const msg::PassAccount& pass) {
    words("name", pass.name);
    number("ops", pass.ops);
    words("graph", pass.dump);
  });
  list("ops", a.ops, [&](const msg::OpAccount& op) {
    words("op", op.op);
    number("tasks", static_cast<double>(op.tasks));
    number("steps", static_cast<double>(op.steps));
    number("flops", op.flops);
    number("bytes_written", static_cast<double>(op.bytes_written));
    number("bytes_moved", static_cast<double>(op.bytes_moved));
    number("begin_seconds", op.begin_s);
    number("end_seconds", op.end_s);
    number("busy_seconds", op.busy_s);
    number("critical_seconds", op.critical_s);
    list("choices", op.choices, [&](const msg::ChoiceAccount& choice) {
      words("policy", choice.policy);
      words("placement", choice.placement);
      number("seconds", choice.seconds);
    });
  });
  list("devices", a.devices, [&](const msg::DeviceAccount& d) {
    words("device", name_of(d.device));
    number("tasks", static_cast<double>(d.tasks));
    number("bytes_before", static_cast<double>(d.bytes_before));
    number("bytes_peak", static_cast<double>(d.bytes_peak));
    number("bytes_after", static_cast<double>(d.bytes_after));
    number("bytes_memory", static_cast<double>(d.bytes_memory));
    number("busy_seconds", d.busy_s);
    number("bytes_below", static_cast<double>(d.bytes_below));
    number("bytes_spilled", static_cast<double>(d.bytes_spilled));
    number("bytes_returned", static_cast<double>(d.bytes_returned));
    number("spill_seconds", d.spill_s);
  });
  list("links", a.links, [&](const msg::LinkAccount& link) {
    words("from", name_of(link.from));
    words("to", name_of(link.to));
    flag("mapped", link.mapped);
    number("blocks", static_cast<double>(link.blocks));
    number("bytes", static_cast<double>(link.bytes));
    number("busy_seconds", link.busy_s);
    number("bytes_per_second", link.bytes_per_s);
    flag("measured", link.measured);
  });
  list("critical_path", a.critical, [&](const msg::CriticalAccount& c) {
    number("op", c.op);
    words("device", name_of(c.device));
    words("what", c.what);
    number("seconds", c.seconds);
  });
  return out + "}";
}

std::string Explanation::drawing() const {
  if (refused()) return "would be refused: " + account_.outcome.message + "\n";
  std::string out;
  for (const msg::ArrayAccount& array : account_.arrays) {
    const ir::Shape counts = array.grid.counts();
    if (!array.placement.verify(counts)) continue;  // not ours to draw
    const int rank = array.grid.rank();
    out += ir::to_string(array.grid) + (array.planned ? ", not computed yet\n" : "\n");
    const auto cell = [&](const ir::Index& at) {
      std::string names = name_of(array.placement.owner(at));
      for (const auto& [device, name] : names_) {
        if (device != array.placement.owner(at) && array.placement.holds(at, device)) names += "+" + name;
      }
      return names;
    };
    const std::int64_t rows = rank >= 2 ? counts[rank - 2] : 1, columns = rank >= 1 ? counts[rank - 1] : 1;
    std::int64_t slices = 1;
    for (int d = 0; d + 2 < rank; ++d) slices *= counts[d];
    for (std::int64_t s = 0; s < std::min(slices, kMaxDrawn); ++s) {
      ir::Index at(static_cast<std::size_t>(rank), 0);
      std::int64_t rest = s;
      for (int d = rank - 3; d >= 0; --d) at[d] = rest % counts[d], rest /= counts[d];
      if (rank > 2) out += "slice " + std::to_string(s) + " of " + std::to_string(slices) + "\n";
      std::vector<std::vector<std::string>> cells;
      std::size_t width = 3;
      for (std::int64_t r = 0; r < std::min(rows, kMaxDrawn); ++r) {
        cells.emplace_back();
        for (std::int64_t c = 0; c < std::min(columns, kMaxDrawn); ++c) {
          if (rank >= 2) at[rank - 2] = r;
          if (rank >= 1) at[rank - 1] = c;
          cells.back().push_back(cell(at));
          width = std::max(width, cells.back().back().size());
        }
      }
      for (const auto& row : cells) {
        for (const std::string& text : row) out += "| " + text + std::string(width - text.size() + 1, ' ');
        out += columns > kMaxDrawn ? "| ...\n" : "|\n";
      }
      if (rows > kMaxDrawn) out += "... " + std::to_string(rows - kMaxDrawn) + " more rows of blocks\n";
    }
    if (slices > kMaxDrawn) out += "... " + std::to_string(slices - kMaxDrawn) + " more slices\n";
  }
  return out;
}

}  // namespace tilewise
