#include <tilewise/account.h>
#include <tilewise/future.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <new>

#include "session_state.h"

namespace tilewise {
namespace client {

Buffer make_buffer(ir::DType dtype, std::int64_t elements) {
  const auto n = static_cast<std::size_t>(elements);
  try {
    switch (dtype) {
      case ir::DType::kBool: return Bools(n);
      case ir::DType::kInt8: return std::vector<std::int8_t>(n);
      case ir::DType::kInt16: return std::vector<std::int16_t>(n);
      case ir::DType::kInt32: return std::vector<std::int32_t>(n);
      case ir::DType::kInt64: return std::vector<std::int64_t>(n);
      case ir::DType::kUInt8: return std::vector<std::uint8_t>(n);
      case ir::DType::kUInt16: return std::vector<std::uint16_t>(n);
      case ir::DType::kUInt32: return std::vector<std::uint32_t>(n);
      case ir::DType::kUInt64: return std::vector<std::uint64_t>(n);
      case ir::DType::kFloat16: return std::vector<ir::Float16>(n);
      case ir::DType::kBFloat16: return std::vector<ir::BFloat16>(n);
      case ir::DType::kFloat32: return std::vector<float>(n);
      case ir::DType::kFloat64: return std::vector<double>(n);
      case ir::DType::kComplex64: return std::vector<std::complex<float>>(n);
      case ir::DType::kComplex128: return std::vector<std::complex<double>>(n);
    }
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  throw ArrayError(Errc::kOutOfMemory, "the client has no " + std::to_string(n * size_of(dtype)) +
                                           " bytes for a result: reduce it first, or save_npy() it");
}

std::byte* bytes_of(Buffer& buffer) {
  return std::visit([](auto& v) { return reinterpret_cast<std::byte*>(v.data()); }, buffer);
}

}  // namespace client

bool Future::ready() const { return !request_ || request_->finished.load(std::memory_order_acquire); }

void Future::wait(const WaitOptions& options) const {
  if (!request_) return;
  if (!session_->wait(*request_, options.timeout, options.on_progress)) {
    const Progress now = progress();
    throw ArrayError(Errc::kTimeout, "request " + std::to_string(request_->number) +
                                         " has not ended in time; " + std::to_string(now.done) + " of " +
                                         std::to_string(now.total) + " tasks are done");
  }
  session_->check(*request_);
}

bool Future::wait_for(Duration timeout) const {
  if (ready()) return true;
  return timeout.count() > 0 && session_->wait(*request_, timeout, nullptr);
}

void Future::cancel() {
  if (request_) session_->cancel(*request_);
}

Progress Future::progress() const { return request_ ? session_->progress(*request_) : Progress{}; }

Account Future::account() const {
  if (!request_) throw ArrayError(Errc::kNotFound, "a future of nothing has no account");
  return session_->account(*request_);
}

std::size_t Future::size() const { return request_ ? request_->results.size() : 0; }

namespace {

const client::Target& target_of(const client::Request* request, std::size_t i) {
  const std::size_t count = request ? request->results.size() : 0;
  if (i >= count) {
    throw ArrayError(Errc::kOutOfRange,
                     "result " + std::to_string(i) + " of a future of " + std::to_string(count));
  }
  return request->targets[request->results[i]];
}

template <class T> std::vector<T> typed(client::Buffer buffer) {
  if constexpr (std::is_same_v<T, bool>) {
    const auto& bytes = std::get<client::Bools>(buffer);
    return std::vector<bool>(bytes.begin(), bytes.end());
  } else {
    return std::get<std::vector<T>>(std::move(buffer));
  }
}

}  // namespace

ir::DType Future::dtype(std::size_t i) const { return target_of(request_.get(), i).dtype; }
ir::Shape Future::shape(std::size_t i) const { return target_of(request_.get(), i).shape; }

template <class T> std::vector<T> Future::get(std::size_t i, const WaitOptions& options) const {
  const ir::DType dtype = target_of(request_.get(), i).dtype;
  if (dtype != ir::dtype_of_v<T>) {
    throw ArrayError(Errc::kInvalidArgument, "result " + std::to_string(i) + " is " +
                                                 std::string(name_of(dtype)) + ", not " +
                                                 std::string(name_of(ir::dtype_of_v<T>)));
  }
  wait(options);
  return typed<T>(session_->take(*request_, i));
}

template std::vector<bool> Future::get(std::size_t, const WaitOptions&) const;
template std::vector<std::int8_t> Future::get(std::size_t, const WaitOptions&) const;
template std::vector<std::int16_t> Future::get(std::size_t, const WaitOptions&) const;
template std::vector<std::int32_t> Future::get(std::size_t, const WaitOptions&) const;
template std::vector<std::int64_t> Future::get(std::size_t, const WaitOptions&) const;
template std::vector<std::uint8_t> Future::get(std::size_t, const WaitOptions&) const;
template std::vector<std::uint16_t> Future::get(std::size_t, const WaitOptions&) const;
template std::vector<std::uint32_t> Future::get(std::size_t, const WaitOptions&) const;
template std::vector<std::uint64_t> Future::get(std::size_t, const WaitOptions&) const;
template std::vector<Float16> Future::get(std::size_t, const WaitOptions&) const;
template std::vector<BFloat16> Future::get(std::size_t, const WaitOptions&) const;
template std::vector<float> Future::get(std::size_t, const WaitOptions&) const;
template std::vector<double> Future::get(std::size_t, const WaitOptions&) const;
template std::vector<std::complex<float>> Future::get(std::size_t, const WaitOptions&) const;
template std::vector<std::complex<double>> Future::get(std::size_t, const WaitOptions&) const;

// ---- progress --------------------------------------------------------------------------------------------------------

ProgressBar::ProgressBar(std::string label, std::FILE* file)
    : label_(std::move(label)),
      file_(file ? file : stderr),
      draws_(file != nullptr || isatty(fileno(stderr)) == 1) {}

std::string ProgressBar::text(const std::string& label, Progress progress, int width) {
  const std::int64_t total = std::max<std::int64_t>(progress.total, 1);
  const std::int64_t done = std::clamp<std::int64_t>(progress.done, 0, total);
  const auto filled =
      static_cast<std::size_t>(static_cast<double>(done) / static_cast<double>(total) * width);
  std::string line = label.empty() ? "" : label + " ";
  line += "[" + std::string(filled, '#') + std::string(static_cast<std::size_t>(width) - filled, '.') + "] ";
  std::string percent =
      std::to_string(static_cast<int>(100.0 * static_cast<double>(done) / static_cast<double>(total)));
  percent.insert(0, 3 - std::min<std::size_t>(3, percent.size()), ' ');
  return line + percent + " % " + std::to_string(progress.done) + "/" + std::to_string(progress.total);
}

void ProgressBar::operator()(Progress progress) {
  const bool complete = progress.total > 0 && progress.done >= progress.total;
  const auto now = std::chrono::steady_clock::now();
  if (!draws_ || (!complete && now < next_)) return;
  next_ = now + std::chrono::milliseconds(100);
  const std::string line = "\r" + text(label_, progress) + "\x1b[K" + (complete ? "\n" : "");
  std::fwrite(line.data(), 1, line.size(), file_);
  std::fflush(file_);
}

}  // namespace tilewise
