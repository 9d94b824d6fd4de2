// Private: streams over connected TCP and Unix sockets.
#pragma once
#include <tilewise/net/byte_stream.h>

#include <boost/asio/generic/stream_protocol.hpp>

namespace tilewise::net {

using Socket = boost::asio::generic::stream_protocol::socket;

// Takes a connected socket; sets non-blocking mode and, on TCP, no delay and how long the other host may acknowledge nothing
// (HandshakeOptions::silence_ns). Never fails: a broken socket says so when used.
std::unique_ptr<ByteStream> make_socket_stream(Socket socket, TimeNs silence_ns);

// "127.0.0.1:7000", "[::1]:7000" or "unix".
std::string describe(const boost::asio::generic::stream_protocol::endpoint& endpoint);

}  // namespace tilewise::net
