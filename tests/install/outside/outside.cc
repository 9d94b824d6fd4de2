// A project that knows Tilewise only as installed: headers and libraries must be complete and agree.
#include <tilewise/base/result.h>
#include <tilewise/ir/shape.h>

int main() {
  const tilewise::ir::Shape shape{3, 4};
  const auto volume = tilewise::ir::checked_volume(shape);
  return volume && *volume == 12 && tilewise::name_of(tilewise::Errc::kOk) == "ok" ? 0 : 1;
}
