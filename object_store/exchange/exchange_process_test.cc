// Two processes: this test program starts itself again.
#include "exchange_test_util.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

using namespace tilewise;
using namespace tilewise::exchange;
using namespace tilewise::exchange::test;

namespace {

constexpr std::int64_t kBytes = std::int64_t{16} << 20;
constexpr std::uint64_t kTakes = 99,
                        kTook = 100;  // the child is to receive the first, and says the second when it has

Options child_options(bool maps, bool in_place) {
  Options options = options_of();
  options.map_peers = maps;
  options.ucx.in_place = in_place;
  return options;
}

// Goes on in a child in a PID namespace, as in a container; this process waits for its end and ends like it.
void into_own_pids() {
  if (::unshare(CLONE_NEWPID) != 0) ::_exit(126);
  const pid_t inner = ::fork();
  if (inner != 0) {
    int status = 0;
    if (inner < 0 || ::waitpid(inner, &status, 0) != inner) ::_exit(126);
    ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 126);
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
}

bool own_pids_are_permitted() {
  const pid_t tried = ::fork();
  if (tried == 0) {
    into_own_pids();
    ::_exit(0);
  }
  int status = 1;
  return ::waitpid(tried, &status, 0) == tried && status == 0;
}

// Worker 2 in a process of its own. Its answers are its addresses; it is told ours in return.
class Child {
 public:
  explicit Child(bool maps, bool in_place = true, bool own_pids = false) {
    int pair[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    const std::string socket = std::to_string(pair[1]);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::close(pair[0]);
      ::setenv("EXCHANGE_TEST_SOCKET", socket.c_str(), 1);
      ::setenv("EXCHANGE_TEST_IN_PLACE", in_place ? "1" : "0", 1);
      ::setenv("EXCHANGE_TEST_MAPS", maps ? "1" : "0", 1);
      if (own_pids) into_own_pids();
      ::execl("/proc/self/exe", "exchange_test", "--test-case=child: worker 2", "--no-skip", "--minimal",
              nullptr);
      ::_exit(127);
    }
    ::close(pair[1]);
    socket_ = pair[0];
    char text[4096];
    const ssize_t n = ::recv(socket_, text, sizeof text, 0);
    REQUIRE(n > 0);
    addresses_.assign(1, std::string(text, static_cast<std::size_t>(n)));
  }
  ~Child() {
    kill(SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::close(socket_);
  }
  void kill(int signal) { ::kill(pid_, signal); }
  msg::PeerInfo info() const {
    return {.id = WorkerId{2},
            .name = "child",
            .host_id = "this-host",
            .addresses = addresses_,
            .devices = {DeviceId{200}},
            .descriptions = {{.name = "host:0"}}};
  }

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  std::vector<std::string> addresses_;
};

}  // namespace

TEST_CASE("child: worker 2" * doctest::skip()) {
  const int socket = std::atoi(std::getenv("EXCHANGE_TEST_SOCKET"));
  auto loop = make_loop();
  Node node(*loop, 2,
            child_options(std::getenv("EXCHANGE_TEST_MAPS")[0] == '1',
                          std::getenv("EXCHANGE_TEST_IN_PLACE")[0] == '1'));
  node.add_slab(kBytes, "child's memory");
  node.exchange->peer_joined({.id = WorkerId{1},
                              .name = "parent",
                              .host_id = "this-host",
                              .addresses = {"tcp://127.0.0.1:1"},
                              .devices = {DeviceId{100}}});
  // Transmits what is granted, except that it grants itself nothing of transfer 13: that never comes; and takes what it is told to.
  node.on_batch = [&](WorkerId from, msg::PeerBatch batch) {
    for (const msg::Grant& grant : batch.grants) {
      if (grant.transfer == kTakes)
        node.exchange->receive(
            from, kTakes, node.slabs[0].data, kBytes, kHost,
            [&node, from](const Status&, msg::Lane) { (void)!node.exchange->send(from, grant_of(kTook)); });
      else if (grant.transfer != 13)
        node.exchange->transmit(from, grant.transfer, node.slabs[0].data, kBytes, kHost, {});
    }
    REQUIRE(node.exchange->send(from, std::move(batch)));
  };
  REQUIRE(::send(socket, node.addresses[0].data(), node.addresses[0].size(), 0) > 0);
  loop->run();
}

TEST_CASE("another process's slab is read in place, also for a while after it was killed") {
  auto loop = make_loop();
  Child child(true);
  Node node(*loop, 1, options_of());
  node.exchange->peer_joined(child.info());
  REQUIRE(node.exchange->send(WorkerId{2}, grant_of(13)));
  REQUIRE(loop->run_until([&] { return node.batches.size() == 1; }, kPatience));
  CHECK(node.ready[WorkerId{2}]);
  CHECK(node.exchange->shares_ring(WorkerId{2}));
  CHECK(node.exchange->counters().ring_links == 1);
  const auto slab = node.exchange->mapped(DeviceId{200}, 0);
  REQUIRE(slab.size() == static_cast<std::size_t>(kBytes));
  CHECK(std::memcmp(slab.data(), "child's memory", 14) == 0);
  child.kill(SIGKILL);
  REQUIRE(loop->run_until([&] { return node.unreachable.contains(WorkerId{2}); }, kPatience));
  CHECK(node.why(WorkerId{2}) == Errc::kUnavailable);
  CHECK(node.exchange->counters().ring_links == 0);
  node.exchange->peer_lost(WorkerId{2});
  CHECK(std::memcmp(slab.data(), "child's memory", 14) == 0);
  node.exchange->readers_done(WorkerId{2});
  CHECK(node.exchange->mapped(DeviceId{200}, 0).empty());
}

TEST_CASE("bytes from another process over the copying lane, and its death in the middle") {
  for (const bool in_place : {true, false}) {
    CAPTURE(in_place);
    auto loop = make_loop();
    Child child(false, in_place);
    Node node(*loop, 1, child_options(true, in_place));
    node.exchange->peer_joined(child.info());
    std::vector<std::byte> memory(static_cast<std::size_t>(kBytes));
    End early, good, never;
    node.exchange->receive(WorkerId{2}, 11, memory.data(), kBytes, kHost, into(early));  // waits for the link
    REQUIRE(node.exchange->send(WorkerId{2}, grant_of(11)));
    REQUIRE(loop->run_until([&] { return early.times > 0; }, kPatience));
    CHECK(early.code() == Errc::kOk);
    REQUIRE(node.ready.contains(WorkerId{2}));
    CHECK(!node.ready[WorkerId{2}]);
    CHECK(!node.exchange->shares_ring(WorkerId{2}));  // who shares no memory shares none
    std::fill(memory.begin(), memory.end(), std::byte{});
    node.exchange->receive(WorkerId{2}, 12, memory.data(), kBytes, kHost, into(good));
    REQUIRE(node.exchange->send(WorkerId{2}, grant_of(12)));
    REQUIRE(loop->run_until([&] { return good.times > 0; }, kPatience));
    CHECK(good.code() == Errc::kOk);
    CHECK(std::memcmp(memory.data(), "child's memory", 14) == 0);
    CHECK(good.lane == (in_place ? msg::Lane::kSharedMemory : msg::Lane::kTcp));
    node.exchange->receive(WorkerId{2}, 13, memory.data(), kBytes, kHost, into(never));
    REQUIRE(node.exchange->send(WorkerId{2}, grant_of(13)));
    loop->run_until([] { return false; }, 100 * kMillisecond);
    child.kill(SIGKILL);
    const TimeNs killed = monotonic_now();
    REQUIRE(loop->run_until([&] { return never.times > 0 && node.unreachable.contains(WorkerId{2}); },
                            kPatience));
    CHECK(monotonic_now() - killed < 10 * kSecond);
    CHECK(never.code() == Errc::kUnavailable);
    CHECK(never.times == 1);
    // Asked for now it waits until the scheduler has spoken, as what was under way would if it were asked for again.
    End late;
    node.exchange->receive(WorkerId{2}, 14, memory.data(), kBytes, kHost, into(late));
    loop->run_until([] { return false; }, 100 * kMillisecond);
    CHECK(late.times == 0);
    node.exchange->peer_lost(WorkerId{2});
    REQUIRE(loop->run_until([&] { return late.times > 0; }, kPatience));
    CHECK(late.code() == Errc::kWorkerLost);
    CHECK(node.exchange->ucx_counters().quarantined == 0);
  }
}

// As in a container: the child cannot name this process, so it is sent what this one reads in place.
TEST_CASE("processes in PID namespaces of their own exchange blocks, each as it can") {
  if (!own_pids_are_permitted()) {
    MESSAGE("not run: namespaces are not permitted");
    return;
  }
  for (const bool rings : {false, true}) {
    CAPTURE(rings);
    auto loop = make_loop();
    Child child(rings, true, true);
    Node node(*loop, 1, child_options(rings, true));
    node.exchange->peer_joined(child.info());
    REQUIRE(loop->run_until([&] { return node.ready.contains(WorkerId{2}); }, kPatience));
    std::vector<std::byte> memory(static_cast<std::size_t>(kBytes));
    End good, there, back;
    node.exchange->receive(WorkerId{2}, 12, memory.data(), kBytes, kHost, into(good));
    REQUIRE(node.exchange->send(WorkerId{2}, grant_of(12)));
    REQUIRE(loop->run_until([&] { return good.times > 0; }, kPatience));
    CHECK(good.code() == Errc::kOk);
    CHECK(good.lane == msg::Lane::kSharedMemory);
    CHECK(std::memcmp(memory.data(), "child's memory", 14) == 0);
    // Takes it into its slab, and sends that back.
    const std::string_view text = "parent's memory";
    std::memcpy(memory.data(), text.data(), text.size());
    const auto heard = [&](std::uint64_t number) {
      return std::any_of(node.batches.begin(), node.batches.end(),
                         [number](const auto& batch) { return batch.second == grant_of(number); });
    };
    REQUIRE(node.exchange->send(WorkerId{2}, grant_of(kTakes)));
    REQUIRE(loop->run_until([&] { return heard(kTakes); }, kPatience));
    node.exchange->transmit(WorkerId{2}, kTakes, memory.data(), kBytes, kHost, into(there));
    REQUIRE(loop->run_until([&] { return there.times > 0 && heard(kTook); }, kPatience));
    CHECK(there.code() == Errc::kOk);
    CHECK(there.lane == (rings ? msg::Lane::kSharedMemory : msg::Lane::kTcp));
    std::vector<std::byte> again(memory.size());
    node.exchange->receive(WorkerId{2}, 14, again.data(), kBytes, kHost, into(back));
    REQUIRE(node.exchange->send(WorkerId{2}, grant_of(14)));
    REQUIRE(loop->run_until([&] { return back.times > 0; }, kPatience));
    CHECK(back.code() == Errc::kOk);
    CHECK(std::memcmp(again.data(), text.data(), text.size()) == 0);
  }
}

TEST_CASE(
    "a peer that was stopped for longer than a deadline has another data connection, and the same link") {
  auto loop = make_loop();
  Child child(false);
  Options options = child_options(false, true);
  options.ucx.deadline_ns = 300 * kMillisecond;
  options.ucx.grace_ns = 200 * kMillisecond;
  Node node(*loop, 1, std::move(options));
  node.exchange->peer_joined(child.info());
  std::vector<std::byte> memory(static_cast<std::size_t>(kBytes));
  const auto fetch = [&](std::uint64_t number) {
    End end;
    node.exchange->receive(WorkerId{2}, number, memory.data(), kBytes, kHost, into(end));
    REQUIRE(node.exchange->send(WorkerId{2}, grant_of(number)));
    REQUIRE(loop->run_until([&] { return end.times > 0; }, kPatience));
    return end.code();
  };
  REQUIRE(loop->run_until([&] { return node.ready.contains(WorkerId{2}); }, kPatience));
  CHECK(fetch(20) == Errc::kOk);
  child.kill(SIGSTOP);
  End sending;
  node.exchange->transmit(WorkerId{2}, 21, memory.data(), kBytes, kHost, into(sending));
  REQUIRE(loop->run_until([&] { return sending.times > 0; }, kPatience));
  CHECK(sending.code() == Errc::kTimeout);  // and nobody reads that memory any more
  CHECK(node.exchange->ucx_counters().quarantined == 0);
  child.kill(SIGCONT);
  std::uint64_t number = 22;
  const TimeNs until = monotonic_now() + kPatience;
  while (fetch(number) != Errc::kOk && monotonic_now() < until) ++number;
  CHECK(monotonic_now() < until);
  CHECK(std::memcmp(memory.data(), "child's memory", 14) == 0);
  CHECK(node.exchange->ucx_counters().streams >= 2);
  CHECK(node.unreachable.empty());
  CHECK(node.exchange->counters().breaks == 0);
}

TEST_CASE("a stopped peer is not noticed here; losing it by decree frees what it held") {
  auto loop = make_loop();
  Child child(false);
  Node node(*loop, 1, child_options(false, true));
  node.exchange->peer_joined(child.info());
  REQUIRE(loop->run_until([&] { return node.ready.contains(WorkerId{2}); }, kPatience));
  child.kill(SIGSTOP);
  std::vector<std::byte> memory(static_cast<std::size_t>(kBytes));
  End sending;
  node.exchange->transmit(WorkerId{2}, 20, memory.data(), kBytes, kHost, into(sending));
  loop->run_until([] { return false; }, 200 * kMillisecond);
  CHECK(sending.times == 0);
  CHECK(node.unreachable.empty());
  node.exchange->peer_lost(WorkerId{2});
  REQUIRE(loop->run_until([&] { return sending.times > 0; }, kPatience));
  CHECK(sending.code() == Errc::kWorkerLost);
  CHECK(node.exchange->ucx_counters().quarantined == 0);
}
