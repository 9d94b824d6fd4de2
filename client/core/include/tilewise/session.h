// A session: where arrays come from, and where expressions are sent.
#pragma once
#include <tilewise/array.h>
#include <tilewise/client/endpoint.h>
#include <tilewise/explain.h>
#include <tilewise/future.h>
#include <tilewise/ir/file_info.h>
#include <tilewise/local_blocks.h>
#include <tilewise/md_span.h>
#include <tilewise/trace.h>
#include <tilewise/types.h>

#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tilewise {

struct SessionOptions {
  std::string name = {};  // for people
  // Of random arrays without a seed of their own. It is the same for all sessions that do not say another: each run of a program
  // has the same random numbers.
  std::uint64_t seed = 0;
  // Share of devices that several sessions use at once, beside the others' weights: 200 gets twice the device time of 100.
  // 1 to 10,000; kInvalidArgument from whatever computes, otherwise.
  std::uint32_t weight = 100;
  Duration timeout{0};  // of every wait that names none; 0: for ever
  // What is outstanding takes memory in all processes that it concerns, some kilobytes an op. Who is so many ops ahead of the cluster
  // waits in compute() and persist() for earlier requests to end, of this priority or above (kTimeout). Each request counts for its
  // ops, 1,024 at most, and 16 beside. 0: never.
  std::size_t look_ahead = 16'384;
  // Looks at a file where the client can see it (io::inspect); load_npy, read_zarr and read_hdf5 are kUnsupported without, read_raw reads whatever is there. Called
  // on a thread of its own, which nobody waits for longer than `timeout` (5 minutes without one): kTimeout then. That thread may
  // outlive the session, so the function owns what it uses.
  std::function<Result<ir::FileInfo>(ir::FileFormat format, const std::string& path,
                                     const std::string& dataset)>
      inspect = {};
};

// How new arrays look. `block`: extents of a block, of the rank of the shape; empty: the default cut, which depends on
// shape and dtype only.
struct CreateOptions {
  DType dtype = DType::kFloat64;
  Shape block = {};
};
struct FullOptions {
  std::optional<DType> dtype = {};  // without: bool, int64, float64 or complex128, as the value is
  Shape block = {};
};
struct RandomOptions {
  std::optional<std::uint64_t> seed =
      {};  // same seed, same numbers; without: the next stream of the session's seed
  Shape block = {};
  DType dtype = DType::kFloat64;  // float32 or float64, of uniform() 16-bit floats too; not of integers()
};
struct ArangeOptions {
  std::optional<DType> dtype = {};  // kInvalidArgument for bool
  Shape block = {};
};
struct LinspaceOptions {
  std::optional<DType> dtype = {};  // floating or complex
  Shape block = {};
  bool endpoint = true;  // false: `stop` is where the next value would be
};
struct BlockOptions {
  Shape block = {};
};
struct RawOptions {
  std::int64_t offset = 0;  // bytes before the first element
  Shape block = {};
  bool any_version = false;  // the file may change meanwhile, as one does that others append to
};
struct MemoryOptions {
  Shape block = {};
  // Given: the span is borrowed, not copied, and `owner` is let go when nothing needs it any more. The bytes must not
  // change until then, and letting go must not use the session.
  std::shared_ptr<const void> owner = {};
  // With an owner: a cluster in this process keeps blocks where they lie, without a copy, for as long as the array lives, also when
  // that is longer than the session. A block can stay if its elements are one run of the memory (blocks of whole rows are) that
  // begins at a multiple of 16 bytes, and its device is a host's. It is no part of that device's memory, and never goes to disk.
  // False: all are copied into devices' memory, and the owner is let go then.
  bool adopt = true;
};

// What became of the values of from_memory(), from_local_blocks() and from_dlpack() so far, in bytes of blocks.
struct Uploads {
  std::int64_t in_place = 0;  // that workers have read, or have kept, where they lie
  std::int64_t sent = 0;      // that were sent to them
  std::int64_t adopted = 0;   // kept where they lie, now, by the cluster in this process; of all its sessions
};

// Memory of a client to be filled and made an array of: workers on the same host read it where it lies. See Session::allocate().
template <class T> struct HostBuffer {
  Shape shape;
  std::span<T> values;                // C order
  std::shared_ptr<const void> owner;  // of these; the memory goes with the last one
  MdSpan<T> view() const { return MdSpan<T>(values.data(), shape); }
};

// Random arrays. Element i of a stream is the same number whatever the block grid and the cluster. Nothing is drawn from the
// machine: without SessionOptions::seed and RandomOptions::seed all sessions, and all runs, have the same numbers.
class Random {
 public:
  // Uniform in [low, high), the bounds rounded to the dtype; never `high` itself, but where no number of the dtype lies between
  // them all are `low`. kInvalidArgument unless low <= high and the bounds and their distance are finite.
  Array uniform(const Shape& shape, const RandomOptions& options = {}, double low = 0, double high = 1) const;
  // kInvalidArgument for a stddev below 0.
  Array normal(const Shape& shape, const RandomOptions& options = {}, double mean = 0,
               double stddev = 1) const;
  // int64, uniform in [low, high), whatever `options.dtype`; kInvalidArgument unless low < high < low + 2^63.
  Array integers(std::int64_t low, std::int64_t high, const Shape& shape,
                 const RandomOptions& options = {}) const;
  // Of density exp(-x / scale) / scale for x >= 0: by the inverse of the distribution, from one uniform number. kInvalidArgument
  // unless scale > 0.
  Array exponential(const Shape& shape, const RandomOptions& options = {}, double scale = 1) const;
  // Of density x^(alpha - 1) exp(-x / scale) / (Gamma(alpha) scale^alpha), by rejection with counters of each element's own; on
  // the host. kInvalidArgument unless alpha > 0 and scale > 0.
  Array gamma(double alpha, const Shape& shape, const RandomOptions& options = {}, double scale = 1) const;
  // 0 ... n - 1 in random order: int64, the order of n random numbers of 64 bits. `options.dtype` means nothing.
  Array permutation(std::int64_t n, const RandomOptions& options = {}) const;
  // x with its slices along `axis` in random order.
  Array permutation(const Array& x, const RandomOptions& options = {}, int axis = 0) const;
  // Elements of a vector, each as likely as the others; without replacement each at most once (kInvalidArgument for more than
  // there are). `options.dtype` means nothing.
  Array choice(const Array& x, const Shape& shape, const RandomOptions& options = {},
               bool replace = true) const;

 private:
  friend class Session;
  std::shared_ptr<client::SessionState> state_;
};

// A handle; copies are the same session. Thread-safe. It ends, with everything it holds at the cluster, when the last
// Session, Array and Future of it are gone; that must not happen inside one of its callbacks.
class Session {
 public:
  explicit Session(std::shared_ptr<client::SessionState> state);

  Random random;

  // New arrays. Errors: kInvalidArgument and kOutOfRange for shapes and blocks, with both in the text.
  Array zeros(const Shape& shape, const CreateOptions& options = {}) const;
  Array ones(const Shape& shape, const CreateOptions& options = {}) const;
  Array full(const Shape& shape, Scalar value, const FullOptions& options = {}) const;
  // Values that nobody has set: zeros here.
  Array empty(const Shape& shape, const CreateOptions& options = {}) const { return zeros(shape, options); }
  // ceil((stop - start) / step) values start + i * step, computed as int64 if all three are integers, else as float64, and then
  // cast to the dtype that is asked for.
  Array arange(Scalar start, Scalar stop, Scalar step = 1, const ArangeOptions& options = {}) const;
  Array arange(Scalar stop, const ArangeOptions& options = {}) const { return arange(0, stop, 1, options); }
  // `count` values from start to stop, evenly spaced, stop included unless options.endpoint is false. float64, or complex128 where
  // start or stop is complex, unless another dtype is asked for; computed as such and rounded once. kInvalidArgument for
  // integer dtypes, for a real one of complex ends, and for a negative count.
  Array linspace(Scalar start, Scalar stop, std::int64_t count, const LinspaceOptions& options = {}) const;
  // (rows, columns); ones where column - row == k.
  Array eye(std::int64_t rows, std::optional<std::int64_t> columns = {}, std::int64_t k = 0,
            const CreateOptions& options = {}) const;
  // An array with these values, C order. Copied at the call, unless options.owner says otherwise. T: that of any dtype
  // (ir::dtype_of_v). kShapeMismatch unless shape has values.size() elements.
  template <class T>
  Array from_memory(std::span<const T> values, const Shape& shape, const MemoryOptions& options = {}) const {
    return from_bytes(std::as_bytes(values), ir::dtype_of_v<T>, shape, options);
  }
  template <class T>
  Array from_memory(const std::vector<T>& values, const Shape& shape,
                    const MemoryOptions& options = {}) const {
    return from_memory(std::span<const T>(values), shape, options);
  }
  // {1.0, 2.0}: float64, {1, 2}: int32, {true}: bool, as the elements' type is. Copied, whatever the options say of an owner.
  template <class T>
  Array from_memory(std::initializer_list<T> values, const Shape& shape,
                    const MemoryOptions& options = {}) const {
    return from_memory(std::span<const T>(values.begin(), values.size()), shape, {.block = options.block});
  }
  // Which has no bools in memory: they are copied, whatever the options say of an owner.
  Array from_memory(const std::vector<bool>& values, const Shape& shape,
                    const MemoryOptions& options = {}) const;
  Array from_bytes(std::span<const std::byte> bytes, DType dtype, const Shape& shape,
                   const MemoryOptions& options = {}) const;
  // Memory for from_buffer(), zeroed and aligned to 64 bytes. In a session with daemons it is shared with the workers of this host,
  // who copy from it straight into their devices' memory; elsewhere it is like any other. What has been let go is used again, and
  // goes back to the system when the session ends. kOutOfMemory.
  template <class T> HostBuffer<T> allocate(const Shape& shape) const {
    const auto bytes = allocate_bytes(ir::dtype_of_v<T>, shape);
    T* data = reinterpret_cast<T*>(bytes.get());
    return {shape, {data, static_cast<std::size_t>(ir::volume(shape))}, bytes};
  }
  // from_memory() of a buffer, which is borrowed: its values must not change any more until `buffer.owner` and its copies are the
  // last ones.
  template <class T> Array from_buffer(const HostBuffer<T>& buffer, MemoryOptions options = {}) const {
    options.owner = buffer.owner;
    return from_memory(std::span<const T>(buffer.values), buffer.shape, options);
  }
  // Which way the values went. To be asked when something has been computed of them.
  Uploads uploads() const;
  // An array of pieces that several sessions have, in as many processes: each calls this with its own, and has the whole array from
  // then on. Pieces are any boxes that together cover the array, each element once; their cuts are the array's, and large pieces are
  // cut further along dimension 0. `name` is known to all of them, not to be used for two arrays at a time, and free again when
  // this returns. Waits until `options.processes` have called it, not for the bytes: these follow, straight from where they lie, and
  // persist() of the array waits for them. Throws, for all who take part, what somebody did wrong, with who and where: kAlreadyExists
  // (elements that two have), kNotFound (that nobody has), kInvalidArgument (another shape, dtype or number of processes; a
  // piece that does not lie inside), kShapeMismatch (values of another number), kLimitExceeded; and kTimeout, kWorkerLost (one has left),
  // kCancelled. A process that is lost before its bytes are taken over makes the array fail (kWorkerLost) for whoever
  // uses it.
  template <class T>
  Array from_local_blocks(const std::string& name, const Shape& shape,
                          const std::vector<LocalBlock<T>>& pieces,
                          const LocalBlocksOptions& options = {}) const {
    std::vector<LocalBytes> bytes;
    for (const LocalBlock<T>& piece : pieces)
      bytes.push_back({piece.offset, piece.shape, std::as_bytes(piece.values), piece.owner});
    return from_local_bytes(name, ir::dtype_of_v<T>, shape, bytes, options);
  }
  Array from_local_bytes(const std::string& name, DType dtype, const Shape& shape,
                         const std::vector<LocalBytes>& pieces, const LocalBlocksOptions& options = {}) const;
  // The blocks of an array that this process can read in place: those in the memory of an embedded cluster, or of workers on this
  // host. Nothing is copied; an array that is not held is computed first. Throws what get() throws; kUnsupported for views.
  AddressableBlocks addressable_blocks(const Array& array, const WaitOptions& options = {}) const;
  // The file at `path`, as workers see it; read when needed, block by block: once more where a worker is lost. What was written over
  // meanwhile (another size or time of modification; of Zarr of its metadata) is not read: kNotFound, "has been changed since". That
  // goes for all four formats; persist() and forget the file, or save elsewhere. Little-endian (kUnsupported otherwise), in C or Fortran order.
  Array load_npy(const std::string& path, const BlockOptions& options = {}) const;
  // The Zarr array in the folder `path`, version 2 or 3, sharded or not; codecs none, gzip, zlib, zstd, blosc, crc32c,
  // transpose. Workers read their own blocks, when needed. Blocks may lie across chunks, but then a chunk is read, and
  // decoded, for each block that has a part of it; the default cut is one of whole chunks. Errors: kNotFound (no array
  // there), kUnsupported (a codec, filter or dtype, by name), kCorruptData, kLimitExceeded (more than 8 dimensions, chunks
  // above 2 GiB); a chunk that cannot be read fails what needs it, with the chunk's file in the text.
  Array read_zarr(const std::string& path, const BlockOptions& options = {}) const;
  // `shape` elements of `dtype`, little-endian, C order, from `options.offset` on in the file `path`, as workers see it. What
  // the file is too short for fails when it is read (kCorruptData). kOutOfRange for a negative offset.
  Array read_raw(const std::string& path, DType dtype, const Shape& shape,
                 const RawOptions& options = {}) const;
  // A dataset of an HDF5 file ("/group/name"): integers, float32 or float64 of either byte order, or bools as h5py
  // writes them; contiguous or chunked, with the filters that the workers' HDF5 library has. Blocks as in read_zarr.
  // Blocks of one worker process are read one after the other: the library promises no more. Errors: kNotFound,
  // kUnsupported (another type), kCorruptData (no HDF5 file, damaged data).
  Array read_hdf5(const std::string& path, const std::string& dataset,
                  const BlockOptions& options = {}) const;

  // Sends everything these arrays need as one message; result i is arrays[i], in the client's memory.
  Future compute(std::span<const Array> arrays, const ComputeOptions& options = {}) const;
  Future compute(std::initializer_list<Array> arrays, const ComputeOptions& options = {}) const {
    return compute(std::span(arrays.begin(), arrays.size()), options);
  }
  // Computes and keeps them in the cluster while they have handles. A view that shows each element of an array once (a transpose, a sum
  // without its dimensions of one element) keeps that array. kUnsupported for others: their own persist() copies what they show.
  Future persist(std::span<const Array> arrays, const ComputeOptions& options = {}) const;
  Future persist(std::initializer_list<Array> arrays, const ComputeOptions& options = {}) const {
    return persist(std::span(arrays.begin(), arrays.size()), options);
  }

  // What persist() of these arrays would do: the ops after each pass, where each runs and why, what moves, what it takes
  // and for how long, by what has been measured so far. Runs nothing. Throws as persist() does; that the scheduler would
  // refuse it is told in the explanation. Of the options `copies` counts.
  Explanation explain(std::span<const Array> arrays, const ComputeOptions& options = {}) const;
  Explanation explain(const Array& array, const ComputeOptions& options = {}) const {
    return explain(std::span(&array, 1), options);
  }
  // Which device holds which block of an array, drawn as text; of one that is not computed yet: where it would be.
  // Grids of more than two dimensions are drawn slice by slice.
  std::string visualize(const Array& array) const;

  // The last steps that ran on the workers' host devices, of all clients. Costs the workers nothing until it is asked for.
  Trace trace() const;

  std::vector<Device> devices() const;           // of the workers that have joined, by id
  Device device(const std::string& name) const;  // kNotFound, naming those there are
  // False if there are not that many in time.
  bool wait_for_devices(std::size_t count, Duration timeout) const;

  const std::shared_ptr<client::SessionState>& state() const { return state_; }

 private:
  std::shared_ptr<std::byte> allocate_bytes(DType dtype, const Shape& shape) const;
  Array read_stored(ir::FileFormat format, const char* what, const std::string& path,
                    const std::string& dataset, const BlockOptions& options) const;

  std::shared_ptr<client::SessionState> state_;
};

// The seam between the API and the world; see client/endpoint.h. Throws if the endpoint's Welcome refuses.
Session make_session(std::unique_ptr<client::Endpoint> endpoint, SessionOptions options = {});

}  // namespace tilewise
