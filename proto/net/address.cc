#include <arpa/inet.h>
#include <sys/un.h>
#include <tilewise/net/address.h>

#include <charconv>

namespace tilewise::net {
namespace {

constexpr std::size_t kMaxHostBytes = 253;  // RFC 1035
constexpr std::size_t kMaxUnixPathBytes = sizeof(sockaddr_un::sun_path) - 1;

Error bad(std::string_view text, std::string_view why) {
  return error(Errc::kInvalidArgument,
               "address \"" + std::string(text.substr(0, 300)) + "\": " + std::string(why));
}

bool strip(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool is_ipv6(const std::string& host) {
  in6_addr ignored;
  return ::inet_pton(AF_INET6, host.c_str(), &ignored) == 1;
}

bool is_host_name(std::string_view host) {
  if (host.size() > kMaxHostBytes || host.front() == '-' || host.front() == '.') return false;
  for (char c : host) {
    bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
              c == '.' || c == '_';
    if (!ok) return false;
  }
  // A name whose last label is a number would be taken for a strange form of an IPv4 address (RFC 1123 2.1).
  std::string_view last = host.substr(host.rfind('.') + 1);
  bool numeric = last.find_first_not_of("0123456789") == std::string_view::npos;
  in_addr ignored;
  return !numeric || ::inet_pton(AF_INET, std::string(host).c_str(), &ignored) == 1;
}

Result<Address> parse_unix(std::string_view text, std::string_view path, Address::Kind kind) {
  if (path.empty()) return bad(text, "the path is empty");
  if (path.size() > kMaxUnixPathBytes) {
    return bad(
        text, "the path is longer than the " + std::to_string(kMaxUnixPathBytes) + " bytes of a socket path");
  }
  if (path.find('\0') != std::string_view::npos) return bad(text, "the path holds a zero byte");
  return Address{.kind = kind, .host = "", .port = 0, .path = std::string(path)};
}

Result<Address> parse_tcp(std::string_view text, std::string_view rest) {
  Address address;
  std::string_view port;
  if (strip(rest, "[")) {
    std::size_t end = rest.find("]:");
    if (end == std::string_view::npos) return bad(text, "expected [IPv6]:port");
    address.host = rest.substr(0, end);
    port = rest.substr(end + 2);
    if (!is_ipv6(address.host)) return bad(text, "what stands in brackets is not an IPv6 address");
  } else {
    std::size_t colon = rest.rfind(':');
    if (colon == std::string_view::npos) return bad(text, "the port is missing (host:port)");
    std::string_view host = rest.substr(0, colon);
    port = rest.substr(colon + 1);
    if (host.find(':') != std::string_view::npos)
      return bad(text, "an IPv6 address needs brackets ([::1]:port)");
    if (!host.empty()) {
      if (!is_host_name(host)) return bad(text, "bad host");
      address.host = host;
    }
  }
  const char* end = port.data() + port.size();
  auto [stop, failed] = std::from_chars(port.data(), end, address.port);
  if (port.empty() || failed != std::errc{} || stop != end)
    return bad(text, "bad port (expected 0 to 65535)");
  return address;
}

}  // namespace

Result<Address> Address::parse(std::string_view text) {
  std::string_view rest = text;
  if (strip(rest, "unix-abstract:")) return parse_unix(text, rest, Kind::kUnixAbstract);
  if (strip(rest, "unix:")) return parse_unix(text, rest, Kind::kUnix);
  if (!strip(rest, "tcp://") && rest.find("://") != std::string_view::npos) {
    return bad(text, "unknown scheme (expected tcp://, unix: or unix-abstract:)");
  }
  return parse_tcp(text, rest);
}

std::string Address::to_string() const {
  switch (kind) {
    case Kind::kUnix: return "unix:" + path;
    case Kind::kUnixAbstract: return "unix-abstract:" + path;
    case Kind::kTcp: break;
  }
  bool v6 = host.find(':') != std::string::npos;
  return "tcp://" + (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool is_loopback(const Address& address) {
  if (address.kind != Address::Kind::kTcp || address.host == "localhost") return true;
  in_addr v4;
  if (::inet_pton(AF_INET, address.host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6;
  if (::inet_pton(AF_INET6, address.host.c_str(), &v6) != 1) return false;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

Status check_exposure(const Address& address, bool has_token) {
  if (has_token || is_loopback(address)) return {};
  return error(Errc::kPermissionDenied,
               "refusing the public address " + address.to_string() + " without a token");
}

}  // namespace tilewise::net
