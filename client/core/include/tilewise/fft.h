// Fourier transforms, as in the Array API standard's fft extension. `norm` says where 1 / n goes: "backward" (with the
// inverse), "forward", or "ortho" (its root with both). Lines along the axis are transformed whole: an axis that is cut is
// gathered into one block a line first, and the result is cut into blocks about as large as x's (1 MiB to 8 MiB, a line at least). A vector longer than a default block (8 MiB) whose length has a divisor near its
// root goes in four steps instead, so that no block holds it all. float32 and complex64 give complex64, others complex128 (or
// their real dtypes). Computed by FFTW, on GPUs by cuFFT; kNotFound from whatever computes, where workers have neither.
#pragma once
#include <tilewise/session.h>

#include <optional>
#include <string_view>

namespace tilewise::fft {

// Errors: kOutOfRange for axes; kInvalidArgument for lengths below 1, an unknown norm, and complex input where real is wanted;
// kLimitExceeded for lines longer than 2^31 - 1.
// n: the length of the transform; x is cut or filled up with zeros. Without: x's own.
Array fft(const Array& x, std::optional<std::int64_t> n = {}, int axis = -1,
          std::string_view norm = "backward");
Array ifft(const Array& x, std::optional<std::int64_t> n = {}, int axis = -1,
           std::string_view norm = "backward");
// Of real numbers: the first n / 2 + 1 elements, the others being their conjugates.
Array rfft(const Array& x, std::optional<std::int64_t> n = {}, int axis = -1,
           std::string_view norm = "backward");
// Back to n real numbers (without: 2 * (m - 1) of m) from such a half.
Array irfft(const Array& x, std::optional<std::int64_t> n = {}, int axis = -1,
            std::string_view norm = "backward");
// Of a conjugate-symmetric half to real numbers, and back.
Array hfft(const Array& x, std::optional<std::int64_t> n = {}, int axis = -1,
           std::string_view norm = "backward");
Array ihfft(const Array& x, std::optional<std::int64_t> n = {}, int axis = -1,
            std::string_view norm = "backward");

// Along several axes (all, without), one after another; `s`: their lengths, as n above.
Array fftn(const Array& x, const std::optional<std::vector<std::int64_t>>& s = {}, const Axes& axes = {},
           std::string_view norm = "backward");
Array ifftn(const Array& x, const std::optional<std::vector<std::int64_t>>& s = {}, const Axes& axes = {},
            std::string_view norm = "backward");
// Real along the last of the axes, complex along the others.
Array rfftn(const Array& x, const std::optional<std::vector<std::int64_t>>& s = {}, const Axes& axes = {},
            std::string_view norm = "backward");
Array irfftn(const Array& x, const std::optional<std::vector<std::int64_t>>& s = {}, const Axes& axes = {},
             std::string_view norm = "backward");

// Frequencies of a transform of n samples, d apart: cycles a unit. kInvalidArgument unless n > 0.
Array fftfreq(const Session& session, std::int64_t n, double d = 1, const CreateOptions& options = {});
Array rfftfreq(const Session& session, std::int64_t n, double d = 1, const CreateOptions& options = {});
// Frequency zero to the middle, and back.
Array fftshift(const Array& x, const Axes& axes = {});
Array ifftshift(const Array& x, const Axes& axes = {});

}  // namespace tilewise::fft
