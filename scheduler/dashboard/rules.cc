#include "server.h"

#include <boost/beast/http/field.hpp>

namespace tilewise::dashboard {
namespace {

std::string_view field(const Request& request, http::field name) {
  const auto text = request[name];
  return {text.data(), text.size()};
}

// Strict: nothing but our own files, no inline script or style, no frame around it, no form that goes elsewhere.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri "
    "'none'; "
    "form-action 'none'; frame-ancestors 'none'";

}  // namespace

void guard(http::fields& response) {
  response.set(http::field::server, "tilewise");
  response.set(http::field::cache_control, "no-store");
  response.set("Content-Security-Policy", boost::beast::string_view(kPolicy.data(), kPolicy.size()));
  response.set("X-Content-Type-Options", "nosniff");
  response.set("X-Frame-Options", "DENY");
  response.set("Referrer-Policy", "no-referrer");
  response.set("Cross-Origin-Opener-Policy", "same-origin");
  response.set("Cross-Origin-Resource-Policy", "same-origin");
}

Response respond(const Request& request, http::status status, std::string body, std::string_view type) {
  Response response(status, request.version());
  guard(response);
  response.set(http::field::content_type, boost::beast::string_view(type.data(), type.size()));
  response.keep_alive(request.keep_alive());
  response.body() = std::move(body);
  response.prepare_payload();
  return response;
}

Response problem(const Request& request, http::status status, std::string_view why) {
  const json::object body{{"error", json::utf8(why)}};
  return respond(request, status, boost::json::serialize(body) + "\n", "application/json");
}

Entry entry_of(const Dashboard::Impl& d, const Request& request) {
  Entry entry;
  if (request.count(http::field::authorization) > 0) {
    entry.role = d.auth.from_authorization(field(request, http::field::authorization));
    entry.by_header = entry.role.has_value();
    return entry;
  }
  if (const auto cookie = cookie_of(field(request, http::field::cookie), d.cookie)) {
    entry.role = d.auth.from_cookie(*cookie, wall_seconds());
    entry.cookie = *cookie;
  }
  return entry;
}

std::optional<Response> refused(const Dashboard::Impl& d, const Request& request) {
  // DNS rebinding: a foreign name that resolves to us is not one of ours. Whoever shows a token is no page that was lured here.
  const bool shows_token = request.count(http::field::authorization) > 0 &&
                           d.auth.from_authorization(field(request, http::field::authorization)).has_value();
  if (request.count(http::field::host) != 1 ||
      !(shows_token || d.names->host(field(request, http::field::host))))
    return problem(request, http::status::misdirected_request,
                   "this server has no such name; see --dashboard-host");
  const std::string_view origin = field(request, http::field::origin);
  if (!origin.empty() && !d.names->origin(origin))
    return problem(request, http::status::forbidden, "a page of another site asked for this");
  const auto site = request["Sec-Fetch-Site"];
  const bool navigation = request.method() == http::verb::get && request["Sec-Fetch-Mode"] == "navigate";
  if (!site.empty() && site != "same-origin" && site != "none" && !navigation)
    return problem(request, http::status::forbidden, "a page of another site asked for this");
  if (request.method() != http::verb::get && request.method() != http::verb::head &&
      request.method() != http::verb::post)
    return problem(request, http::status::method_not_allowed, "only GET, HEAD and POST are known here");
  return std::nullopt;
}

}  // namespace tilewise::dashboard
