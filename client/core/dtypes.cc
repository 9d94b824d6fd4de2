#include <tilewise/dtypes.h>

#include "access.h"

namespace tilewise {
namespace {

std::uint32_t those(bool (*wanted)(DType)) {
  std::uint32_t out = 0;
  for (int t = 0; t < ir::kDTypeCount; ++t)
    if (wanted(static_cast<DType>(t))) out |= 1u << t;
  return out;
}

struct Named {
  std::string_view name;
  bool (*has)(DType);
};
constexpr Named kKinds[] = {
    {"bool", [](DType t) { return t == DType::kBool; }},
    {"signed integer", ir::is_signed_integer},
    {"unsigned integer", ir::is_unsigned_integer},
    {"integral", ir::is_integer},
    {"real floating", ir::is_floating},
    {"complex floating", ir::is_complex},
    {"numeric", [](DType t) { return t != DType::kBool; }},
};

}  // namespace

DTypeKind::DTypeKind(DType dtype) : dtypes_(1u << static_cast<int>(dtype)) {}

DTypeKind::DTypeKind(std::string_view kind) {
  for (const Named& named : kKinds)
    if (named.name == kind) dtypes_ = those(named.has);
  if (dtypes_ == 0)
    throw ArrayError(Errc::kInvalidArgument,
                     "isdtype: no kind of dtypes is called '" + std::string(kind) + "'");
}

bool isdtype(DType dtype, std::initializer_list<DTypeKind> kinds) {
  for (const DTypeKind& kind : kinds)
    if (kind.has(dtype)) return true;
  return false;
}

bool can_cast(DType from, DType to) { return ir::promote(from, to) == to; }

DType result_type(std::initializer_list<TypeTerm> terms) {
  std::optional<DType> common;
  for (const TypeTerm& t : terms)
    if (t.dtype()) common = common ? ir::common_dtype(*common, *t.dtype()) : *t.dtype();
  if (!common) throw ArrayError(Errc::kInvalidArgument, "result_type without an array or a dtype");
  for (const TypeTerm& t : terms)
    if (!t.dtype()) common = ir::scalar_dtype(*common, t.scalar());
  return *common;
}

}  // namespace tilewise
