// tilewise.commit_npy: the last task of a save. It reads what every kWriteNpy block reported, so it runs when all of
// them are done, makes the file durable and gives it its name: whole files appear, or none.
// tilewise.discard_npy: what a client sends after a save that failed, with the same parameters: the temporary file goes.
#include <tilewise/io/npy.h>

#include <chrono>
#include <cstdio>
#include <sstream>
#include <thread>

#include "file/file.h"

namespace tilewise::kernels::file {
namespace {

constexpr int kDiscardRounds = 10;

// Parameters, as text: token, dtype, rank, extents, a newline, the path.
struct Parameters {
  std::string token, path;
  ir::DType dtype = ir::DType::kFloat64;
  ir::Shape shape;
};

Result<Parameters> parse(const std::string& text) {
  std::istringstream in(text.substr(0, text.find('\n')));
  Parameters p;
  int dtype = -1, rank = -1;
  in >> p.token >> dtype >> rank;
  if (!in || dtype < 0 || dtype >= ir::kDTypeCount || rank < 0 || rank > limits::kMaxRank) {
    return error(Errc::kInvalidArgument, "saving: malformed parameters");
  }
  p.dtype = static_cast<ir::DType>(dtype);
  for (int d = 0; d < rank; ++d) {
    std::int64_t extent = -1;
    if (!(in >> extent) || extent < 0) return error(Errc::kInvalidArgument, "saving: malformed shape");
    p.shape.push_back(extent);
  }
  const std::size_t line = text.find('\n');
  if (line == std::string::npos) return error(Errc::kInvalidArgument, "saving: no path");
  p.path = text.substr(line + 1);
  return p;
}

Status commit(const tilewise_call_v1* call) {
  TW_ASSIGN(const Parameters p,
            parse(std::string(static_cast<const char*>(call->params), call->params_bytes)));
  TW_ASSIGN(const std::int64_t elements, ir::checked_volume(std::span(p.shape.data(), p.shape.size())));
  if (elements == 0) {  // no block was written: nobody has made the file yet
    const auto made = io::create_temp(p.path, p.token, p.dtype, p.shape);
    if (!made) return made.error();
  }
  TW_TRY(io::commit(p.path, p.token, p.dtype, p.shape));
  *static_cast<std::int64_t*>(call->outputs[0].data) =
      elements * static_cast<std::int64_t>(ir::size_of(p.dtype));
  return {};
}

Status discard(const tilewise_call_v1* call) {
  TW_ASSIGN(const Parameters p,
            parse(std::string(static_cast<const char*>(call->params), call->params_bytes)));
  TW_TRY(discard_all([&] { return io::discard(p.path, p.token); }));
  *static_cast<std::int64_t*>(call->outputs[0].data) = 0;
  return {};
}

}  // namespace

Status discard_all(const std::function<Status()>& discard) {
  for (int i = 0; i < kDiscardRounds; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    TW_TRY(discard());
  }
  return {};
}

int answer(const tilewise_call_v1* call, const Status& ok) {
  if (!ok) std::snprintf(call->message, call->message_bytes, "%s", ok.error().message.c_str());
  return ok ? 0 : static_cast<int>(ok.error().code);
}

int commit_npy(const tilewise_call_v1* call) { return answer(call, commit(call)); }
int discard_npy(const tilewise_call_v1* call) { return answer(call, discard(call)); }

}  // namespace tilewise::kernels::file
