// zarr.json and .zarray: read field by field with the file's and the field's name in each error, and written.
#include <tilewise/io/zarr.h>
#include <tilewise/ir/element_types.h>
#include <tilewise/json/json.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "zarr_fill.h"

namespace tilewise::io {

namespace {

using json::object;
using json::value;

class Reader {
 public:
  explicit Reader(std::string_view file) : file_(file) {}

  Result<ZarrInfo> parse(std::string_view text) {
    if (text.size() > kMaxZarrMetadataBytes)
      return error(Errc::kLimitExceeded, file_ + ": metadata of " + std::to_string(text.size()) + " bytes");
    boost::system::error_code ec;
    const value root = json::parse_exactly(text, ec);  // of fill values every bit counts
    if (ec) return corrupt("is not JSON: " + ec.message());
    if (!root.is_object()) return corrupt("is no JSON object");
    TW_ASSIGN(const std::int64_t version, integer(root.get_object(), "zarr_format"));
    ZarrInfo info;
    info.version = static_cast<int>(version);
    if (version == 2)
      TW_TRY(version2(root.get_object(), info));
    else if (version == 3)
      TW_TRY(version3(root.get_object(), info));
    else
      return unsupported("zarr_format " + std::to_string(version));
    TW_TRY(check_zarr(info, file_));
    return info;
  }

 private:
  Error corrupt(const std::string& why) const { return error(Errc::kCorruptData, file_ + ": " + why); }
  Error unsupported(const std::string& what) const {
    return error(Errc::kUnsupported, file_ + ": " + what + " is not supported");
  }
  static std::string shown(const value& v) { return json::utf8(boost::json::serialize(v)).substr(0, 60); }

  Result<std::int64_t> number(const value& v, const std::string& name) const {
    if (v.is_int64()) return v.get_int64();
    return corrupt("'" + name + "' is " + shown(v) + ", not an integer");
  }
  Result<std::int64_t> integer(const object& from, const char* name) const {
    const value* v = from.if_contains(name);
    if (v == nullptr) return corrupt(std::string("no '") + name + "'");
    return number(*v, name);
  }
  Result<std::int64_t> integer_or(const object& from, const char* name, std::int64_t otherwise) const {
    return from.contains(name) ? integer(from, name) : Result<std::int64_t>(otherwise);
  }
  Result<std::string> text(const object& from, const char* name) const {
    const value* v = from.if_contains(name);
    if (v == nullptr || !v->is_string()) return corrupt(std::string("no text '") + name + "'");
    return std::string(v->get_string());
  }
  Result<const object*> dictionary(const object& from, const char* name) const {
    const value* v = from.if_contains(name);
    if (v == nullptr || !v->is_object()) return corrupt(std::string("no object '") + name + "'");
    return &v->get_object();
  }
  Result<ir::Shape> shape(const object& from, const char* name) const {
    const value* v = from.if_contains(name);
    if (v == nullptr || !v->is_array()) return corrupt(std::string("no list '") + name + "'");
    const json::array& list = v->get_array();
    if (list.size() > limits::kMaxRank) {
      return error(Errc::kLimitExceeded, file_ + ": '" + name + "' of " + std::to_string(list.size()) +
                                             " dimensions, at most " + std::to_string(limits::kMaxRank) +
                                             " are possible");
    }
    ir::Shape out;
    for (const value& each : list) {
      TW_ASSIGN(const std::int64_t extent, number(each, name));
      out.push_back(extent);
    }
    return out;
  }
  Status separator(const object& from, const char* name, ZarrInfo& info) const {
    if (!from.contains(name)) return {};
    TW_ASSIGN(const std::string s, text(from, name));
    if (s != "." && s != "/") return corrupt(std::string("'") + name + "' is neither '.' nor '/'");
    info.separator = s.front();
    return {};
  }

  // "bytes" alone, {"name": "bytes"} or {"name": "bytes", "configuration": {...}}.
  struct Named {
    std::string name;
    const object* configuration = nullptr;
  };
  Result<Named> named(const value& v) const {
    static const object none;
    if (v.is_string()) return Named{std::string(v.get_string()), &none};
    if (!v.is_object()) return corrupt("a codec is " + shown(v));
    TW_ASSIGN(const std::string name, text(v.get_object(), "name"));
    const value* configuration = v.get_object().if_contains("configuration");
    if (configuration != nullptr && !configuration->is_object())
      return corrupt("codec '" + name + "' is malformed");
    return Named{name, configuration == nullptr ? &none : &configuration->get_object()};
  }

  Status version2(const object& root, ZarrInfo& info) {
    info.c_keys = false;
    info.separator = '.';
    TW_ASSIGN(info.shape, shape(root, "shape"));
    TW_ASSIGN(info.chunk, shape(root, "chunks"));
    const value* type = root.if_contains("dtype");
    if (type == nullptr) return corrupt("no 'dtype'");
    if (!type->is_string()) return unsupported("dtype " + shown(*type));
    const std::string_view code = type->get_string();
    const bool ordered = !code.empty() && (code.front() == '<' || code.front() == '>' || code.front() == '|');
    std::optional<ir::DType> dtype;
    for (const char order : {'<', '|'})
      if (ordered && !dtype) dtype = ir::dtype_named(order + std::string(code.substr(1)));
    if (!dtype) return unsupported("dtype " + shown(*type));
    info.dtype = *dtype;
    info.big_endian = code.front() == '>' && ir::size_of(info.dtype) > 1;
    TW_ASSIGN(const std::string order, text(root, "order"));
    if (order != "C" && order != "F") return corrupt("'order' is neither 'C' nor 'F'");
    if (order == "F" && info.shape.size() > 1)
      for (int d = static_cast<int>(info.shape.size()); d-- > 0;) info.order.push_back(d);
    TW_TRY(separator(root, "dimension_separator", info));
    const value *filters = root.if_contains("filters"), *compressor = root.if_contains("compressor");
    if (filters != nullptr && !filters->is_null() && !(filters->is_array() && filters->get_array().empty()))
      return unsupported("a filter (" + shown(*filters) + ")");
    if (compressor != nullptr && !compressor->is_null()) {
      if (!compressor->is_object()) return corrupt("'compressor' is " + shown(*compressor));
      const object& c = compressor->get_object();
      TW_ASSIGN(const std::string id, text(c, "id"));
      TW_TRY(compressor_of(id, c, info.compressor));
    }
    return parse_fill(root, info);
  }

  Status version3(const object& root, ZarrInfo& info) {
    TW_ASSIGN(const std::string node, text(root, "node_type"));
    if (node != "array")
      return error(Errc::kInvalidArgument, file_ + ": a Zarr " + node.substr(0, 60) + ", not an array");
    for (const auto& [key, v] : root) {
      static const std::string_view known[] = {"zarr_format",
                                               "node_type",
                                               "shape",
                                               "data_type",
                                               "chunk_grid",
                                               "chunk_key_encoding",
                                               "fill_value",
                                               "codecs",
                                               "attributes",
                                               "dimension_names",
                                               "storage_transformers",
                                               "consolidated_metadata"};
      if (std::find(std::begin(known), std::end(known), std::string_view(key)) != std::end(known)) continue;
      const value* must = v.is_object() ? v.get_object().if_contains("must_understand") : nullptr;
      if (must == nullptr || !must->is_bool() || must->get_bool())
        return unsupported("'" + json::utf8(key).substr(0, 60) + "'");
    }
    if (const value* v = root.if_contains("storage_transformers");
        v != nullptr && !(v->is_array() && v->get_array().empty()))
      return unsupported("a storage transformer");
    TW_ASSIGN(info.shape, shape(root, "shape"));
    const value* type = root.if_contains("data_type");
    if (type == nullptr) return corrupt("no 'data_type'");
    const std::optional<ir::DType> dtype =
        type->is_string() ? ir::dtype_named(std::string_view(type->get_string())) : std::nullopt;
    if (!dtype || ir::name_of(*dtype) != std::string_view(type->get_string()) || ir::npy_code(*dtype).empty())
      return unsupported("data_type " + shown(*type));
    info.dtype = *dtype;
    TW_ASSIGN(const object* grid, dictionary(root, "chunk_grid"));
    TW_ASSIGN(const std::string grid_name, text(*grid, "name"));
    if (grid_name != "regular") return unsupported("chunk_grid '" + grid_name.substr(0, 60) + "'");
    TW_ASSIGN(const object* grid_is, dictionary(*grid, "configuration"));
    TW_ASSIGN(info.chunk, shape(*grid_is, "chunk_shape"));
    TW_ASSIGN(const object* keys, dictionary(root, "chunk_key_encoding"));
    TW_ASSIGN(const std::string keys_name, text(*keys, "name"));
    if (keys_name != "default" && keys_name != "v2")
      return unsupported("chunk_key_encoding '" + keys_name.substr(0, 60) + "'");
    info.c_keys = keys_name == "default";
    info.separator = info.c_keys ? '/' : '.';
    if (const value* c = keys->if_contains("configuration"); c != nullptr && c->is_object())
      TW_TRY(separator(c->get_object(), "separator", info));
    const value* codecs = root.if_contains("codecs");
    if (codecs == nullptr || !codecs->is_array()) return corrupt("no list 'codecs'");
    TW_TRY(codecs_of(codecs->get_array(), true, info));
    return parse_fill(root, info);
  }

  // array -> array, then array -> bytes, then bytes -> bytes.
  Status codecs_of(const json::array& list, bool may_shard, ZarrInfo& info) {
    bool bytes = false;
    for (const value& v : list) {
      TW_ASSIGN(const Named codec, named(v));
      if (codec.name == "transpose" && !bytes) {
        TW_TRY(transpose(*codec.configuration, info));
      } else if (codec.name == "bytes" && !bytes) {
        bytes = true;
        TW_TRY(endian(*codec.configuration, info));
      } else if (codec.name == "sharding_indexed" && !bytes) {
        if (!may_shard || !info.order.empty()) return unsupported("sharding within another codec");
        if (list.size() != 1) return unsupported("a codec behind sharding_indexed");
        return sharding(*codec.configuration, info);
      } else if (codec.name == "crc32c" && bytes && !info.crc32c) {
        info.crc32c = true;
      } else if (bytes && !info.crc32c && info.compressor.kind == Compression::kNone) {
        TW_TRY(compressor_of(codec.name, *codec.configuration, info.compressor));
      } else {
        return unsupported("codec '" + json::utf8(codec.name).substr(0, 60) + "' in this place");
      }
    }
    if (!bytes) return corrupt("no codec makes bytes of a chunk");
    return {};
  }

  Status endian(const object& c, ZarrInfo& info) const {
    if (!c.contains("endian")) {
      return ir::size_of(info.dtype) == 1 ? Status() : corrupt("codec 'bytes' does not say which 'endian'");
    }
    TW_ASSIGN(const std::string e, text(c, "endian"));
    if (e != "little" && e != "big") return corrupt("'endian' is neither 'little' nor 'big'");
    info.big_endian = e == "big" && ir::size_of(info.dtype) > 1;
    return {};
  }

  Status transpose(const object& c, ZarrInfo& info) const {
    if (!info.order.empty()) return unsupported("two transpose codecs");
    TW_ASSIGN(const ir::Shape order, shape(c, "order"));
    for (const std::int64_t d : order)
      info.order.push_back(static_cast<int>(std::clamp<std::int64_t>(d, -1, limits::kMaxRank)));
    return {};  // check_zarr() looks at it
  }

  Status sharding(const object& c, ZarrInfo& info) {
    TW_ASSIGN(info.inner, shape(c, "chunk_shape"));
    if (c.contains("index_location")) {
      TW_ASSIGN(const std::string where, text(c, "index_location"));
      if (where != "start" && where != "end") return corrupt("'index_location' is neither 'start' nor 'end'");
      info.index_at_start = where == "start";
    }
    ZarrInfo index;
    index.dtype = ir::DType::kUInt64;
    const value *codecs = c.if_contains("codecs"), *index_codecs = c.if_contains("index_codecs");
    if (codecs == nullptr || !codecs->is_array()) return corrupt("no list 'codecs' of sharding_indexed");
    if (index_codecs == nullptr || !index_codecs->is_array()) return corrupt("no list 'index_codecs'");
    TW_TRY(codecs_of(index_codecs->get_array(), false, index));
    if (index.big_endian || !index.order.empty() || index.compressor.kind != Compression::kNone)
      return unsupported("an index that is not little-endian bytes");
    info.index_crc32c = index.crc32c;
    return codecs_of(codecs->get_array(), false, info);
  }

  Status compressor_of(const std::string& name, const object& c, Compressor& out) const {
    if (name == "gzip" || name == "zlib") {
      out.kind = name == "gzip" ? Compression::kGzip : Compression::kZlib;
      TW_ASSIGN(const std::int64_t level, integer_or(c, "level", 5));
      out.level = static_cast<int>(std::clamp<std::int64_t>(level, -1, 10));
    } else if (name == "zstd") {
      out.kind = Compression::kZstd;
      TW_ASSIGN(const std::int64_t level, integer_or(c, "level", 0));
      out.level = static_cast<int>(std::clamp<std::int64_t>(level, -131'073, 23));
      if (const value* v = c.if_contains("checksum"); v != nullptr && v->is_bool())
        out.checksum = v->get_bool();
    } else if (name == "blosc") {
      out.kind = Compression::kBlosc;
      TW_ASSIGN(out.cname, text(c, "cname"));
      TW_ASSIGN(const std::int64_t level, integer_or(c, "clevel", 5));
      out.level = static_cast<int>(std::clamp<std::int64_t>(level, -1, 10));
      const value* shuffle = c.if_contains("shuffle");
      if (shuffle != nullptr && shuffle->is_int64())
        out.shuffle = static_cast<int>(std::clamp<std::int64_t>(shuffle->get_int64(), -1, 2));
      else if (shuffle != nullptr && shuffle->is_string())
        out.shuffle = shuffle->get_string() == "bitshuffle" ? 2 : shuffle->get_string() == "shuffle" ? 1 : 0;
      if (out.shuffle < 0) out.shuffle = 1;  // "automatic": matters to writers only
    } else {
      return unsupported("codec '" + json::utf8(name).substr(0, 60) + "'");
    }
    return {};
  }

  Status parse_fill(const object& root, ZarrInfo& info) const {
    const value* v = root.if_contains("fill_value");
    if (v == nullptr) return info.version == 2 ? Status() : corrupt("no 'fill_value'");
    if (v->is_null() && info.version == 2) return {};
    if (read_fill(*v, info.dtype, info.fill)) return {};
    return corrupt("'fill_value' " + shown(*v) + " is no " + std::string(ir::name_of(info.dtype)));
  }

  std::string file_;
};

json::array list_of(const ir::Shape& shape) {
  json::array out;
  for (const std::int64_t extent : shape) out.push_back(extent);
  return out;
}

value compressor_value(const ZarrInfo& info, bool version2) {
  const Compressor& c = info.compressor;
  static const char* const kNames[] = {"", "gzip", "zlib", "zstd", "blosc"};
  static const char* const kShuffles[] = {"noshuffle", "shuffle", "bitshuffle"};
  object o;
  if (c.kind == Compression::kBlosc) {
    o["cname"] = c.cname;
    o["clevel"] = c.level;
    o["blocksize"] = 0;
    if (version2) {
      o["shuffle"] = c.shuffle;
    } else {
      o["shuffle"] = kShuffles[c.shuffle];
      o["typesize"] = ir::size_of(info.dtype);
    }
  } else {
    o["level"] = c.level;
    if (c.kind == Compression::kZstd && (!version2 || c.checksum)) o["checksum"] = c.checksum;
  }
  const char* name = kNames[static_cast<int>(c.kind)];
  if (version2) {
    o["id"] = name;
    return o;
  }
  return object{{"name", name}, {"configuration", o}};
}

json::array codecs_value(const ZarrInfo& info) {
  json::array out;
  if (!info.order.empty()) {
    json::array order;
    for (const int d : info.order) order.push_back(d);
    out.push_back(object{{"name", "transpose"}, {"configuration", object{{"order", order}}}});
  }
  object bytes{{"name", "bytes"}};
  if (ir::size_of(info.dtype) > 1)
    bytes["configuration"] = object{{"endian", info.big_endian ? "big" : "little"}};
  out.push_back(bytes);
  if (info.compressor.kind != Compression::kNone) out.push_back(compressor_value(info, false));
  if (info.crc32c) out.push_back(object{{"name", "crc32c"}});
  return out;
}

std::string version2_text(const ZarrInfo& info) {
  std::string code(ir::npy_code(info.dtype));
  if (info.big_endian) code.front() = '>';
  object root{{"zarr_format", 2},
              {"shape", list_of(info.shape)},
              {"chunks", list_of(info.chunk)},
              {"dtype", code},
              {"order", info.order.empty() ? "C" : "F"},
              {"fill_value", fill_value(info.dtype, info.fill)},
              {"filters", nullptr},
              {"dimension_separator", std::string(1, info.separator)}};
  root["compressor"] =
      info.compressor.kind == Compression::kNone ? value(nullptr) : compressor_value(info, true);
  return boost::json::serialize(root);
}

}  // namespace

Result<ZarrInfo> parse_zarr(std::string_view text, std::string_view file) { return Reader(file).parse(text); }

std::string zarr_metadata_file(const std::string& folder, const ZarrInfo& info) {
  return folder + (info.version == 2 ? "/.zarray" : "/zarr.json");
}

std::string zarr_metadata(const ZarrInfo& info) {
  if (info.version == 2) return version2_text(info);
  json::array codecs = codecs_value(info);
  if (!info.inner.empty()) {
    json::array index{object{{"name", "bytes"}, {"configuration", object{{"endian", "little"}}}}};
    if (info.index_crc32c) index.push_back(object{{"name", "crc32c"}});
    codecs = {object{{"name", "sharding_indexed"},
                     {"configuration", object{{"chunk_shape", list_of(info.inner)},
                                              {"codecs", codecs},
                                              {"index_codecs", index},
                                              {"index_location", info.index_at_start ? "start" : "end"}}}}};
  }
  const object root{{"zarr_format", 3},
                    {"node_type", "array"},
                    {"shape", list_of(info.shape)},
                    {"data_type", ir::name_of(info.dtype)},
                    {"chunk_grid", object{{"name", "regular"},
                                          {"configuration", object{{"chunk_shape", list_of(info.chunk)}}}}},
                    {"chunk_key_encoding",
                     object{{"name", info.c_keys ? "default" : "v2"},
                            {"configuration", object{{"separator", std::string(1, info.separator)}}}}},
                    {"fill_value", fill_value(info.dtype, info.fill)},
                    {"codecs", codecs},
                    {"attributes", object{}}};
  return boost::json::serialize(root);
}

Status check_zarr(const ZarrInfo& info, std::string_view name) {
  const std::string file(name);
  const auto wrong = [&](const std::string& why) { return error(Errc::kCorruptData, file + ": " + why); };
  if (ir::npy_code(info.dtype).empty())
    return error(Errc::kUnsupported, file + ": Zarr has no dtype " + std::string(ir::name_of(info.dtype)));
  const auto elements = ir::checked_volume(std::span(info.shape.data(), info.shape.size()));
  const auto item = static_cast<std::int64_t>(ir::size_of(info.dtype));
  if (!elements || *elements > std::numeric_limits<std::int64_t>::max() / item)
    return error(Errc::kOutOfRange, file + ": shape " + ir::to_string(info.shape) + " cannot be");
  const auto fits = [&](const ir::Shape& chunk) {
    if (chunk.size() != info.shape.size()) return false;
    for (const std::int64_t extent : chunk)
      if (extent < 1) return false;
    const auto volume = ir::checked_volume(std::span(chunk.data(), chunk.size()));
    return volume && *volume <= std::numeric_limits<std::int64_t>::max() / item;
  };
  if (!fits(info.chunk) || (!info.inner.empty() && !fits(info.inner)))
    return wrong("chunks of " + ir::to_string(info.chunk) + " do not cut shape " + ir::to_string(info.shape));
  for (std::size_t d = 0; d < info.inner.size(); ++d) {
    if (info.chunk[d] % info.inner[d] != 0)
      return wrong("shards of " + ir::to_string(info.chunk) + " are not whole chunks of " +
                   ir::to_string(info.inner));
  }
  if (!info.order.empty()) {
    ir::PerDim<int> sorted = info.order;
    std::sort(sorted.begin(), sorted.end());
    for (std::size_t d = 0; d < sorted.size(); ++d)
      if (sorted[d] != static_cast<int>(d)) return wrong("the order of a transpose names no dimensions");
    if (sorted.size() != info.shape.size()) return wrong("the order of a transpose has another rank");
  }
  const Compressor& c = info.compressor;
  const bool plain = c.kind == Compression::kNone && info.inner.empty() && info.order.empty() && !info.crc32c;
  const std::int64_t most = c.kind == Compression::kBlosc ? kMaxZarrChunkBytes - 64 : kMaxZarrChunkBytes;
  if (!plain && ir::volume(info.unit()) > most / item)
    return error(Errc::kLimitExceeded, file + ": chunks of " + ir::to_string(info.unit()) +
                                           " are larger than " + std::to_string(most) + " bytes");
  static const std::string_view kInner[] = {"lz4", "lz4hc", "blosclz", "zlib", "zstd", "snappy"};
  if (c.kind == Compression::kBlosc &&
      std::find(std::begin(kInner), std::end(kInner), c.cname) == std::end(kInner))
    return wrong("blosc with '" + json::utf8(c.cname).substr(0, 60) + "'");
  const bool leveled =
      c.kind == Compression::kZstd ? c.level >= -131'072 && c.level <= 22 : c.level >= -1 && c.level <= 9;
  if (!leveled || c.shuffle < 0 || c.shuffle > 2)
    return error(Errc::kInvalidArgument, file + ": compression level " + std::to_string(c.level));
  return {};
}

}  // namespace tilewise::io
