#include "control.h"

#include <tilewise/config/token.h>
#include <tilewise/config/version.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace tilewise::cli {

Control::~Control() = default;

Result<std::unique_ptr<Control>> Control::connect(const std::string& scheduler, const std::string& token_file,
                                                  TimeNs timeout_ns) {
  TW_ASSIGN(const net::Address address, net::Address::parse(scheduler));
  TW_ASSIGN(const config::FoundToken token, config::find_token(token_file, false));
  std::unique_ptr<Control> control(new Control);
  Control& c = *control;
  TW_ASSIGN(c.loop_, net::EventLoop::create());
  c.timeout_ns_ = timeout_ns;
  c.address_ = address.to_string();
  net::HandshakeOptions handshake{.token = token.token};
  handshake.deadline_ns = timeout_ns;
  std::optional<Result<std::unique_ptr<net::Link>>> connected;
  c.attempt_ = net::connect(
      *c.loop_, address, handshake,
      [&connected](Result<std::unique_ptr<net::Link>> link) { connected.emplace(std::move(link)); });
  if (!c.loop_->run_until([&] { return connected.has_value(); }, 2 * timeout_ns)) {
    return error(Errc::kTimeout, "no answer from " + c.address_);
  }
  if (!*connected)
    return error(connected->error().code, "scheduler " + c.address_ + ": " + connected->error().message);
  c.link_ = std::move(**connected);
  c.link_->start({[&c](net::Frame& frame) {
                    auto message = codec::decode(frame.payload);
                    if (!message) {
                      if (!c.closed_) c.closed_ = message.error();
                    } else if (const auto* ping = std::get_if<msg::Ping>(&*message)) {
                      (void)c.send(msg::Pong{ping->nonce});
                    } else {
                      c.inbox_.push_back(std::move(*message));
                    }
                  },
                  [&c](const Error& why) {
                    if (!c.closed_) c.closed_ = why;
                  },
                  {}});
  msg::Join join;
  join.role = msg::Role::kTool;
  join.name = config::process_name();
  join.software_version = config::software_version();
  join.host_id = config::host_id();
  TW_TRY(c.send(join));
  TW_ASSIGN(c.welcome_, c.receive<msg::Welcome>());
  if (!c.welcome_.refused.ok()) return error(c.welcome_.refused.code, c.welcome_.refused.message);
  return control;
}

// What has come by now is no answer to it.
Status Control::send(const msg::Message& message) {
  if (!link_) return *closed_;
  if (!std::holds_alternative<msg::Pong>(message)) inbox_.clear();
  TW_TRY(codec::encode(message, buffer_));
  return link_->send(codec::frame_type(message), buffer_.bytes());
}

template <class T> Result<T> Control::receive() {
  std::optional<T> found;
  std::optional<Error> refused;
  const auto look = [&] {
    if (found || refused) return true;  // the loop asks once more at its end
    auto next = inbox_.begin();
    for (; next != inbox_.end() && !std::holds_alternative<T>(*next); ++next) {
      // It does not say of what: there is one question at a time.
      const auto* refusal = std::get_if<msg::Refusal>(&*next);
      if (refusal == nullptr) continue;
      refused = error(refusal->why.code, "scheduler " + address_ + ": " + refusal->why.message);
      return true;
    }
    if (next != inbox_.end()) {
      found = std::move(std::get<T>(*next));
      ++next;
    }
    inbox_.erase(inbox_.begin(), next);  // what came before it was for nobody
    return found.has_value() || closed_.has_value();
  };
  if (!loop_->run_until(look, timeout_ns_)) {
    // Most answers do not say of what: this one's would be taken for the next one's.
    closed_ = error(Errc::kUnavailable,
                    "the link to " + address_ + " was given up when a question had no answer in time");
    link_.reset();
    return error(Errc::kTimeout, "no answer from " + address_);
  }
  if (found) return std::move(*found);
  return refused ? *refused : *closed_;
}

Result<msg::StatusReply> Control::status() {
  TW_TRY(send(msg::StatusRequest{}));
  return receive<msg::StatusReply>();
}

Result<std::vector<Control::Told>> Control::ask(msg::TraceRequest request) {
  request.nonce = ++asked_;
  TW_TRY(send(request));
  std::vector<Told> told;
  do {
    TW_ASSIGN(auto reply, receive<msg::TraceReply>());
    if (reply.nonce != asked_) continue;  // of a worker that was too late
    if (!reply.refused.ok()) return error(reply.refused.code, reply.refused.message);
    told.push_back({std::move(reply), monotonic_now()});
  } while (told.empty() || told.size() < told.front().reply.of);
  return told;
}

namespace {

// The same record, told twice: a wait that goes on has become longer meanwhile.
auto name_of(const msg::TracedStep& r) {
  return std::tuple(r.start_ns, r.device, r.stream, r.kind, r.op, r.point, r.user, r.peer);
}

void add_older(msg::TraceReply& all, msg::TraceReply&& older) {
  if (older.families.size() > all.families.size()) all.families = std::move(older.families);
  all.steps.insert(all.steps.end(), older.steps.begin(), older.steps.end());
  all.cut = older.cut;
  if (older.lost > all.lost) all.lost = older.lost, all.since_ns = older.since_ns;
}

TimeNs oldest_end(const msg::TraceReply& reply) {
  TimeNs oldest = INT64_MAX;
  for (const msg::TracedStep& r : reply.steps) oldest = std::min(oldest, r.end_ns);
  return oldest;
}

}  // namespace

Result<std::vector<msg::TraceReply>> Control::trace(const msg::TraceRequest& range) {
  constexpr int kMostPieces = 4096;
  constexpr TimeNs kSlack = 2 * kMillisecond;  // of what is known of the workers' clocks
  const TimeNs begin = monotonic_now();
  TW_ASSIGN(std::vector<Told> first, ask(range));
  std::vector<msg::TraceReply> all;
  std::map<WorkerId, std::size_t> place;
  std::map<WorkerId, TimeNs> oldest;  // of what was cut: until where it is told, in the worker's time
  for (Told& told : first) {
    place[told.reply.worker] = all.size();
    if (told.reply.cut > 0) oldest[told.reply.worker] = oldest_end(told.reply);
    all.push_back(std::move(told.reply));
  }
  std::map<WorkerId, TimeNs> ahead;  // our clock before theirs: from a question with a short answer
  const bool whole = oldest.empty();
  if (!whole) {
    msg::TraceRequest now;
    now.from_age_ns = 1;
    TW_ASSIGN(const std::vector<Told> probes, ask(now));
    for (const Told& told : probes) ahead[told.reply.worker] = told.came - told.reply.now_ns;
  }
  for (int piece = 0; piece < kMostPieces && !oldest.empty(); ++piece) {
    TimeNs until = INT64_MIN;
    for (const auto& [worker, end] : oldest) until = std::max(until, end + ahead[worker] + kSlack);
    msg::TraceRequest older = range;
    const TimeNs now = monotonic_now();
    if (range.from_age_ns > 0) older.from_age_ns = range.from_age_ns + (now - begin);
    older.until_age_ns = std::max<TimeNs>(now - until, 1);
    TW_ASSIGN(std::vector<Told> more, ask(older));
    std::erase_if(oldest, [&](const auto& entry) {  // it has left, and what was cut with it
      return std::none_of(more.begin(), more.end(),
                          [&](const Told& told) { return told.reply.worker == entry.first; });
    });
    bool further = false;
    for (Told& told : more) {
      const auto at = oldest.find(told.reply.worker);
      if (at == oldest.end()) continue;  // all of it is told
      if (told.reply.now_ns == 0) {      // it died meanwhile, and what was cut with it
        oldest.erase(at);
        continue;
      }
      const TimeNs end = oldest_end(told.reply);
      further = further || end < at->second;
      at->second = std::min(at->second, end);
      if (told.reply.cut == 0) oldest.erase(at);
      add_older(all[place.at(told.reply.worker)], std::move(told.reply));
    }
    if (!further && !oldest.empty()) break;
  }
  for (msg::TraceReply& reply : all) {
    if (whole) break;
    std::sort(reply.steps.begin(), reply.steps.end(), [](const auto& a, const auto& b) {
      return name_of(a) != name_of(b) ? name_of(a) < name_of(b) : a.end_ns > b.end_ns;
    });
    const auto same = [](const auto& a, const auto& b) { return name_of(a) == name_of(b); };
    reply.steps.erase(std::unique(reply.steps.begin(), reply.steps.end(), same), reply.steps.end());
  }
  return all;
}

Result<msg::Explanation> Control::explain(GraphId graph, bool account) {
  msg::Explain explain;
  explain.graph = graph;
  explain.account = account;
  TW_TRY(send(explain));
  return receive<msg::Explanation>();
}

Result<msg::DrainReply> Control::drain(const std::string& worker, msg::DrainWish wish) {
  TW_TRY(send(msg::DrainRequest{worker, wish}));
  TW_ASSIGN(auto reply, receive<msg::DrainReply>());
  if (!reply.outcome.ok()) return error(reply.outcome.code, reply.outcome.message);
  return reply;
}

Status Control::shutdown() {
  TW_TRY(send(msg::Shutdown{}));
  if (!loop_->run_until([&] { return closed_.has_value(); }, timeout_ns_)) {
    return error(Errc::kTimeout, "the scheduler at " + address_ + " did not end");
  }
  return {};
}

}  // namespace tilewise::cli
