// Results that are on their way.
#pragma once
#include <tilewise/error.h>
#include <tilewise/ir/dtype.h>
#include <tilewise/ir/shape.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tilewise {

class Account;

namespace client {
class SessionState;
struct Request;
}  // namespace client

using Duration = std::chrono::nanoseconds;

struct Progress {
  std::int64_t done = 0, total = 0;  // tasks; total is 0 until the scheduler has planned
  friend bool operator==(const Progress&, const Progress&) = default;
};

struct WaitOptions {
  Duration timeout{0};                             // 0: the session's default; that may be "for ever"
  std::function<void(Progress)> on_progress = {};  // called on the waiting thread, on every change
};

// The end of one request: all its arrays have arrived, are held, or are written. A value; copies are the same future.
// Thread-safe, but each result can be taken once. Letting a future go does not cancel its request.
class Future {
 public:
  Future() = default;  // of nothing: ready, without results

  bool ready() const;  // finished, well or badly; never waits
  // Throws the failure's ArrayError: its code is that of the root cause; kTimeout leaves the request running.
  void wait(const WaitOptions& options = {}) const;
  // False if it did not end in time. Throws nothing.
  bool wait_for(Duration timeout) const;
  // The future ends at once with kCancelled, and the cluster stops working for it. Nothing if it has ended.
  void cancel();
  Progress progress() const;
  // What it took, or has taken so far, beside what was predicted (tilewise/account.h; only if it was asked for:
  // ComputeOptions::account). Waits for the scheduler's answer and the workers' records, not for the end; once the results are
  // here, a moment for the last reports. Throws: kNotFound if nothing is remembered of it; the failure, if it was refused.
  Account account() const;

  std::size_t size() const;  // results
  ir::DType dtype(std::size_t i = 0) const;
  ir::Shape shape(std::size_t i = 0) const;
  // Waits, then moves result i out, in C order. T: as the array's dtype (ir::dtype_of_v; else kInvalidArgument). A second time:
  // kNotFound.
  template <class T> std::vector<T> get(std::size_t i = 0, const WaitOptions& options = {}) const;

 private:
  friend class client::SessionState;
  Future(std::shared_ptr<client::SessionState> session, std::shared_ptr<client::Request> request)
      : session_(std::move(session)), request_(std::move(request)) {}

  std::shared_ptr<client::SessionState> session_;
  std::shared_ptr<client::Request> request_;
};

// Draws progress as one line that is rewritten: `future.wait({.on_progress = tilewise::ProgressBar("fit")})`. Draws
// only on a terminal, at most ten times a second, and ends the line when all is done. Writes to stderr, or to `file`.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label = {}, std::FILE* file = nullptr);
  void operator()(Progress progress);
  // "fit [#####.....]  50 % 12/24": what one drawing shows, for other outputs.
  static std::string text(const std::string& label, Progress progress, int width = 30);

 private:
  std::string label_;
  std::FILE* file_;
  bool draws_;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace tilewise
