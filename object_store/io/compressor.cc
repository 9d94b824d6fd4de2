#include "compressor.h"

#include <blosc.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <boost/crc.hpp>
#include <limits>

namespace tilewise::io {

namespace {

constexpr std::size_t kMaxInput = std::size_t{1} << 30;  // of one call of zlib, which counts in 32 bits

Error corrupt(const std::string& what, const std::string& why) {
  return error(Errc::kCorruptData, what + ": " + why);
}

Bytef* zlib_bytes(const std::byte* p) { return reinterpret_cast<Bytef*>(const_cast<std::byte*>(p)); }

Status inflate_all(std::span<const std::byte> from, std::span<std::byte> to, const std::string& what) {
  z_stream z{};
  if (inflateInit2(&z, 15 + 32) != Z_OK) return error(Errc::kOutOfMemory, what + ": no memory for zlib");
  std::size_t in = 0, out = 0;
  int rc = Z_OK;
  std::byte none{};  // zlib wants an address even where nothing fits
  while (rc == Z_OK) {
    if (z.avail_in == 0 && in < from.size()) {
      const std::size_t part = std::min(kMaxInput, from.size() - in);
      z.next_in = zlib_bytes(from.data() + in);
      z.avail_in = static_cast<uInt>(part);
      in += part;
    }
    const std::size_t room = std::min(kMaxInput, to.size() - out);
    z.next_out = room > 0 ? zlib_bytes(to.data() + out) : zlib_bytes(&none);
    z.avail_out = static_cast<uInt>(room);
    rc = inflate(&z, Z_NO_FLUSH);
    out += room - z.avail_out;
    // Several members, one after the other, are one file to gzip.
    if (rc == Z_STREAM_END && (z.avail_in > 0 || in < from.size()) && out < to.size()) rc = inflateReset(&z);
  }
  const bool more = z.avail_in > 0 || in < from.size();
  inflateEnd(&z);
  if (rc == Z_MEM_ERROR) return error(Errc::kOutOfMemory, what + ": no memory for zlib");
  if (rc == Z_STREAM_END && out == to.size() && !more) return {};
  return corrupt(what, rc == Z_BUF_ERROR && out == to.size() ? "gzip data is longer than a chunk"
                       : rc == Z_STREAM_END                  ? "gzip data of another length than a chunk"
                                                             : "damaged gzip data");
}

Status deflate_all(const Compressor& c, std::span<const std::byte> from, std::vector<std::byte>& to,
                   const std::string& what) {
  z_stream z{};
  const int began = deflateInit2(&z, c.level, Z_DEFLATED, c.kind == Compression::kGzip ? 15 + 16 : 15, 8,
                                 Z_DEFAULT_STRATEGY);
  if (began == Z_MEM_ERROR) return error(Errc::kOutOfMemory, what + ": no memory for zlib");
  if (began != Z_OK) return error(Errc::kInvalidArgument, what + ": gzip level " + std::to_string(c.level));
  struct End {  // also where there is no room for the result
    z_stream& z;
    ~End() { deflateEnd(&z); }
  } const end{z};
  const std::size_t start = to.size();
  to.resize(start + deflateBound(&z, from.size()));
  std::size_t in = 0, out = start;
  int rc = Z_OK;
  while (rc == Z_OK) {
    if (z.avail_in == 0 && in < from.size()) {
      const std::size_t part = std::min(kMaxInput, from.size() - in);
      z.next_in = zlib_bytes(from.data() + in);
      z.avail_in = static_cast<uInt>(part);
      in += part;
    }
    const std::size_t room = std::min(kMaxInput, to.size() - out);
    z.next_out = zlib_bytes(to.data() + out);
    z.avail_out = static_cast<uInt>(room);
    rc = deflate(&z, in == from.size() ? Z_FINISH : Z_NO_FLUSH);
    out += room - z.avail_out;
  }
  if (rc != Z_STREAM_END) return error(Errc::kInternal, what + ": zlib ended with " + std::to_string(rc));
  to.resize(out);
  return {};
}

bool lacks_memory(std::size_t zstd) { return ZSTD_getErrorCode(zstd) == ZSTD_error_memory_allocation; }

Status unblosc(std::span<const std::byte> from, std::span<std::byte> to, const std::string& what) {
  std::size_t bytes = 0;
  if (from.size() < BLOSC_MIN_HEADER_LENGTH || blosc_cbuffer_validate(from.data(), from.size(), &bytes) < 0)
    return corrupt(what, "damaged blosc data");
  if (bytes != to.size())
    return corrupt(what,
                   "blosc data of " + std::to_string(bytes) + " bytes, not " + std::to_string(to.size()));
  if (to.empty()) return {};
  const int got = blosc_decompress_ctx(from.data(), to.data(), to.size(), 1);
  if (got < 0 || static_cast<std::size_t>(got) != to.size()) return corrupt(what, "damaged blosc data");
  return {};
}

}  // namespace

Status decompress(const Compressor& c, std::span<const std::byte> from, std::span<std::byte> to,
                  const std::string& what) {
  switch (c.kind) {
    case Compression::kNone:
      if (from.size() != to.size())
        return corrupt(what,
                       std::to_string(from.size()) + " bytes, a chunk has " + std::to_string(to.size()));
      std::copy(from.begin(), from.end(), to.begin());
      return {};
    case Compression::kGzip:
    case Compression::kZlib: return inflate_all(from, to, what);
    case Compression::kZstd: {
      const std::size_t got = ZSTD_decompress(to.data(), to.size(), from.data(), from.size());
      if (lacks_memory(got)) return error(Errc::kOutOfMemory, what + ": no memory for zstd");
      if (ZSTD_isError(got)) return corrupt(what, std::string("zstd: ") + ZSTD_getErrorName(got));
      if (got != to.size())
        return corrupt(
            what, "zstd data of " + std::to_string(got) + " bytes, a chunk has " + std::to_string(to.size()));
      return {};
    }
    case Compression::kBlosc: return unblosc(from, to, what);
  }
  return error(Errc::kInternal, what + ": no such compressor");
}

Status compress(const Compressor& c, std::span<const std::byte> from, std::size_t item,
                std::vector<std::byte>& to, const std::string& what) {
  const std::size_t start = to.size();
  switch (c.kind) {
    case Compression::kNone: to.insert(to.end(), from.begin(), from.end()); return {};
    case Compression::kGzip:
    case Compression::kZlib: return deflate_all(c, from, to, what);
    case Compression::kZstd: {
      to.resize(start + ZSTD_compressBound(from.size()));
      ZSTD_CCtx* context = ZSTD_createCCtx();
      if (context == nullptr) return error(Errc::kOutOfMemory, what + ": no memory for zstd");
      ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, c.level);
      ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, c.checksum ? 1 : 0);
      const std::size_t got =
          ZSTD_compress2(context, to.data() + start, to.size() - start, from.data(), from.size());
      ZSTD_freeCCtx(context);
      if (lacks_memory(got)) return error(Errc::kOutOfMemory, what + ": no memory for zstd");
      if (ZSTD_isError(got)) return error(Errc::kInternal, what + ": zstd: " + ZSTD_getErrorName(got));
      to.resize(start + got);
      return {};
    }
    case Compression::kBlosc: {
      to.resize(start + from.size() + BLOSC_MAX_OVERHEAD);
      const int got = blosc_compress_ctx(c.level, c.shuffle, item, from.size(), from.data(),
                                         to.data() + start, to.size() - start, c.cname.c_str(), 0, 1);
      if (got <= 0) return error(Errc::kUnsupported, what + ": blosc cannot compress with '" + c.cname + "'");
      to.resize(start + static_cast<std::size_t>(got));
      return {};
    }
  }
  return error(Errc::kInternal, what + ": no such compressor");
}

std::int64_t longest_compressed(std::int64_t bytes) { return bytes + bytes / 8 + (1 << 16); }

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  return crc.checksum();
}

}  // namespace tilewise::io
