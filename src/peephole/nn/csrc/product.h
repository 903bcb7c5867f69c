// The three matrix products of a block, each a tile of accumulators that stays in registers.
//
// Every element of a result is summed in one order, whatever tile it falls into: that is why a sequence's numbers
// do not depend on its place in the batch, nor a network's on its neighbours.
#pragma once
#include <algorithm>

#include "lanes.h"

namespace peephole {
namespace PEEPHOLE_NAMESPACE {

// Accumulators that the register file holds: 32 registers with AVX-512, else 16.
constexpr int registers = PEEPHOLE_BYTES == 64 ? 24 : 12;

// Units whose four gates make one tile of the forward product.
template <int Vecs> constexpr int tile_units = std::max(1, (PEEPHOLE_BYTES == 64 ? 6 : 3) / Vecs);
// Rows of one tile of the backward product.
template <int Vecs> constexpr int tile_rows = registers / Vecs;

// The next tile where `left` rows remain: a full one, then powers of two.
template <int Vecs> inline int next_tile(int64_t left) {
  if (left >= tile_rows<Vecs>) return tile_rows<Vecs>;
  int size = 16;
  while (size > left) size /= 2;
  return size;
}

// total[r][v] += sum over k of weights[k][r] * rows[k][v].
template <class Real, int Rows, int Vecs>
inline void accumulate(Vector<Real> (&total)[Rows][Vecs], const Real *weights, const Real *rows, int64_t stride, int64_t count) {
  using V = Vector<Real>;
  for (int64_t k = 0; k < count; ++k, weights += Rows, rows += stride) {
    V row[Vecs];
#pragma GCC unroll 4
    for (int v = 0; v < Vecs; ++v) row[v] = reinterpret_cast<const V *>(rows)[v];
#pragma GCC unroll 32
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < Vecs; ++v) total[r][v] += weights[r] * row[v];
  }
}

template <class Real, int Rows, int Vecs>
inline const Real *multiply_tile(const Real *weights, int64_t sums, const Real *rows, int64_t stride, Real *to) {
  Vector<Real> total[Rows][Vecs] = {};
  accumulate<Real, Rows, Vecs>(total, weights, rows, stride, sums);
  for (int r = 0; r < Rows; ++r)
    for (int v = 0; v < Vecs; ++v) reinterpret_cast<Vector<Real> *>(to)[r * Vecs + v] = total[r][v];
  return weights + Rows * sums;
}

// to[k] = sum over the gates' rows of weights * rows, for `outputs` inputs or units: the way back through a step.
template <class Real, int Vecs>
inline void multiply_back(const Real *weights, int64_t outputs, int64_t sums, const Real *rows, int64_t stride, Real *to) {
  constexpr int lanes = Vecs * Lanes<Real>::width, full = tile_rows<Vecs>;
  while (outputs > 0) {
    const int size = next_tile<Vecs>(outputs);
    if (size == full) weights = multiply_tile<Real, full, Vecs>(weights, sums, rows, stride, to);
    else if (size == 16) weights = multiply_tile<Real, 16, Vecs>(weights, sums, rows, stride, to);
    else if (size == 8) weights = multiply_tile<Real, 8, Vecs>(weights, sums, rows, stride, to);
    else if (size == 4) weights = multiply_tile<Real, 4, Vecs>(weights, sums, rows, stride, to);
    else if (size == 2) weights = multiply_tile<Real, 2, Vecs>(weights, sums, rows, stride, to);
    else weights = multiply_tile<Real, 1, Vecs>(weights, sums, rows, stride, to);
    outputs -= size;
    to += size * lanes;
  }
}

// c[k][i] += a[i] . b[k] over `vectors` vectors of sequences and steps, for the 4 gates i of a unit and some k.
template <class Real, int Columns>
inline void sum_tile(const Real *a, const Real *b, int64_t stride, int64_t vectors, Real *c) {
  using V = Vector<Real>;
  V total[Columns][4] = {};
  for (int64_t p = 0; p < vectors; ++p) {
    V left[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) left[i] = reinterpret_cast<const V *>(a + i * stride)[p];
#pragma GCC unroll 8
    for (int k = 0; k < Columns; ++k) {
      const V right = reinterpret_cast<const V *>(b + k * stride)[p];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) total[k][i] += left[i] * right;
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < Columns; ++k) add_sums<Real>(total[k], c + k * 4);
}

// c[unit][k][gate] += gates . rows, both with rows `stride` apart: the weights' gradient of a chunk of steps.
template <class Real>
inline void sum_products(const Real *gates, int64_t units, const Real *rows, int64_t count, int64_t stride, int64_t vectors, Real *c) {
  constexpr int widest = registers / 4;
  // As many rows as a good part of the second-level cache holds.
  const int64_t slab = std::max<int64_t>(widest, (256 << 10) / (stride * int64_t(sizeof(Real))) / widest * widest);
  for (int64_t from = 0; from < count; from += slab) {
    const int64_t to = std::min(count, from + slab);
    for (int64_t u = 0; u < units; ++u) {
      const Real *a = gates + u * 4 * stride;
      Real *const sums = c + u * count * 4;
      int64_t k = from;
      for (; k + widest <= to; k += widest) sum_tile<Real, widest>(a, rows + k * stride, stride, vectors, sums + k * 4);
      for (; k + 2 <= to; k += 2) sum_tile<Real, 2>(a, rows + k * stride, stride, vectors, sums + k * 4);
      for (; k < to; ++k) sum_tile<Real, 1>(a, rows + k * stride, stride, vectors, sums + k * 4);
    }
  }
}

}  // namespace PEEPHOLE_NAMESPACE
}  // namespace peephole
