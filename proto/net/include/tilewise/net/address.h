// Where a daemon listens or a client connects:
//   tcp://host:port   tcp://[::1]:port   host:port      port 0: any free one (listening); no host: 127.0.0.1
//   unix:/path/to.sock                                  a socket file, mode 0600
//   unix-abstract:name                                  a Linux abstract socket (no file; not usable across
//                                                       network namespaces)
#pragma once
#include <tilewise/base/result.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace tilewise::net {

struct Address {
  enum class Kind : std::uint8_t { kTcp, kUnix, kUnixAbstract };

  Kind kind = Kind::kTcp;
  std::string host = "127.0.0.1";  // kTcp: a name or a numeric address, IPv6 without brackets
  std::uint16_t port = 0;          // kTcp
  std::string path;                // kUnix: file; kUnixAbstract: name without the leading zero byte

  // kInvalidArgument, with a message that quotes the text and says which part is wrong.
  static Result<Address> parse(std::string_view text);
  std::string to_string() const;  // parses back to the same value

  friend bool operator==(const Address&, const Address&) = default;
};

// Reachable from this host only: Unix sockets, "localhost", 127.0.0.0/8 and ::1. Other names are not
// looked up and count as public, as do 0.0.0.0 and ::.
bool is_loopback(const Address& address);

// D12: a public address without a token is refused (kPermissionDenied). For daemons, before they listen.
Status check_exposure(const Address& address, bool has_token);

}  // namespace tilewise::net
