#include <tilewise/net/lookup.h>

#include <signal.h>

#include <deque>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include <boost/asio/ip/tcp.hpp>
#include "event_loop_impl.h"
#include "os_error.h"

namespace tilewise::net {

namespace asio = boost::asio;
using boost::system::error_code;
using Found = Result<std::vector<Address>>;

struct Lookup::Request {
  Address address;
  EventLoop* loop = nullptr;  // under Lookups::mutex; null: nobody waits any more
  Done done;                  // the loop's thread only, which may be gone when a thread lets go of this

  void tell(Found found) {
    if (done) std::exchange(done, {})(std::move(found));
  }
};

// Of one loop, and of the threads that it may leave behind.
struct Lookups {
  std::mutex mutex;
  std::deque<std::shared_ptr<Lookup::Request>> waiting;  // for a thread
  int threads = 0;

  void serve();
};

namespace {

bool is_numeric(const std::string& host) {
  error_code ec;
  asio::ip::make_address(host, ec);
  return !ec;
}

Found resolve(const Address& address) {
  asio::io_context io;
  error_code ec;
  const auto all = asio::ip::tcp::resolver(io).resolve(address.host, std::to_string(address.port), ec);
  const std::string what = "look up " + address.host;
  if (ec) return os_error(what, ec);
  std::vector<Address> found;
  for (const auto& entry : all)
    found.push_back({.host = entry.endpoint().address().to_string(), .port = address.port});
  if (found.empty()) return error(Errc::kNotFound, what + ": no address");
  return found;
}

// A thread that no signal of the process reaches: handlers belong to its own threads.
template <class Body> void start_detached(Body body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(std::move(body)).detach();
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void Lookups::serve() {
  std::unique_lock lock(mutex);
  while (!waiting.empty()) {
    const auto request = std::move(waiting.front());
    waiting.pop_front();
    lock.unlock();
    Found found = resolve(request->address);
    lock.lock();
    // The loop outlives whoever waits on it, and nobody stops waiting meanwhile.
    if (request->loop != nullptr)
      request->loop->post([request, found = std::move(found)] { request->tell(found); });
  }
  --threads;
}

Lookup::Lookup(EventLoop& loop, const Address& address, Done done)
    : request_(std::make_shared<Request>(Request{address, &loop, std::move(done)})) {
  if (is_numeric(address.host)) {
    loop.defer([request = request_] { request->tell(std::vector<Address>{request->address}); });
    return;
  }
  auto& lookups = loop.impl().lookups;
  if (!lookups) lookups = std::make_shared<Lookups>();
  std::lock_guard lock(lookups->mutex);
  lookups->waiting.push_back(request_);
  if (lookups->threads == kMaxLookupThreads) return;
  try {
    start_detached([lookups] { lookups->serve(); });
    ++lookups->threads;
  } catch (const std::system_error& why) {
    if (lookups->threads > 0) return;
    lookups->waiting.pop_back();
    loop.defer([request = request_, code = why.code().value()] {
      request->tell(os_error("look up " + request->address.host + ": start a thread", code));
    });
  }
}

Lookup::~Lookup() {
  request_->done = {};
  const auto& lookups = request_->loop->impl().lookups;
  if (!lookups) return;
  std::lock_guard lock(lookups->mutex);
  request_->loop = nullptr;
  std::erase(lookups->waiting, request_);
}

Found look_up(const Address& address, TimeNs timeout_ns) {
  if (is_numeric(address.host)) return std::vector<Address>{address};
  TW_ASSIGN(const auto loop, EventLoop::create());
  std::optional<Found> found;
  const Lookup lookup(*loop, address, [&found](Found all) { found.emplace(std::move(all)); });
  if (!loop->run_until([&] { return found.has_value(); }, timeout_ns))
    return error(Errc::kTimeout, "look up " + address.host + ": no answer in time");
  return std::move(*found);
}

}  // namespace tilewise::net
