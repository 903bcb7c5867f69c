// Vectors of sequences: lane l of every vector belongs to the l-th sequence of a block, so that no sequence's
// arithmetic depends on its neighbours, and one source serves SSE2, AVX2, AVX-512 and NEON.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "problem.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#ifndef PEEPHOLE_BYTES
#error "PEEPHOLE_BYTES: bytes in a vector register"
#endif

// A call would send its vectors through memory.
#define PEEPHOLE_INLINE __attribute__((always_inline)) inline

namespace peephole {
namespace PEEPHOLE_NAMESPACE {

template <class Real>
struct Lanes {
  static constexpr int width = PEEPHOLE_BYTES / sizeof(Real);
  typedef Real V __attribute__((vector_size(PEEPHOLE_BYTES), may_alias));
  using Int = std::conditional_t<sizeof(Real) == 4, int32_t, int64_t>;
  typedef Int M __attribute__((vector_size(PEEPHOLE_BYTES)));  // comparisons: all bits set where true
};

template <class Real> using Vector = typename Lanes<Real>::V;

template <class Real> inline Vector<Real> splat(Real value) { return value - Vector<Real>{}; }

// exp(x) = scale + scale * fraction: the scale is a power of two and the fraction is exp of the remainder, minus 1.
template <class Real>
struct Exponential {
  using V = Vector<Real>;
  V scale, fraction;

  PEEPHOLE_INLINE explicit Exponential(V x) {
    using L = Lanes<Real>;
    constexpr bool single = sizeof(Real) == 4;
    constexpr Real low = single ? Real(-87) : Real(-708), high = single ? Real(88) : Real(709);
    x = x < splat(low) ? splat(low) : x;  // written so that NaN stays NaN
    x = x > splat(high) ? splat(high) : x;
    constexpr Real magic = single ? Real(12582912) : Real(6755399441055744);  // 1.5 * 2^mantissa: rounds to integer
    const V shifted = x * Real(1.442695040888963407) + magic;
    const V n = shifted - magic;
    // ln 2 in two parts, the first exact in few bits.
    constexpr Real ln2_high = single ? Real(0.693359375) : Real(0.693147180369123816490);
    constexpr Real ln2_low = single ? Real(-2.12194440e-4) : Real(1.90821492927058770002e-10);
    const V r = (x - n * ln2_high) - n * ln2_low;
    typename L::M bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    typename L::M magic_bits;
    const V magic_vector = splat(magic);
    std::memcpy(&magic_bits, &magic_vector, sizeof magic_bits);
    constexpr int mantissa = single ? 23 : 52, offset = single ? 127 : 1023;
    bits = (bits - magic_bits + offset) << mantissa;
    std::memcpy(&scale, &bits, sizeof scale);
    fraction = series(r);
  }

  PEEPHOLE_INLINE static V series(V r) {  // exp(r) - 1 for |r| <= ln(2) / 2, by Taylor
    if constexpr (sizeof(Real) == 4) {
      V p = splat(Real(1.0 / 5040));
      p = p * r + Real(1.0 / 720);
      p = p * r + Real(1.0 / 120);
      p = p * r + Real(1.0 / 24);
      p = p * r + Real(1.0 / 6);
      p = p * r + Real(0.5);
      return p * (r * r) + r;
    } else {
      V p = splat(Real(1.0 / 6227020800.0));
      p = p * r + Real(1.0 / 479001600.0);
      p = p * r + Real(1.0 / 39916800.0);
      p = p * r + Real(1.0 / 3628800.0);
      p = p * r + Real(1.0 / 362880.0);
      p = p * r + Real(1.0 / 40320.0);
      p = p * r + Real(1.0 / 5040.0);
      p = p * r + Real(1.0 / 720.0);
      p = p * r + Real(1.0 / 120.0);
      p = p * r + Real(1.0 / 24.0);
      p = p * r + Real(1.0 / 6.0);
      p = p * r + Real(0.5);
      return p * (r * r) + r;
    }
  }
};

// 1 / x. With AVX-512 a division of floats takes as long as ten other operations: the processor's estimate to 14
// bits and a step of Newton's take four, and err by one unit in the last place.
template <class Real> PEEPHOLE_INLINE Vector<Real> reciprocal(Vector<Real> x) {
#if PEEPHOLE_BYTES == 64 && defined(__AVX512F__)
  if constexpr (sizeof(Real) == 4) {
    const __m512 estimate = _mm512_rcp14_ps(reinterpret_cast<__m512>(x));
    const Vector<Real> y = reinterpret_cast<Vector<Real>>(estimate);
    return y + y * (Real(1) - x * y);
  }
#endif
  return Real(1) / x;
}

template <class Real, int32_t Kind> PEEPHOLE_INLINE Vector<Real> activated(Vector<Real> a) {
  using V = Vector<Real>;
  if constexpr (Kind == SIGMOID) {
    const Exponential<Real> e(-a);
    return reciprocal<Real>(Real(1) + (e.scale + e.scale * e.fraction));
  } else if constexpr (Kind == TANH) {  // expm1(2a) / (expm1(2a) + 2) keeps its digits near 0
    constexpr Real end = sizeof(Real) == 4 ? Real(20) : Real(40);
    V x = a + a;
    x = x < splat(-end) ? splat(-end) : x;
    x = x > splat(end) ? splat(end) : x;
    const Exponential<Real> e(x);
    const V m = e.scale * e.fraction + (e.scale - Real(1));
    return m * reciprocal<Real>(m + Real(2));
  } else if constexpr (Kind == RELU) {
    return a < splat(Real(0)) ? splat(Real(0)) : a;
  } else if constexpr (Kind == HARD_SIGMOID) {
    V y = (a + Real(3)) * Real(1.0 / 6);
    y = y < splat(Real(0)) ? splat(Real(0)) : y;
    return y > splat(Real(1)) ? splat(Real(1)) : y;
  } else {
    return a;
  }
}

// Several at once, so that each waits for none of the others.
template <class Real, int Count> PEEPHOLE_INLINE void activate(int32_t kind, Vector<Real> (&a)[Count]) {
  const auto all = [&](auto kind) __attribute__((always_inline)) {
#pragma GCC unroll 16
    for (int k = 0; k < Count; ++k) a[k] = activated<Real, decltype(kind)::value>(a[k]);
  };
  switch (kind) {
    case SIGMOID: return all(std::integral_constant<int32_t, SIGMOID>{});
    case TANH: return all(std::integral_constant<int32_t, TANH>{});
    case RELU: return all(std::integral_constant<int32_t, RELU>{});
    case HARD_SIGMOID: return all(std::integral_constant<int32_t, HARD_SIGMOID>{});
  }
}

template <class Real> inline Vector<Real> activate(int32_t kind, Vector<Real> a) {
  Vector<Real> one[1] = {a};
  activate<Real, 1>(kind, one);
  return one[0];
}

// The derivative, from the activation's own value.
template <class Real> inline Vector<Real> slope(int32_t kind, Vector<Real> y) {
  using V = Vector<Real>;
  const V zero = splat(Real(0)), one = splat(Real(1));
  switch (kind) {
    case SIGMOID:
      return y * (one - y);
    case TANH:
      return one - y * y;
    case RELU:
      return y > zero ? one : zero;
    case HARD_SIGMOID:
      return ((y > zero) & (y < one)) ? splat(Real(1.0 / 6)) : zero;
    default:
      return one;
  }
}

// --- sums over lanes and transposition: shuffles within quarters of 16 bytes --------------------------------

#if defined(__clang__)
#define PEEPHOLE_SHUFFLE(Lanes_, a, b, at) __builtin_shufflevector(a, b, at(I)...)
#define PEEPHOLE_PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PEEPHOLE_SHUFFLE(Lanes_, a, b, at) __builtin_shuffle(a, b, typename Lanes_::M{at(I)...})
#define PEEPHOLE_PICK(a, b, ...) __builtin_shuffle(a, b, Order{__VA_ARGS__})
#endif

// Groups of `Group` numbers, in each quarter, of a and b by turns: the first half of both or the second.
template <class Real, int Group, bool Second, int... I>
inline Vector<Real> interleave(Vector<Real> a, Vector<Real> b, std::integer_sequence<int, I...>) {
  constexpr int quarter = 16 / sizeof(Real), width = Lanes<Real>::width;
  constexpr auto at = [](int k) constexpr {
    const int group = k % quarter / Group, from = group % 2 ? width : 0;
    return from + k / quarter * quarter + (group / 2 + (Second ? quarter / 2 / Group : 0)) * Group + k % Group;
  };
  return PEEPHOLE_SHUFFLE(Lanes<Real>, a, b, at);
}

template <class Real, int Group, bool Second>
inline Vector<Real> interleave(Vector<Real> a, Vector<Real> b) {
  return interleave<Real, Group, Second>(a, b, std::make_integer_sequence<int, Lanes<Real>::width>{});
}

// A square of 4 by 4 floats or 2 by 2 doubles, transposed.
template <class Real> inline void transpose_square(const Real *from, int64_t from_stride, Real *to, int64_t to_stride) {
  constexpr int side = 16 / sizeof(Real);
  typedef Real Row __attribute__((vector_size(16)));
  typedef typename Lanes<Real>::Int Order __attribute__((vector_size(16), unused));
  Row row[side];
  for (int r = 0; r < side; ++r) std::memcpy(&row[r], from + r * from_stride, sizeof row[r]);
  if constexpr (side == 4) {
    const Row low_01 = PEEPHOLE_PICK(row[0], row[1], 0, 4, 1, 5), high_01 = PEEPHOLE_PICK(row[0], row[1], 2, 6, 3, 7);
    const Row low_23 = PEEPHOLE_PICK(row[2], row[3], 0, 4, 1, 5), high_23 = PEEPHOLE_PICK(row[2], row[3], 2, 6, 3, 7);
    row[0] = PEEPHOLE_PICK(low_01, low_23, 0, 1, 4, 5);
    row[1] = PEEPHOLE_PICK(low_01, low_23, 2, 3, 6, 7);
    row[2] = PEEPHOLE_PICK(high_01, high_23, 0, 1, 4, 5);
    row[3] = PEEPHOLE_PICK(high_01, high_23, 2, 3, 6, 7);
  } else {
    const Row first = row[0];
    row[0] = PEEPHOLE_PICK(first, row[1], 0, 2);
    row[1] = PEEPHOLE_PICK(first, row[1], 1, 3);
  }
  for (int c = 0; c < side; ++c) std::memcpy(to + c * to_stride, &row[c], sizeof row[c]);
}

// to[k] += the sum over the lanes of v[k], k = 0 ... 3.
template <class Real> inline void add_sums(const Vector<Real> (&v)[4], Real *to) {
  constexpr int quarter = 16 / sizeof(Real);
  using V = Vector<Real>;
  V part[4 / quarter];
  const V ab = interleave<Real, 1, false>(v[0], v[1]) + interleave<Real, 1, true>(v[0], v[1]);
  const V cd = interleave<Real, 1, false>(v[2], v[3]) + interleave<Real, 1, true>(v[2], v[3]);
  if constexpr (quarter == 4) {
    part[0] = interleave<Real, 2, false>(ab, cd) + interleave<Real, 2, true>(ab, cd);
  } else {
    part[0] = ab;
    part[1] = cd;
  }
  typedef Real Quarter __attribute__((vector_size(16), may_alias));
  for (int k = 0; k < 4 / quarter; ++k) {
    Quarter pieces[PEEPHOLE_BYTES / 16];
    std::memcpy(pieces, &part[k], sizeof pieces);
    for (int half = PEEPHOLE_BYTES / 32; half; half /= 2)
      for (int piece = 0; piece < half; ++piece) pieces[piece] += pieces[piece + half];
    Quarter sum;
    std::memcpy(&sum, to + k * quarter, sizeof sum);
    sum += pieces[0];
    std::memcpy(to + k * quarter, &sum, sizeof sum);
  }
}

// The sum over the lanes.
template <class Real> inline Real sum(Vector<Real> v) {
  Real sums[4] = {};
  const Vector<Real> all[4] = {v, Vector<Real>{}, Vector<Real>{}, Vector<Real>{}};
  add_sums<Real>(all, sums);
  return sums[0];
}

}  // namespace PEEPHOLE_NAMESPACE
}  // namespace peephole
