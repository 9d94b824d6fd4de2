// Private: what the sources of the server share. Everything here belongs to the dashboard's thread but for Gate.
//
// One coroutine a connection. Nothing is asked of the scheduler but by a request or a WebSocket, and answers are shared
// among all of them for a period: what the scheduler pays is one overview a period however many watch, and for all other
// views together a bounded share of its thread's time.
#pragma once
#include "auth.h"
#include "metrics.h"
#include "views.h"

#include <tilewise/dashboard/dashboard.h>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>

#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

namespace tilewise::dashboard {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
template <class T> using Task = asio::awaitable<T>;
using Request = http::request<http::string_body>;
using Response = http::response<http::string_body>;

// Lets answers in from other threads until the dashboard ends.
class Gate {
 public:
  explicit Gate(asio::io_context& io) : io_(&io) {}
  template <class Fn> void post(Fn fn) {
    const std::lock_guard lock(mutex_);
    if (io_ != nullptr) asio::post(*io_, std::move(fn));
  }
  void close() {
    const std::lock_guard lock(mutex_);
    io_ = nullptr;
  }

 private:
  std::mutex mutex_;
  asio::io_context* io_;
};

struct Look {  // at the whole cluster
  TimeNs at = 0;
  scheduler::Overview overview;
  std::vector<Warning> warnings;
  std::string text;  // JSON
};

using SharedView = std::shared_ptr<const scheduler::View>;

// A question that is asked again and again, and its last answer.
struct Question {
  explicit Question(asio::io_context& io) : answered(io, asio::steady_timer::time_point::max()) {}
  asio::steady_timer answered;  // cancelled for those who wait for the answer under way
  bool asking = false;
  TimeNs at = 0, used = 0;  // when the last answer came, and when somebody wanted it last
  SharedView view;
};

// So that somebody who has said who he is finds room.
struct Connection {
  bool stranger = true;
  std::function<void()> close;
};

struct Dashboard::Impl {
  Impl(Options o, Source& s, LogRing& l) : options(std::move(o)), source(s), log(l), auth(options.token) {}
  ~Impl() { questions.clear(); }  // their timers need `io`; those who wait for an answer hold theirs

  Options options;
  Source& source;
  LogRing& log;
  Auth auth;
  std::optional<Names> names;
  net::Address address;
  std::string cookie;  // its name: cookies do not tell ports apart
  ServerCounts counts;
  std::shared_ptr<const Look> last_look, older_look;
  std::map<std::string, std::shared_ptr<Question>> questions;  // lately asked
  std::map<GraphId, std::string> explained;                    // what was last predicted, as JSON
  bool explaining = false, tracing = false, asking = false, looking = false;
  TimeNs rest_until = 0, explain_at = 0, trace_at = 0;  // before when nothing more of the kind is asked
  std::list<Connection*> connections;                   // strangers among them oldest first
  std::deque<std::string> past;                         // samples as JSON, oldest first
  std::shared_ptr<Gate> gate;
  std::thread thread;
  // Last: it goes first, and with it the coroutines, which use everything above.
  asio::io_context io{1};
  asio::steady_timer looked{io, asio::steady_timer::time_point::max()};  // cancelled when a look has come

  // history.cc
  Task<void> keep_history();
  std::string history() const;

  // server.cc
  Task<void> accept(asio::ip::tcp::acceptor acceptor);
  Task<void> sleep(TimeNs ns);

  // questions.cc. Null: the scheduler did not answer in time. Of a graph the answer is whole and `since` is not looked at.
  Task<SharedView> view(scheduler::ViewRequest request);
  Task<std::shared_ptr<const Look>> look();
  Task<std::optional<msg::Explanation>> explain(GraphId graph);
  Task<std::optional<Result<std::vector<msg::TraceReply>>>> trace(msg::TraceRequest request);
  Task<std::optional<Result<std::vector<msg::BlocksReply>>>> blocks(msg::BlocksRequest request);

  // http.cc
  Task<void> serve(asio::ip::tcp::socket socket);
  // routes.cc
  Task<Response> answer(const Request& request);
  // socket.cc: until it ends
  Task<void> follow(beast::tcp_stream stream, Request request);
};

// rules.cc: what is asked of every request before anything else of it is looked at.
struct Entry {
  std::optional<Role> role;
  bool by_header = false;  // proven by Authorization, which no page of another site can send
  std::string cookie;      // else what proves it, to be looked at again: logins end
};
Entry entry_of(const Dashboard::Impl& d, const Request& request);
// An answer that refuses it, or nothing: the host must be one of ours, and a page that asks must be ours too.
std::optional<Response> refused(const Dashboard::Impl& d, const Request& request);
// The headers of every answer, whoever makes it.
void guard(http::fields& response);
Response respond(const Request& request, http::status status, std::string body, std::string_view type);
Response problem(const Request& request, http::status status, std::string_view why);

inline TimeNs wall_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace tilewise::dashboard
