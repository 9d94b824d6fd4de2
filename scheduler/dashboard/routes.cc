// What each address answers. Nothing of a request is used but numbers, one-time codes, tokens and the words listed here.
#include "page.h"
#include "server.h"

#include <algorithm>
#include <charconv>

namespace tilewise::dashboard {
namespace {

constexpr std::size_t kMaxExplained = 64;  // predictions kept for a look afterwards

class Query {
 public:
  explicit Query(std::string_view target) {
    const std::size_t mark = std::min(target.find('?'), target.size());
    path_ = target.substr(0, mark);
    rest_ = target.substr(std::min(mark + 1, target.size()));
  }
  const std::string& path() const { return path_; }
  std::optional<std::string_view> text(std::string_view key) const {
    std::string_view rest = rest_;
    while (!rest.empty()) {
      const std::size_t end = std::min(rest.find('&'), rest.size());
      const std::string_view pair = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      const std::size_t equals = std::min(pair.find('='), pair.size());
      if (pair.substr(0, equals) == key) return pair.substr(std::min(equals + 1, pair.size()));
    }
    return std::nullopt;
  }
  std::optional<std::uint64_t> number(std::string_view key) const {
    const auto found = text(key);
    return found ? parse(*found) : std::nullopt;
  }
  static std::optional<std::uint64_t> parse(std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, bad] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (bad != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
    return value;
  }

 private:
  std::string path_, rest_;
};

std::string_view type_of(std::string_view path) {
  if (path.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (path.ends_with(".css")) return "text/css; charset=utf-8";
  if (path.ends_with(".svg")) return "image/svg+xml";
  return "text/html; charset=utf-8";
}

const PageFile* page_file(std::string_view path) {
  if (path == "/") path = "/index.html";
  for (const PageFile& file : page_files()) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

Response json_of(const Request& request, const json::object& object) {
  return respond(request, http::status::ok, boost::json::serialize(object), "application/json");
}

// A small JSON object with text members, and nothing else.
std::optional<json::object> body_of(const Request& request) {
  const auto type = request[http::field::content_type];
  if (type != "application/json") return std::nullopt;
  boost::json::parse_options options;
  options.max_depth = 2;
  error_code ec;
  json::value body = boost::json::parse(request.body(), ec, {}, options);
  if (ec || !body.is_object()) return std::nullopt;
  return body.get_object();
}

std::optional<std::string_view> text_of(const std::optional<json::object>& body, std::string_view key) {
  if (!body) return std::nullopt;
  const json::value* found = body->if_contains(boost::json::string_view(key.data(), key.size()));
  if (found == nullptr || !found->is_string()) return std::nullopt;
  return std::string_view(found->get_string().data(), found->get_string().size());
}

std::string cookie_text(const Dashboard::Impl& d, Role role) {
  return d.cookie + "=" + d.auth.make_cookie(role, wall_seconds()) +
         "; Path=/; HttpOnly; SameSite=Strict; Max-Age=" + std::to_string(Auth::kCookieSeconds);
}

Response logged_in(const Dashboard::Impl& d, const Request& request, Role role, bool redirect) {
  Response response = redirect ? respond(request, http::status::see_other, "", "text/plain")
                               : json_of(request, {{"role", config::name_of(role)}});
  if (redirect) response.set(http::field::location, "/");
  response.set(http::field::set_cookie, cookie_text(d, role));
  return response;
}

// Addresses that somebody without a role may ask for.
std::optional<Response> open_to_all(Dashboard::Impl& d, const Request& request, const Query& query) {
  const bool head = request.method() == http::verb::head, get = head || request.method() == http::verb::get;
  if (const PageFile* file = get ? page_file(query.path()) : nullptr) {
    Response response = respond(request, http::status::ok, std::string(file->bytes),
                                type_of(file->path == "/index.html" ? "" : file->path));
    return response;
  }
  if (query.path() != "/login" && query.path() != "/logout") return std::nullopt;
  if (query.path() == "/logout") {
    if (get) return problem(request, http::status::method_not_allowed, "POST it");
    d.auth.end(entry_of(d, request).cookie);
    Response response = json_of(request, {{"role", nullptr}});
    response.set(http::field::set_cookie, d.cookie + "=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0");
    return response;
  }
  // Whoever only looks what a link is (chat programs do) must not use it up.
  if (head) return problem(request, http::status::method_not_allowed, "GET or POST it");
  if (get) {
    const auto role = d.auth.take_code(query.text("code").value_or(""), monotonic_now());
    if (role) return logged_in(d, request, *role, true);
    return respond(
        request, http::status::unauthorized,
        "This link was used before, or is older than two minutes. Make another: tilewise dashboard\n",
        "text/plain; charset=utf-8");
  }
  const auto body = body_of(request);
  const auto token = text_of(body, "token");
  if (!token)
    return problem(request, http::status::bad_request, R"(send {"token": "..."} as application/json)");
  if (const auto role = d.auth.from_token(*token)) return logged_in(d, request, *role, false);
  return problem(request, http::status::unauthorized, "that is no token of this dashboard");
}

// ---- for operators ---------------------------------------------------------------------------------------------------

Response act(Dashboard::Impl& d, const Request& request, const Query& query, const Entry& entry) {
  // A form of another site could carry a cookie where SameSite is not known; it cannot carry this.
  if (!entry.by_header && request.count(http::field::origin) != 1)
    return problem(request, http::status::forbidden, "a page must say that it is ours (Origin)");
  const auto body = body_of(request);
  if (!body) return problem(request, http::status::bad_request, "send a JSON object as application/json");
  if (query.path() == "/api/login-link") {
    const auto role = config::role_of(text_of(body, "role").value_or("reader"));
    if (!role) return problem(request, http::status::bad_request, "the role is reader or operator");
    if (*role > *entry.role)
      return problem(request, http::status::forbidden, "only an operator lets operators in");
    return json_of(request, {{"path", "/login?code=" + d.auth.make_code(*role, monotonic_now())}});
  }
  if (query.path() != "/api/cancel" && query.path() != "/api/release" && query.path() != "/api/drain")
    return problem(request, http::status::not_found, "there is nothing here");
  if (*entry.role != Role::kOperator)
    return problem(request, http::status::forbidden, "readers only look; log in as operator");
  if (query.path() == "/api/drain") {
    const auto worker = Query::parse(text_of(body, "worker").value_or(""));
    const std::string_view on = text_of(body, "on").value_or("yes");
    if (!worker || *worker > UINT32_MAX || (on != "yes" && on != "no"))
      return problem(request, http::status::bad_request, R"(send {"worker": "NUMBER", "on": "yes" or "no"})");
    d.source.drain(WorkerId{static_cast<std::uint32_t>(*worker)}, on == "yes");
    return respond(request, http::status::accepted, "{}", "application/json");
  }
  const bool cancel = query.path() == "/api/cancel";
  const auto id = Query::parse(text_of(body, cancel ? "graph" : "array").value_or(""));
  if (!id) return problem(request, http::status::bad_request, "which one? Its id is missing, or no number");
  if (cancel)
    d.source.cancel(GraphId{*id});
  else
    d.source.release(ArrayId{*id});
  return respond(request, http::status::accepted, "{}", "application/json");
}

// ---- for readers -----------------------------------------------------------------------------------------------------

http::status status_of(const Error& why) {
  return why.code == Errc::kUnavailable ? http::status::service_unavailable : http::status::not_found;
}

Response view_response(const Request& request, const SharedView& view, const ir::Index& at) {
  if (!view) return problem(request, http::status::gateway_timeout, "the scheduler did not answer in time");
  if (const auto* why = std::get_if<Error>(&*view)) return problem(request, status_of(*why), why->message);
  if (const auto* graph = std::get_if<scheduler::GraphView>(&*view)) return json_of(request, to_json(*graph));
  if (const auto* arrays = std::get_if<scheduler::ArrayList>(&*view))
    return json_of(request, to_json(*arrays));
  if (const auto* links = std::get_if<scheduler::LinkList>(&*view)) return json_of(request, to_json(*links));
  if (const auto* array = std::get_if<scheduler::ArrayDetail>(&*view))
    return json_of(request, to_json(*array, at));
  return problem(request, http::status::internal_server_error, "the scheduler answered something else");
}

// "at=0,64": the first block of the window.
ir::Index window_of(const Query& query) {
  ir::Index at;
  std::string_view rest = query.text("at").value_or("");
  while (!rest.empty() && at.size() < at.capacity()) {
    const std::size_t end = std::min(rest.find(','), rest.size());
    at.push_back(static_cast<std::int64_t>(
        std::min<std::uint64_t>(Query::parse(rest.substr(0, end)).value_or(0), 1ull << 62)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return at;
}

struct Flag {  // down when it goes out of scope
  explicit Flag(bool& f) : flag(f) { flag = true; }
  ~Flag() { flag = false; }
  Flag(const Flag&) = delete;
  Flag& operator=(const Flag&) = delete;
  bool& flag;
};

// Running a plan on paper takes the scheduler a while: one at a time, and what was said is kept.
Task<Response> predicted(Dashboard::Impl& d, const Request& request, GraphId graph) {
  if (d.explaining)
    co_return problem(request, http::status::service_unavailable,
                      "another prediction is being made; ask again");
  const Flag busy(d.explaining);
  const std::optional<msg::Explanation> said = co_await d.explain(graph);
  if (!said)
    co_return problem(request, http::status::gateway_timeout, "the scheduler did not answer in time");
  if (said->outcome.ok() && !said->ops.empty()) {
    if (d.explained.size() >= kMaxExplained) d.explained.erase(d.explained.begin());
    d.explained[graph] = boost::json::serialize(to_json(*said));
  }
  // What has ended can only be told from what was said before.
  if (const auto known = d.explained.find(graph); known != d.explained.end())
    co_return respond(request, http::status::ok, known->second, "application/json");
  if (!said->outcome.ok()) co_return problem(request, http::status::not_found, said->outcome.message);
  co_return json_of(request, to_json(*said));
}

// "from_us": how far back at most, "until_us": at least.
Task<Response> traced(Dashboard::Impl& d, const Request& request, const Query& query) {
  constexpr std::uint64_t kLongest = 1'000'000ull * 3600 * 24 * 365;
  const auto age = [&](std::string_view key) {
    return static_cast<std::int64_t>(std::min(query.number(key).value_or(0), kLongest)) * 1000;
  };
  msg::TraceRequest wanted;
  wanted.graph = GraphId{query.number("id").value_or(0)};
  wanted.from_age_ns = age("from_us");
  wanted.until_age_ns = age("until_us");
  if (d.tracing)
    co_return problem(request, http::status::service_unavailable,
                      "another trace is being collected; ask again");
  const Flag busy(d.tracing);
  const std::optional<Result<std::vector<msg::TraceReply>>> replies = co_await d.trace(wanted);
  if (!replies) co_return problem(request, http::status::gateway_timeout, "not all workers answered in time");
  if (!*replies) co_return problem(request, status_of(replies->error()), replies->error().message);
  const std::shared_ptr<const Look> seen = co_await d.look();
  std::map<WorkerId, std::string> hosts;
  if (seen)
    for (const msg::PeerInfo& peer : seen->overview.status.peers) hosts[peer.id] = peer.host_id;
  std::vector<msg::TraceReply> aligned = **replies;
  msg::align_clocks(aligned, hosts);
  co_return json_of(request, to_json(aligned));
}

Task<Response> located(Dashboard::Impl& d, const Request& request, const Query& query) {
  msg::BlocksRequest wanted;
  wanted.array = ArrayId{query.number("id").value_or(0)};
  wanted.first =
      static_cast<std::int64_t>(std::min<std::uint64_t>(query.number("first").value_or(0), 1ull << 62));
  wanted.count = static_cast<std::int64_t>(std::min<std::uint64_t>(
      query.number("count").value_or(1), static_cast<std::uint64_t>(msg::kMaxBlocksAsked)));
  const std::optional<Result<std::vector<msg::BlocksReply>>> replies = co_await d.blocks(wanted);
  if (!replies) co_return problem(request, http::status::gateway_timeout, "not all workers answered in time");
  if (!*replies) co_return problem(request, status_of(replies->error()), replies->error().message);
  co_return json_of(request, to_json(**replies));
}

}  // namespace

Task<Response> Dashboard::Impl::answer(const Request& request) {
  if (auto refusal = refused(*this, request)) co_return std::move(*refusal);
  const auto target = request.target();
  const Query query(std::string_view(target.data(), target.size()));
  if (auto response = open_to_all(*this, request, query)) co_return std::move(*response);
  const Entry entry = entry_of(*this, request);
  if (!entry.role) {
    Response response = problem(request, http::status::unauthorized, "log in first: tilewise dashboard");
    response.set(http::field::www_authenticate, "Bearer");
    co_return response;
  }
  if (request.method() == http::verb::post) co_return act(*this, request, query, entry);
  const std::string& path = query.path();
  if (path == "/api/me")
    co_return json_of(request, {{"role", config::name_of(*entry.role)}, {"version", options.version}});
  if (path == "/api/history") co_return respond(request, http::status::ok, history(), "application/json");
  if (path == "/api/log") co_return json_of(request, to_json(log.after(query.number("after").value_or(0))));
  if (path == "/api/overview" || path == "/metrics") {
    const std::shared_ptr<const Look> seen = co_await look();
    if (!seen)
      co_return problem(request, http::status::gateway_timeout, "the scheduler did not answer in time");
    if (path == "/api/overview") co_return respond(request, http::status::ok, seen->text, "application/json");
    co_return respond(request, http::status::ok,
                      metrics_text(seen->overview, seen->warnings, counts, options.version),
                      "text/plain; version=0.0.4; charset=utf-8");
  }
  const std::uint64_t id = query.number("id").value_or(0);
  if (path == "/api/explain" && id == 0)
    co_return problem(request, http::status::bad_request, "which graph? Its id is missing, or no number");
  if (path == "/api/explain") co_return co_await predicted(*this, request, GraphId{id});
  if (path == "/api/trace") co_return co_await traced(*this, request, query);
  if (path == "/api/blocks") co_return co_await located(*this, request, query);
  scheduler::ViewRequest wanted;
  if (path == "/api/graph")
    wanted = scheduler::GraphRequest{GraphId{id}, scheduler::kNotYet,
                                     static_cast<std::uint32_t>(query.number("first").value_or(0))};
  else if (path == "/api/arrays")
    wanted =
        scheduler::ArraysRequest{SessionId{static_cast<std::uint32_t>(query.number("session").value_or(0))}};
  else if (path == "/api/links")
    wanted = scheduler::LinksRequest{};
  else if (path == "/api/array")
    wanted = scheduler::ArrayRequest{ArrayId{id}};
  else
    co_return problem(request, http::status::not_found, "there is nothing here");
  const SharedView view = co_await this->view(wanted);
  co_return view_response(request, view, window_of(query));
}

}  // namespace tilewise::dashboard
