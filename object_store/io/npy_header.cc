// The header is a Python literal: {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }. It is read by a parser
// for exactly that, so that no file can make us evaluate, recurse or allocate.
// Format: numpy/lib/format.py, "Format Version 1.0" to "3.0".
#include <tilewise/io/npy.h>

#include "file_box.h"

#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

namespace tilewise::io {

namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);

// At most 60 characters of a file's text, safe to print.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, 60)) out += c >= ' ' && c < 127 ? c : '?';
  return out + (text.size() > 60 ? "...\"" : "\"");
}

class HeaderParser {
 public:
  HeaderParser(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  Result<NpyInfo> parse() {
    NpyInfo info;
    bool have_descr = false, have_order = false, have_shape = false;
    if (!take('{')) return wrong("does not start a dictionary");
    while (!take('}')) {
      TW_ASSIGN(const std::string_view key, string());
      if (!take(':')) return wrong("':' expected after " + quoted(key));
      if (key == "descr" && !std::exchange(have_descr, true)) {
        TW_ASSIGN(info.dtype, descr());
      } else if (key == "fortran_order" && !std::exchange(have_order, true)) {
        TW_ASSIGN(info.fortran_order, boolean());
      } else if (key == "shape" && !std::exchange(have_shape, true)) {
        TW_ASSIGN(info.shape, shape());
      } else {
        return wrong("unexpected or repeated key " + quoted(key));
      }
      if (!take(',') && peek() != '}') return wrong("',' or '}' expected");
    }
    skip_space();
    if (at_ != text_.size()) return wrong("text after the dictionary");
    if (!have_descr) return wrong("no 'descr'");
    if (!have_order) return wrong("no 'fortran_order'");
    if (!have_shape) return wrong("no 'shape'");
    return info;
  }

 private:
  Error wrong(const std::string& what) const {
    return error(Errc::kCorruptData, std::string(file_) + ": malformed .npy header: " + what +
                                         " at character " + std::to_string(at_) + " of " + quoted(text_));
  }
  Error unsupported(const std::string& what) const {
    return error(Errc::kUnsupported, std::string(file_) + ": " + what);
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char c) {
    if (peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    skip_space();
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Result<std::string_view> string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return wrong("a string expected");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return wrong("a string does not end");
    const std::string_view s = text_.substr(at_ + 1, end - at_ - 1);
    if (s.find('\\') != std::string_view::npos) return wrong("an escape in a string");
    at_ = end + 1;
    return s;
  }

  Result<bool> boolean() {
    if (take("True")) return true;
    if (take("False")) return false;
    return wrong("True or False expected");
  }

  Result<ir::Shape> shape() {
    ir::Shape shape;
    if (!take('(')) return wrong("a tuple expected");
    while (!take(')')) {
      const bool negative = take('-');
      if (!std::isdigit(static_cast<unsigned char>(peek()))) return wrong("an extent expected");
      std::int64_t extent = 0;
      const auto [end, code] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), extent);
      if (code != std::errc()) {
        return error(Errc::kOutOfRange, std::string(file_) + ": an extent past 2^63 in " + quoted(text_));
      }
      at_ = static_cast<std::size_t>(end - text_.data());
      if (negative) return wrong("a negative extent");
      (void)take('L');  // long integers as Python 2 wrote them
      if (shape.size() == shape.capacity()) {
        return error(Errc::kLimitExceeded,
                     std::string(file_) + ": more than " + std::to_string(limits::kMaxRank) + " dimensions");
      }
      shape.push_back(extent);
      if (!take(',') && peek() != ')') return wrong("',' or ')' expected");
    }
    return shape;
  }

  Result<ir::DType> descr() {
    if (peek() == '[' || peek() == '(') return unsupported("structured dtypes cannot be read");
    TW_ASSIGN(const std::string_view code, string());
    const bool typed = !code.empty() && std::string_view("<=|").find(code[0]) != std::string_view::npos;
    if (const auto dtype = ir::dtype_named(code); dtype && typed) return *dtype;
    return refuse_dtype(code);
  }

  // Says what the dtype is, as far as we know it.
  Error refuse_dtype(std::string_view code) const {
    struct Known {
      std::string_view code, name;
    };
    static constexpr std::array<Known, 18> kKnown = {{{"b1", "bool"},
                                                      {"i1", "int8"},
                                                      {"i2", "int16"},
                                                      {"i4", "int32"},
                                                      {"i8", "int64"},
                                                      {"u1", "uint8"},
                                                      {"u2", "uint16"},
                                                      {"u4", "uint32"},
                                                      {"u8", "uint64"},
                                                      {"f2", "float16"},
                                                      {"f4", "float32"},
                                                      {"f8", "float64"},
                                                      {"f12", "longdouble"},
                                                      {"f16", "longdouble"},
                                                      {"c8", "complex64"},
                                                      {"c16", "complex128"},
                                                      {"c24", "clongdouble"},
                                                      {"c32", "clongdouble"}}};
    constexpr std::string_view kSupported =
        "; little-endian bools, integers, floats and complex numbers of the Array API standard can";
    const bool has_order = !code.empty() && std::string_view("<>=|").find(code[0]) != std::string_view::npos;
    const std::string_view bare = has_order ? code.substr(1) : code;
    for (const Known& known : kKnown) {
      if (bare != known.code) continue;
      const std::string order = has_order && code[0] == '>' ? "big-endian " : "";
      return unsupported("dtype " + order + std::string(known.name) + " cannot be read" +
                         std::string(kSupported));
    }
    switch (bare.empty() ? '\0' : bare[0]) {
      case 'O': return unsupported("an object array holds Python pickles and is refused");
      case 'S':
      case 'a':
      case 'U': return unsupported("string dtype " + quoted(code) + " cannot be read");
      case 'M':
      case 'm': return unsupported("date and time dtype " + quoted(code) + " cannot be read");
      case 'V': return unsupported("void dtype " + quoted(code) + " cannot be read");
      default: return wrong("unknown dtype " + quoted(code));
    }
  }

  std::string_view text_, file_;
  std::size_t at_ = 0;
};

}  // namespace

Result<std::int64_t> npy_data_bytes(ir::DType dtype, const ir::Shape& shape, std::string_view file) {
  const auto too_large = [&] {
    return error(Errc::kOutOfRange, std::string(file) + ": an array of shape " + ir::to_string(shape) +
                                        " and dtype " + std::string(ir::name_of(dtype)) +
                                        " is larger than 2^63 bytes");
  };
  const auto volume = ir::checked_volume(std::span(shape.data(), shape.size()));
  if (!volume) return volume.error().code == Errc::kOutOfRange ? too_large() : volume.error();
  const auto item = static_cast<std::int64_t>(ir::size_of(dtype));
  // Room is left for the header, so that no offset in the file overflows.
  if (*volume > (std::numeric_limits<std::int64_t>::max() - (std::int64_t{1} << 20)) / item)
    return too_large();
  return *volume * item;
}

Result<NpyInfo> parse_npy_header(std::string_view head, std::string_view file) {
  const auto corrupt = [&](const std::string& what) {
    return error(Errc::kCorruptData, std::string(file) + ": " + what);
  };
  const auto byte = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(head[i]));
  };
  if (!head.starts_with(kMagic)) {
    return corrupt(kMagic.starts_with(head) ? "too short for an .npy file" : "not an .npy file");
  }
  if (head.size() < 8) return corrupt("too short for an .npy file");
  const std::size_t major = byte(6), minor = byte(7);
  if (major < 1 || major > 3 || minor != 0) {
    return error(Errc::kUnsupported, std::string(file) + ": .npy format " + std::to_string(major) + "." +
                                         std::to_string(minor) + " is not known; 1.0, 2.0 and 3.0 are");
  }
  const std::size_t start = major == 1 ? 10 : 12;
  if (head.size() < start) return corrupt("the .npy header is truncated");
  std::size_t length = byte(8) | byte(9) << 8;
  if (major > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > kMaxNpyHeaderBytes) {
    return corrupt("an .npy header of " + std::to_string(length) + " bytes is not believed (at most " +
                   std::to_string(kMaxNpyHeaderBytes) + ")");
  }
  if (head.size() - start < length) {
    return corrupt("the .npy header is truncated: " + std::to_string(length) + " bytes announced, " +
                   std::to_string(head.size() - start) + " there");
  }
  TW_ASSIGN(NpyInfo info, HeaderParser(head.substr(start, length), file).parse());
  info.data_offset = static_cast<std::int64_t>(start + length);
  TW_ASSIGN(info.data_bytes, npy_data_bytes(info.dtype, info.shape, file));
  return info;
}

Result<std::string> npy_header(ir::DType dtype, const ir::Shape& shape) {
  TW_ASSIGN(const std::int64_t bytes, npy_data_bytes(dtype, shape, "npy header"));
  std::string text = "{'descr': '";
  const std::string_view code = ir::npy_code(dtype);
  if (code.empty())
    return error(Errc::kUnsupported, ".npy files have no dtype " + std::string(ir::name_of(dtype)));
  text += code;
  text += "', 'fortran_order': False, 'shape': " + ir::to_string(shape) + ", }";
  const std::size_t unpadded = 10 + text.size() + 1, multiple = bytes < kLargeNpyBytes ? 64 : 4096;
  text.append((multiple - unpadded % multiple) % multiple, ' ');
  text += '\n';
  std::string header(kMagic);
  header += {'\x01', '\x00', static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  return header + text;
}

Result<NpyInfo> npy_info(ir::DType dtype, const ir::Shape& shape) {
  TW_ASSIGN(const std::string header, npy_header(dtype, shape));
  return parse_npy_header(header, "npy header");
}

}  // namespace tilewise::io
