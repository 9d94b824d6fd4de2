// exp and tanh on vectors. P. T. P. Tang's table-driven exponential (ACM TOMS 15, 1989) with the result kept in two parts, so
// that exp(x) - 1 has all its digits too (as in his expm1, TOMS 18, 1992). Polynomials were interpolated at Chebyshev nodes. Wants
// FMA. Include after hwy/highway.h inside foreach_target files.
#if defined(TILEWISE_EXPONENTIAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEWISE_EXPONENTIAL_INL_H_
#undef TILEWISE_EXPONENTIAL_INL_H_
#else
#define TILEWISE_EXPONENTIAL_INL_H_
#endif
#include <hwy/highway.h>

#include <bit>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::map {
namespace HWY_NAMESPACE {

// 2^(j / 16), rounded, with j taken from its exponent; and what rounding left out, in parts of it.
alignas(64) constexpr double kPowers[16] = {std::bit_cast<double>(std::uint64_t{0x3ff0000000000000}),
                                            std::bit_cast<double>(std::uint64_t{0x3fefb5586cf9890f}),
                                            std::bit_cast<double>(std::uint64_t{0x3fef72b83c7d517b}),
                                            std::bit_cast<double>(std::uint64_t{0x3fef387a6e756238}),
                                            std::bit_cast<double>(std::uint64_t{0x3fef06fe0a31b715}),
                                            std::bit_cast<double>(std::uint64_t{0x3feedea64c123422}),
                                            std::bit_cast<double>(std::uint64_t{0x3feebfdad5362a27}),
                                            std::bit_cast<double>(std::uint64_t{0x3feeab07dd485429}),
                                            std::bit_cast<double>(std::uint64_t{0x3feea09e667f3bcd}),
                                            std::bit_cast<double>(std::uint64_t{0x3feea11473eb0187}),
                                            std::bit_cast<double>(std::uint64_t{0x3feeace5422aa0db}),
                                            std::bit_cast<double>(std::uint64_t{0x3feec49182a3f090}),
                                            std::bit_cast<double>(std::uint64_t{0x3feee89f995ad3ad}),
                                            std::bit_cast<double>(std::uint64_t{0x3fef199bdd85529c}),
                                            std::bit_cast<double>(std::uint64_t{0x3fef5818dcfba487}),
                                            std::bit_cast<double>(std::uint64_t{0x3fefa4afa2a490da})};
alignas(64) constexpr double kPowerRest[16] = {0,
                                               0x1.79aa65d837b6dp-54,
                                               -0x1.01b15eaa59348p-55,
                                               0x1.68efde3a8a894p-54,
                                               0x1.34d754db0abb6p-55,
                                               0x1.59f48a72a4c6dp-55,
                                               0x1.690cebb7aafb0p-56,
                                               0x1.063e1e21c5409p-54,
                                               -0x1.3b3efbf5e2228p-54,
                                               -0x1.b32dcb94da51dp-56,
                                               0x1.db72fc1f0eab4p-55,
                                               0x1.1affc2b91ce27p-56,
                                               0x1.c1a7792cb3387p-55,
                                               0x1.36eae30af0cb3p-56,
                                               0x1.4a385a63d07a7p-56,
                                               -0x1.ff7128fd391f0p-55};

// table[index % 16] of each lane.
template <class D, class I>
HWY_INLINE auto look_up(D d, const hwy::HWY_NAMESPACE::TFromD<D>* numbers, I index) {
  namespace hn = hwy::HWY_NAMESPACE;
  using V [[maybe_unused]] = decltype(hn::Zero(d));
  using T [[maybe_unused]] = hn::TFromD<D>;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(T) == 4) {
    return V{_mm512_permutexvar_ps(index.raw, hn::Load(d, numbers).raw)};
  } else {
    const V low = hn::Load(d, numbers), high = hn::Load(d, numbers + 8);
    return V{_mm512_permutex2var_pd(low.raw, index.raw, high.raw)};
  }
#else
#if HWY_TARGET == HWY_AVX2
  if constexpr (sizeof(T) == 4) {
    const V low{_mm256_permutevar8x32_ps(hn::Load(d, numbers).raw, index.raw)};
    const V high{_mm256_permutevar8x32_ps(hn::Load(d, numbers + 8).raw, index.raw)};
    return V{_mm256_blendv_ps(low.raw, high.raw, hn::BitCast(d, hn::ShiftLeft<28>(index)).raw)};
  }
#endif
  const hn::RebindToSigned<D> di;
  return hn::GatherIndex(d, numbers, hn::And(index, hn::Set(di, 15)));
#endif
}

template <class V, class I> struct ExpParts {
  V scale, rest, lost;
  I n;
};
// exp(x) = 2^(n / 16) * (1 + rest + lost), |rest| < 0.022, for |x| <= 700: `scale` is that power rounded, `lost` what
// rounding took from `rest`.
template <class D, class V> HWY_INLINE auto exp_parts(D d, V x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  const auto c = [&](double value) { return hn::Set(d, value); };
  const V shift =
      c(0x1.8p52);  // its sum with a small number is rounded to a whole one, which is in the low bits
  const V shifted = hn::MulAdd(x, c(0x1.71547652b82fep+4), shift);
  const auto n = hn::BitCast(di, shifted);
  const V whole = hn::Sub(shifted, shift);
  V r = hn::NegMulAdd(whole, c(0x1.62e42fefa39efp-5), x);
  r = hn::NegMulAdd(whole, c(0x1.abc9e3b39803fp-60), r);
  const V rr = hn::Mul(r, r);
  const V low = hn::MulAdd(r, c(0x1.5555555555556p-3), c(0x1.0000000000001p-1));
  const V middle = hn::MulAdd(r, c(0x1.11111110e0d94p-7), c(0x1.55555554e8d7bp-5));
  const V high = hn::MulAdd(r, c(0x1.a01b0cb76698bp-13), c(0x1.6c17ede661f5cp-10));
  const V curve = hn::MulAdd(rr, hn::MulAdd(rr, high, middle), low);
  const V rest = hn::MulAdd(rr, curve, r), lost = hn::MulAdd(rr, curve, hn::Sub(r, rest));
  const auto bits = hn::Add(hn::BitCast(di, look_up(d, kPowers, n)), hn::ShiftLeft<48>(n));
  return ExpParts<V, decltype(hn::Zero(di))>{hn::BitCast(d, bits), rest, lost, n};
}

struct FastExp {
  template <class D, class V> static HWY_INLINE V vec(D d, V x) {
    const auto parts = exp_parts(d, x);
    return hwy::HWY_NAMESPACE::MulAdd(parts.scale, parts.rest, parts.scale);
  }
};

// tanh(c + u) for c = 0, 154/256, 2 * 154/256 ... and |u| <= 77/256: coefficients of 1, u, u^2 ... of each polynomial; those
// about 0 are of odd powers alone.
constexpr float kTanhStep = 154.0f / 256, kTanhEnd = 9.25f;  // tanh(9.25f) is 1
alignas(64) constexpr float kTanh[8][16] = {
    {0, 0x1.1389c6p-1f, 0x1.ab5164p-1f, 0x1.e5031ap-1f, 0x1.f7be98p-1f, 0x1.fd81d8p-1f, 0x1.ff401p-1f,
     0x1.ffc658p-1f, 0x1.ffeebp-1f, 0x1.fffacep-1f, 0x1.fffe7p-1f, 0x1.ffff88p-1f, 0x1.ffffdcp-1f,
     0x1.fffff6p-1f, 0x1.fffffcp-1f, 0x1p+0f},
    {0x1p+0f, 0x1.6bb75cp-1f, 0x1.36b764p-2f, 0x1.a46cfap-4f, 0x1.060baap-5f, 0x1.3e4d74p-7f, 0x1.7f97cp-9f,
     0x1.cd2c98p-11f, 0x1.150644p-12f, 0x1.4cbdfap-14f, 0x1.8fa3e8p-16f, 0x1.dffaa4p-18f, 0x1.203b8p-19f,
     0x1.5a2c2ap-21f, 0x1.9fc26cp-23f, 0x1.f355a4p-25f},
    {0, -0x1.8779cep-2f, -0x1.03536ep-2f, -0x1.8e43a2p-4f, -0x1.01d1fap-5f, -0x1.3cc0bep-7f, -0x1.7f08p-9f,
     -0x1.ccf8bap-11f, -0x1.14fcfp-12f, -0x1.4cbaa6p-14f, -0x1.8fa2cp-16f, -0x1.dffa46p-18f, -0x1.203b76p-19f,
     -0x1.5a2c3p-21f, -0x1.9fc27ap-23f, -0x1.f355b6p-25f},
    {-0x1.555458p-2f, -0x1.fcd7c6p-6f, 0x1.c37374p-4f, 0x1.da4282p-5f, 0x1.4ca11cp-6f, 0x1.a23832p-8f,
     0x1.fd363ep-10f, 0x1.330b3ap-11f, 0x1.71383cp-13f, 0x1.bb9a78p-15f, 0x1.0a6ad8p-16f, 0x1.3ffb9p-18f,
     0x1.804f08p-20f, 0x1.cd9022p-22f, 0x1.152c46p-23f, 0x1.4ce3c6p-25f},
    {0, 0x1.2740dap-3f, -0x1.ef04bp-8f, -0x1.6fa1cap-6f, -0x1.36cbep-7f, -0x1.9a0342p-9f, -0x1.fa2ef2p-11f,
     -0x1.32798cp-12f, -0x1.70fd24p-14f, -0x1.bb7d56p-16f, -0x1.0a60e6p-17f, -0x1.3ff256p-19f,
     -0x1.8044fp-21f, -0x1.cd845ap-23f, -0x1.152544p-24f, -0x1.4cdb6p-26f},
    {0x1.10a326p-3f, -0x1.a493p-5f, -0x1.84449cp-6f, 0x1.15743ep-8f, 0x1.ad4422p-9f, 0x1.3b07c6p-10f,
     0x1.90326cp-12f, 0x1.e8a72ap-14f, 0x1.26e452p-15f, 0x1.62b1dp-17f, 0x1.aa2f02p-19f, 0x1.ffec1ep-21f,
     0x1.336d1cp-22f, 0x1.713a92p-24f, 0x1.bb73b4p-26f, 0x1.0a4c1p-27f},
    {0, -0x1.df581cp-6f, 0x1.0b9f28p-6f, 0x1.7b32a4p-10f, -0x1.877ad8p-11f, -0x1.8433acp-12f,
     -0x1.075c18p-13f, -0x1.47811ap-15f, -0x1.8d697p-17f, -0x1.dec56cp-19f, -0x1.1fc5a4p-20f,
     -0x1.59b716p-22f, -0x1.9f3ea2p-24f, -0x1.f2ba8ap-26f, -0x1.2b7e46p-27f, -0x1.67b292p-29f},
    {-0x1.9b421p-5f, 0x1.d77ccp-6f, -0x1.f4f622p-9f, -0x1.a7ccf2p-10f, 0x1.04fbaep-15f, 0x1.6b5df6p-14f,
     0x1.1d4638p-15f, 0x1.6fcca8p-17f, 0x1.c2ec6ep-19f, 0x1.107252p-20f, 0x1.47d042p-22f, 0x1.89ed28p-24f,
     0x1.d930d2p-26f, 0x1.1c2b58p-27f, 0x1.554c28p-29f, 0x1.99e7fcp-31f},
};

// As (exp(2x) - 1) / (exp(2x) + 1) with what roundings lost, and by polynomials.
struct FastTanh {
  template <class D, class V> static HWY_INLINE V of_doubles(D d, V x) {  // 0 <= x <= 20
    namespace hn = hwy::HWY_NAMESPACE;
    const auto parts = exp_parts(d, hn::Add(x, x));
    const V one = hn::Set(d, 1);
    const V below = hn::Sub(parts.scale, one);
    const V m = hn::MulAdd(parts.scale, parts.rest, below);
    const V lost = hn::Add(parts.lost, look_up(d, kPowerRest, parts.n));
    const V m_lost = hn::MulAdd(parts.scale, lost, hn::MulAdd(parts.scale, parts.rest, hn::Sub(below, m)));
    const V two = hn::Set(d, 2), sum = hn::Add(m, two);
    const V sum_lost = hn::Add(hn::Add(hn::Sub(two, sum), m), m_lost);
    const V t = hn::Div(m, sum);
    const V left = hn::NegMulAdd(t, sum_lost, hn::Add(hn::NegMulAdd(t, sum, m), m_lost));
    const V half = hn::Set(d, 0.5);
    // 1 / sum is (1 - t) / 2: near 1 that has no digits left, and nothing else is lost there.
    const V slope = hn::IfThenElseZero(hn::Lt(t, hn::Set(d, 0.99)), hn::NegMulAdd(half, t, half));
    return hn::MulAdd(left, slope, t);
  }
  template <class D, class V> static HWY_INLINE V of_floats(D d, V x) {  // 0 <= x <= kTanhEnd
    namespace hn = hwy::HWY_NAMESPACE;
    const hn::RebindToSigned<D> di;
    const V shift = hn::Set(d, 0x1.8p23f), shifted = hn::MulAdd(x, hn::Set(d, 1 / kTanhStep), shift);
    const auto j = hn::BitCast(di, shifted);
    const V u = hn::NegMulAdd(hn::Sub(shifted, shift), hn::Set(d, kTanhStep), x);  // exact
    V sum = look_up(d, kTanh[7], j);
    for (int k = 6; k >= 0; --k) sum = hn::MulAdd(sum, u, look_up(d, kTanh[k], j));
    return sum;
  }
  template <class D, class V> static HWY_INLINE V vec(D d, V x) {
    namespace hn = hwy::HWY_NAMESPACE;
    constexpr bool kDouble = sizeof(hn::TFromD<D>) == 8;
    const V size = hn::Abs(x), end = hn::Set(d, kDouble ? 20 : kTanhEnd);
    const V within = hn::IfThenElse(hn::Gt(size, end), end, size);  // not Min: NaN stays
    V t;
    if constexpr (kDouble)
      t = of_doubles(d, within);
    else
      t = of_floats(d, within);
    return hn::CopySign(t, x);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::map
HWY_AFTER_NAMESPACE();
#endif
