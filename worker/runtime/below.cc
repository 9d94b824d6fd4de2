#include "below.h"

#include <tilewise/base/check.h>

#include <algorithm>

namespace tilewise::worker {

using device::Kind;

StagingRing::StagingRing(std::byte* memory, const Options& options, device::Copier& copier,
                         store::SpillFile& file, std::function<void(std::function<void()>)> later)
    : piece_bytes_(options.piece_bytes), copier_(copier), file_(file), later_(std::move(later)) {
  TW_CHECK(options.pieces > 0 && piece_bytes_ > 0 && piece_bytes_ % store::SpillFile::kPage == 0,
           "a ring's pieces are whole pages of a file");
  for (int i = 0; i < options.pieces; ++i) free_.push_back(memory + i * piece_bytes_);
}

void StagingRing::write(device::Device& device, const std::byte* from, std::int64_t at, std::int64_t bytes,
                        Done done) {
  Job job;
  job.write = true;
  job.device = &device, job.memory = const_cast<std::byte*>(from), job.at = at, job.bytes = bytes;
  job.done = std::move(done);
  add(std::move(job));
}

void StagingRing::read(device::Device& device, std::byte* to, std::int64_t at, std::int64_t bytes,
                       Done done) {
  Job job;
  job.device = &device, job.memory = to, job.at = at, job.bytes = bytes;
  job.done = std::move(done);
  add(std::move(job));
}

void StagingRing::add(Job job) {
  if (job.bytes == 0) return job.done({});
  (job.write ? leaving_ : returning_).push_back(std::move(job));
  begin_pieces();
}

// Somebody waits for what comes back; but what leaves makes the room that the next ones come back to, so it has half of the
// buffers where both want them.
void StagingRing::begin_pieces() {
  if (beginning_) return;
  beginning_ = true;
  const auto waiting = [](Jobs& jobs) {
    return std::find_if(jobs.begin(), jobs.end(), [](const Job& job) { return job.waits(); });
  };
  const auto held = [](const Jobs& jobs) {
    int pieces = 0;
    for (const Job& job : jobs) pieces += job.under_way;
    return pieces;
  };
  while (!free_.empty()) {
    const auto back = waiting(returning_), out = waiting(leaving_);
    if (back == returning_.end() && out == leaving_.end()) break;
    const bool returns =
        back != returning_.end() && (out == leaving_.end() || held(returning_) <= held(leaving_));
    std::byte* buffer = free_.back();
    free_.pop_back();
    begin_piece(returns ? back : out, buffer);
  }
  beginning_ = false;
}

void StagingRing::begin_piece(Jobs::iterator job, std::byte* buffer) {
  const std::int64_t offset = job->begun, bytes = std::min(piece_bytes_, job->bytes - offset);
  job->begun += bytes;
  ++job->under_way;
  std::byte* memory = job->memory + offset;
  const std::int64_t at = job->at + offset;
  if (job->write) {
    copier_.copy_on(job->device->spill_stream(), buffer, memory, bytes,
                    [this, job, buffer, at, bytes](const Status& copied) {
                      if (!copied) return end_piece(job, buffer, copied);
                      file_.write(at, buffer, bytes, [this, job, buffer](Status written) {
                        later_([this, job, buffer, written] { end_piece(job, buffer, written); });
                      });
                    });
    return;
  }
  file_.read(at, buffer, bytes, [this, job, buffer, memory, bytes](const Status& read) {
    later_([this, job, buffer, memory, bytes, read] {
      if (!read) return end_piece(job, buffer, read);
      copier_.copy_on(job->device->return_stream(), memory, buffer, bytes,
                      [this, job, buffer](const Status& copied) { end_piece(job, buffer, copied); });
    });
  });
}

void StagingRing::end_piece(Jobs::iterator job, std::byte* buffer, const Status& status) {
  free_.push_back(buffer);
  if (job->status) job->status = status;
  if (--job->under_way == 0 && !job->waits()) {
    Job over = std::move(*job);
    (over.write ? leaving_ : returning_).erase(job);
    over.done(over.status);
  }
  begin_pieces();
}

Below::Below(device::Copier& copier, std::function<void(std::function<void()>)> later)
    : copier_(copier), later_(std::move(later)) {}
Below::~Below() = default;

Status Below::use_disk(std::unique_ptr<store::SpillFile> file, device::Device* gpu) {
  disk_ = std::move(file);
  if (gpu == nullptr) return {};
  const StagingRing::Options ring;
  TW_ASSIGN(buffers_,
            device::PinnedBuffer::make(*gpu, static_cast<std::size_t>(ring.piece_bytes * ring.pieces)));
  ring_ = std::make_unique<StagingRing>(buffers_->data(), ring, copier_, *disk_, later_);
  return {};
}

Status Below::use_pinned(device::Device& gpu, std::int64_t bytes) {
  TW_ASSIGN(pinned_, device::PinnedBuffer::make(gpu, static_cast<std::size_t>(bytes)));
  return {};
}

void Below::move_disk(device::Device& device, bool write, std::byte* memory, std::int64_t at,
                      std::int64_t bytes, Done done) {
  if (device.info().kind == Kind::kHost)
    return write ? disk_->write(at, memory, bytes, std::move(done))
                 : disk_->read(at, memory, bytes, std::move(done));
  write ? ring_->write(device, memory, at, bytes, std::move(done))
        : ring_->read(device, memory, at, bytes, std::move(done));
}

void Below::move_memory(device::Device& device, bool out, std::byte* memory, std::byte* there,
                        std::int64_t bytes, Done done) {
  if (out)
    copier_.copy_on(device.spill_stream(), there, memory, bytes, std::move(done));
  else
    copier_.copy_on(device.return_stream(), memory, there, bytes, std::move(done));
}

void Below::demote(std::int64_t from, std::int64_t at, std::int64_t bytes, Done done) {
  disk_->write(at, pinned(from), bytes, std::move(done));
}

}  // namespace tilewise::worker
