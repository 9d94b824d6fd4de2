// A project that knows Tilewise only as installed: headers and libraries must be complete and agree.
#include <tilewise/kernels/plugin_abi.h>
#include <tilewise/tilewise.h>

int main() {
  auto session = tilewise::connect({.name = "outside"});
  const auto a = session.ones({30, 20}), b = session.ones({20, 10});
  return tilewise::sum(tilewise::matmul(a, b)).item<double>() == 30 * 20 * 10 ? 0 : 1;
}
