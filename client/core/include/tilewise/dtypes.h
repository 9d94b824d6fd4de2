// Questions about dtypes, as in the Array API standard. finfo() and iinfo() give nothing for dtypes of other kinds.
#pragma once
#include <tilewise/array.h>

#include <string_view>

namespace tilewise {

using ir::finfo;
using ir::FloatInfo;
using ir::iinfo;
using ir::IntegerInfo;

inline std::optional<FloatInfo> finfo(const Array& a) { return ir::finfo(a.dtype()); }
inline std::optional<IntegerInfo> iinfo(const Array& a) { return ir::iinfo(a.dtype()); }

// A dtype, or one of the standard's words for several: "bool", "signed integer", "unsigned integer", "integral",
// "real floating" (bfloat16 too), "complex floating", "numeric".
class DTypeKind {
 public:
  DTypeKind(DType dtype);
  DTypeKind(const char* kind) : DTypeKind(std::string_view(kind)) {}
  DTypeKind(std::string_view kind);  // kInvalidArgument for another word

  bool has(DType dtype) const { return (dtypes_ >> static_cast<int>(dtype) & 1u) != 0; }

 private:
  std::uint32_t dtypes_ = 0;  // bit t: DType(t)
};
inline bool isdtype(DType dtype, const DTypeKind& kind) { return kind.has(dtype); }
bool isdtype(DType dtype, std::initializer_list<DTypeKind> kinds);  // any of them

// Does the standard's promotion of the two give `to`? Not so between kinds that it leaves undefined (an integer to a float, bool
// to a number): astype() casts these too.
bool can_cast(DType from, DType to);
inline bool can_cast(const Array& from, DType to) { return can_cast(from.dtype(), to); }

// What arrays of these dtypes meet in, by the rules that arithmetic goes by (ir/tape_builder.h); numbers of the host language adopt
// that dtype where their kind permits. kInvalidArgument without an array or a dtype.
class TypeTerm {
 public:
  TypeTerm(DType dtype) : dtype_(dtype) {}
  TypeTerm(const Array& array) : dtype_(array.dtype()) {}
  template <class T>
  requires(!std::same_as<T, DType> && !std::same_as<T, Array> && std::convertible_to<T, Scalar>)
      TypeTerm(const T& value)
      : scalar_(Scalar(value).value().kind) {}

  const std::optional<DType>& dtype() const { return dtype_; }
  ir::ScalarKind scalar() const { return scalar_; }  // where there is no dtype

 private:
  std::optional<DType> dtype_;
  ir::ScalarKind scalar_ = ir::ScalarKind::kInt;
};
DType result_type(std::initializer_list<TypeTerm> terms);

}  // namespace tilewise
