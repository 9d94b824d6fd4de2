// The second process: helpers to start one, and what it does.
#include "transfer_test_util.h"

#include "ucx_impl.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

namespace tilewise::transfer::test {

Child::Child(const std::string& test_case, const std::string& transports) {
  int pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
  const std::string only = "--test-case=" + test_case;
  const std::string socket = std::to_string(pair[1]);
  pid_ = ::fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {  // exec at once: UCX does not survive a plain fork
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setenv("TRANSFER_TEST_SOCKET", socket.c_str(), 1);
    ::setenv("TRANSFER_TEST_TLS", transports.c_str(), 1);
    ::close(pair[0]);
    ::execl("/proc/self/exe", "transfer_test", only.c_str(), "--no-skip", "--minimal", nullptr);
    ::_exit(127);
  }
  ::close(pair[1]);
  socket_ = pair[0];
}

Child::~Child() {
  kill(SIGKILL);
  ::close(socket_);
}

void Child::kill(int signal) {
  if (pid_ < 0) return;
  ::kill(pid_, signal);
  if (signal == SIGKILL) ::waitpid(std::exchange(pid_, -1), nullptr, 0);
}

namespace {

void send_order(int socket, const Order& order) { (void)!::send(socket, &order, sizeof order, MSG_NOSIGNAL); }

std::optional<Order> receive_order(int socket, bool wait) {
  Order order;
  const ssize_t n = ::recv(socket, &order, sizeof order, wait ? 0 : MSG_DONTWAIT);
  if (n != static_cast<ssize_t>(sizeof order)) return {};
  return order;
}

Order hello_of(const UcxEngine& engine) {
  Order hello;
  hello.address_bytes = static_cast<std::int32_t>(engine.address().size());
  REQUIRE(engine.address().size() <= kAddressRoom);
  std::memcpy(hello.address, engine.address().data(), engine.address().size());
  return hello;
}

std::string address_in(const Order& hello) {
  return {hello.address, static_cast<std::size_t>(hello.address_bytes)};
}

}  // namespace

// Never waits without reading: the child may itself be waiting to tell what it has done.
void Child::send(const Order& order) {
  while (::send(socket_, &order, sizeof order, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
         (errno == EAGAIN || errno == EINTR)) {
    pollfd fd{socket_, POLLIN | POLLOUT, 0};
    ::poll(&fd, 1, 100);
    if (auto told = receive_order(socket_, false)) unread_.push_back(*told);
  }
}
std::optional<Order> Child::poll() {
  if (unread_.empty()) return receive_order(socket_, false);
  const Order order = unread_.front();
  unread_.pop_front();
  return order;
}

int parent_socket() { return std::atoi(std::getenv("TRANSFER_TEST_SOCKET")); }
std::string child_transports() { return std::getenv("TRANSFER_TEST_TLS"); }

Pair::Pair(UcxOptions options, const std::string& child_test) : child(child_test, options.transports) {
  auto made = UcxEngine::create(options);
  REQUIRE(made);
  engine = std::move(*made);
  child.send(hello_of(*engine));
  REQUIRE(run_until([&] { return hello.has_value(); }));
  REQUIRE(engine->add_peer(cookie_of(0), address_in(*hello)));
}

void Pair::turn() {
  if (!engine->progress()) {
    // Sleep as a daemon does, so that the descriptor is part of every test.
    if (engine->arm()) {
      pollfd fd{engine->event_fd(), POLLIN, 0};
      ::poll(&fd, 1, 2);
    }
  }
  for (auto order = child.poll(); order; order = child.poll()) {
    if (order->what == Order::What::kHello)
      hello = *order;
    else if (order->what == Order::What::kArmed)
      child_armed.insert(order->transfer);
    else
      child_done[order->transfer] = *order;
  }
}

void Pair::child_transmits(std::uint64_t transfer, std::int64_t bytes, std::uint64_t seed, int cookie) {
  child.send(
      {.what = Order::What::kTransmit, .cookie = cookie, .transfer = transfer, .bytes = bytes, .seed = seed});
}

void Pair::child_expects(std::uint64_t transfer, std::int64_t bytes, std::uint64_t seed) {
  child.send({.what = Order::What::kExpect, .transfer = transfer, .bytes = bytes, .seed = seed});
  REQUIRE(run_until([&] { return child_armed.contains(transfer); }));
}

TEST_CASE("child: engine" * doctest::skip()) {
  const int socket = parent_socket();
  UcxOptions options;
  options.transports = child_transports();
  auto engine = UcxEngine::create(options);
  REQUIRE(engine);
  const auto hello = receive_order(socket, true);
  REQUIRE(hello);
  // Cookie 1 is one that the parent does not know: the wrong one.
  for (int cookie : {0, 1}) REQUIRE((*engine)->add_peer(cookie_of(cookie), address_in(*hello)));
  send_order(socket, hello_of(**engine));
  std::map<std::uint64_t, std::vector<std::byte>> memory;
  for (;;) {
    while ((*engine)->progress()) {
    }
    if (!(*engine)->arm()) continue;
    pollfd fds[2] = {{(*engine)->event_fd(), POLLIN, 0}, {socket, POLLIN, 0}};
    ::poll(fds, 2, 10);
    if (fds[1].revents == 0) continue;
    const auto order = receive_order(socket, false);
    if (!order) break;
    std::vector<std::byte>& bytes = memory[order->transfer];
    bytes.assign(static_cast<std::size_t>(order->bytes), std::byte{0});
    const auto done = [=, &bytes](Status status, Via via) {
      Order end = *order;
      end.what = Order::What::kDone;
      end.errc = static_cast<std::int32_t>(status ? Errc::kOk : status.error().code);
      end.via = static_cast<std::int32_t>(via);
      end.good = filled(bytes, order->seed);
      send_order(socket, end);
    };
    if (order->what == Order::What::kTransmit) {
      fill(bytes, order->seed);
      REQUIRE((*engine)->transmit(cookie_of(order->cookie), order->transfer, bytes.data(), order->bytes,
                                  device::Kind::kHost, done));
    } else {
      REQUIRE((*engine)->expect(cookie_of(order->cookie), order->transfer, bytes.data(), order->bytes,
                                device::Kind::kHost, done));
      Order armed = *order;
      armed.what = Order::What::kArmed;
      send_order(socket, armed);
    }
  }
}

// A stranger without an engine: every malformed header there is, small and large.
TEST_CASE("child: stranger" * doctest::skip()) {
  const int socket = parent_socket();
  const auto hello = receive_order(socket, true);
  REQUIRE(hello);
  const std::string address = address_in(*hello).substr(24) + std::string(64, '\0');
  ucp_context_h context;
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_AM;
  REQUIRE(ucp_init(&params, nullptr, &context) == UCS_OK);
  ucp_worker_h worker;
  ucp_worker_params_t worker_params{};
  REQUIRE(ucp_worker_create(context, &worker_params, &worker) == UCS_OK);
  ucp_ep_params_t ep_params{};
  ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  ep_params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  ep_params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  ucp_ep_h ep;
  REQUIRE(ucp_ep_create(worker, &ep_params, &ep) == UCS_OK);

  Order answer = *hello;  // its own address back: the parent will not use it
  send_order(socket, answer);
  std::vector<char> header(4096, '\x5A');
  const AmHeader claims{cookie_of(0), 77, 1'000};  // what the parent expects, but with other bytes behind it
  std::vector<char> data(100'000, 'x');
  const auto send = [&](const void* head, std::size_t head_bytes, std::size_t bytes, std::uint32_t flags) {
    ucp_request_param_t p{};
    p.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
    p.flags = flags;
    void* request = ucp_am_send_nbx(ep, kAmId, head, head_bytes, data.data(), bytes, &p);
    while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS)
      ucp_worker_progress(worker);
    if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);
  };
  for (std::size_t head_bytes : {0, 1, 8, 31, 33, 32}) {
    send(header.data(), head_bytes, 100, UCP_AM_SEND_FLAG_EAGER);
    send(header.data(), head_bytes, data.size(), UCP_AM_SEND_FLAG_RNDV);
  }
  send(&claims, sizeof claims, 999, UCP_AM_SEND_FLAG_EAGER);
  ucp_request_param_t flush{};
  void* request = ucp_ep_flush_nbx(ep, &flush);
  while (UCS_PTR_IS_PTR(request) && ucp_request_check_status(request) == UCS_INPROGRESS)
    ucp_worker_progress(worker);
  Order done;
  done.what = Order::What::kDone;
  send_order(socket, done);
  receive_order(socket, true);
}

}  // namespace tilewise::transfer::test
