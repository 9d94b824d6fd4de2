// tilewise.create_npy: the first task of a save: it makes the temporary file, and says which it is.
// tilewise.commit_npy: the last one. It reads what create_npy and every kWriteNpy block reported, so it runs when all of them are done,
// makes the file durable and gives it its name: whole files appear, or none.
// tilewise.discard_npy: what the scheduler runs after a save that failed, with the same parameters: the temporary file goes.
#include <tilewise/io/npy.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "file/file.h"

namespace tilewise::kernels::file {
namespace {

// Parameters, as text: token, dtype, rank, extents, a newline, the path.
struct Parameters {
  std::string token, path;
  ir::DType dtype = ir::DType::kFloat64;
  ir::Shape shape;
};

Result<Parameters> parse(const std::string& text) {
  std::istringstream in(text.substr(0, text.find('\n')));
  in.exceptions(std::ios::badbit);  // what memory was refused for is not malformed
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

Result<Parameters> parameters_of(const tilewise_call_v1* call) {
  return parse(std::string(static_cast<const char*>(call->params), call->params_bytes));
}

// One number, to be read by who waits for it.
Status report(const tilewise_call_v1* call, std::int64_t number) {
  *static_cast<std::int64_t*>(call->outputs[0].data) = number;
  return {};
}

Status create(const tilewise_call_v1* call) {
  TW_ASSIGN(const Parameters p, parameters_of(call));
  TW_ASSIGN(const std::string temporary, io::create_temp(p.path, p.token, p.dtype, p.shape));
  TW_ASSIGN(const io::FileId id, io::id_of(temporary));
  return report(call, id);
}

Status commit(const tilewise_call_v1* call) {
  TW_ASSIGN(const Parameters p, parameters_of(call));
  TW_ASSIGN(const std::int64_t elements, ir::checked_volume(std::span(p.shape.data(), p.shape.size())));
  TW_TRY(io::commit(p.path, p.token, p.dtype, p.shape, files_reported(call)));
  return report(call, elements * static_cast<std::int64_t>(ir::size_of(p.dtype)));
}

Status discard(const tilewise_call_v1* call) {
  TW_ASSIGN(const Parameters p, parameters_of(call));
  TW_TRY(io::discard(p.path, p.token));
  return report(call, 0);
}

}  // namespace

std::vector<io::FileId> files_reported(const tilewise_call_v1* call) {
  std::vector<io::FileId> files;
  for (int i = 0; i < call->input_count; ++i) {
    const tilewise_view_v1& in = call->inputs[i];
    if (in.data == nullptr) continue;  // of an array without blocks
    const TensorView view{in.data, ir::DType::kInt64, ir::Shape(in.shape, in.shape + in.rank),
                          ir::Strides(in.strides, in.strides + in.rank)};
    std::unique_ptr<std::byte[]> packed;
    const auto* reports = static_cast<const io::FileId*>(in_c_order(view, packed));
    const std::int64_t count = ir::volume(view.shape);
    for (std::int64_t r = 0; r < count; ++r) {
      if (std::find(files.begin(), files.end(), reports[r]) == files.end()) files.push_back(reports[r]);
    }
  }
  return files;
}

Status write_into(const std::string& final_path, const std::string& token, io::FileId id,
                  const std::function<Status(const std::string&)>& write, std::int64_t* report) {
  TW_ASSIGN(const std::optional<std::string> temporary, io::find_begun(final_path, token, id));
  if (temporary) {
    const Status written = write(*temporary);
    if (!written && written.error().code != Errc::kNotFound) return written;
    if (!written) {  // it may have been put in place meanwhile, by who was taken for dead
      TW_ASSIGN(const std::optional<std::string> now, io::find_begun(final_path, token, id));
      if (now) return written;
    }
  }
  *report = id;  // last: it may take the memory of what was written
  return {};
}

int answer(const tilewise_call_v1* call, const Status& ok) {
  if (!ok) std::snprintf(call->message, call->message_bytes, "%s", ok.error().message.c_str());
  return ok ? 0 : static_cast<int>(ok.error().code);
}

int create_npy(const tilewise_call_v1* call) { return answer(call, create(call)); }
int commit_npy(const tilewise_call_v1* call) { return answer(call, commit(call)); }
int discard_npy(const tilewise_call_v1* call) { return answer(call, discard(call)); }

}  // namespace tilewise::kernels::file
