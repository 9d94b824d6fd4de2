// What the public API throws. Here, because too many dimensions are noticed where a shape is made.
#pragma once
#include <tilewise/base/result.h>

#include <stdexcept>
#include <string>

namespace tilewise {

// A user's mistake, thrown at the line that made it, or the typed end of a computation, thrown where it is waited for.
// The text starts with the name of the code and holds the shapes, dtypes, devices or paths concerned.
class ArrayError : public std::runtime_error {
 public:
  explicit ArrayError(const Error& error)
      : std::runtime_error(std::string(name_of(error.code)) + ": " + error.message), code_(error.code) {}
  ArrayError(Errc code, const std::string& message) : ArrayError(Error{code, message}) {}

  Errc code() const { return code_; }

 private:
  Errc code_;
};

}  // namespace tilewise
