// How something ended, as processes tell each other.
#pragma once
#include <tilewise/base/result.h>

#include <string>

namespace tilewise::msg {

// kOk means "no error".
struct Outcome {
  Errc code = Errc::kOk;
  std::string message;
  bool ok() const { return code == Errc::kOk; }
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

}  // namespace tilewise::msg
