#include "box_reader.h"

#include <algorithm>
#include <memory>

namespace tilewise::io {

namespace {

// Walks the dimensions from the outside. At each it asks: can what lies below be read as one run, straight into the
// block? can groups of it be read together into staging memory? else one by one.
class BoxReader {
 public:
  BoxReader(const File& file, const FileBox& box, const ReadTuning& tuning)
      : file_(file), box_(box), tuning_(tuning) {
    const std::int64_t run = box.run_bytes();
    const bool long_runs = run >= tuning.direct_bytes;
    // The outermost dimension from which on all gaps are small.
    while (together_from_ > 0 && !long_runs && box.gap(together_from_ - 1) <= tuning.max_gap_bytes) {
      --together_from_;
    }
  }

  Status read(std::size_t d, std::int64_t offset, std::byte* block) {
    const FileBox::Dim& dim = box_.dims[d];
    const bool last = d + 1 == box_.rank();
    if (last && box_.run_bytes() > 0) {
      ++reads_;
      return file_.read(block, static_cast<std::size_t>(box_.run_bytes()), offset);
    }
    const std::int64_t one = box_.span(d + 1);
    if (d >= together_from_ && one <= tuning_.staging_bytes) return read_together(d, one, offset, block);
    for (std::int64_t i = 0; i < dim.extent; ++i) {
      std::byte* to = block + i * dim.block_stride;
      if (!last) {
        TW_TRY(read(d + 1, offset + i * dim.file_stride, to));
        continue;
      }
      ++reads_;
      TW_TRY(file_.read(to, static_cast<std::size_t>(box_.item), offset + i * dim.file_stride));
    }
    return {};
  }

  std::int64_t reads() const { return reads_; }

 private:
  Status read_together(std::size_t d, std::int64_t one, std::int64_t offset, std::byte* block) {
    const FileBox::Dim& dim = box_.dims[d];
    if (!staging_) {
      const std::int64_t size = std::min(tuning_.staging_bytes, box_.span(together_from_));
      staging_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(std::max(size, one)));
    }
    const std::int64_t group =
        std::min(dim.extent, (std::max(tuning_.staging_bytes, one) - one) / dim.file_stride + 1);
    for (std::int64_t i = 0; i < dim.extent; i += group) {
      const std::int64_t count = std::min(group, dim.extent - i);
      const std::int64_t bytes = (count - 1) * dim.file_stride + one;
      ++reads_;
      TW_TRY(file_.read(staging_.get(), static_cast<std::size_t>(bytes), offset + i * dim.file_stride));
      scatter(box_, d, count, staging_.get(), block + i * dim.block_stride);
    }
    return {};
  }

  const File& file_;
  const FileBox& box_;
  const ReadTuning& tuning_;
  std::size_t together_from_ = box_.rank();
  std::unique_ptr<std::byte[]> staging_;
  std::int64_t reads_ = 0;
};

}  // namespace

Result<std::int64_t> read_box(const File& file, const FileBox& box, std::byte* block,
                              const ReadTuning& tuning) {
  if (box.empty) return std::int64_t{0};
  BoxReader reader(file, box, tuning);
  TW_TRY(reader.read(0, box.first, block));
  return reader.reads();
}

void normalise_bools(void* block, std::int64_t elements) {
  auto* bytes = static_cast<std::byte*>(block);
  for (std::int64_t i = 0; i < elements; ++i)
    bytes[i] = bytes[i] != std::byte{0} ? std::byte{1} : std::byte{0};
}

}  // namespace tilewise::io
