// One block of sequences through one network: forward, and backward in time.
//
// A block is `Vecs` vectors of sequences. Its arrays are [row][sequence]: a row is an input, a unit or a gate,
// so that a step is a small matrix product with the weights broadcast, and everything else is element by element.
#pragma once
#include "lanes.h"
#include "product.h"

namespace peephole {
namespace PEEPHOLE_NAMESPACE {

// The weights of one network, packed once a call in the order in which the products read them.
template <class Real>
struct Weights {
  const Real *forward;   // by tile of units: [input or unit][unit of the tile][gate]
  const Real *backward;  // by tile of inputs and units: [unit][gate][input or unit of the tile]
  const Real *bias;      // (4H) i f g o, or null
  const Real *peephole;  // (3H) i f o, or null
};

// Gradients of one group of blocks; sums, added to.
template <class Real>
struct Gradients {
  Real *weights;   // [unit][input or unit][gate]
  Real *bias;      // [unit][gate]
  Real *peephole;  // [unit][i f o]
};

// A block's rows out of `count` sequences of `columns` numbers each, and back. A row is `lanes` long; lanes beyond
// the last sequence hold zeros or repeat it, so that what is finite for every sequence is finite there too.
template <class Real, int Vecs>
struct Rows {
  static constexpr int lanes = Vecs * Lanes<Real>::width;

  static void gather(const Real *from, int64_t columns, int count, Real *rows, int64_t stride, bool repeat = false) {
    if (columns == 1) copy(from, count, rows);
    else transpose(from, count, columns, columns, rows, stride);
    if (count < lanes)
      for (Real *row = rows; row < rows + columns * stride; row += stride)
        std::fill(row + count, row + lanes, repeat ? row[count - 1] : Real(0));
  }

  static void scatter(const Real *rows, int64_t columns, int count, Real *to) {
    if (columns == 1) copy(rows, count, to);
    else transpose(rows, columns, count, lanes, to, columns);
  }

  // A full row is of a length that the compiler knows.
  static void copy(const Real *from, int count, Real *to) {
    if (count == lanes) std::memcpy(to, from, lanes * sizeof(Real));
    else std::copy(from, from + count, to);
  }

  // to[c][r] = from[r][c], in squares that a few shuffles turn.
  static void transpose(const Real *from, int64_t rows, int64_t columns, int64_t from_stride, Real *to, int64_t to_stride) {
    constexpr int side = 16 / sizeof(Real);
    int64_t r = 0;
    for (; r + side <= rows; r += side) {
      int64_t c = 0;
      for (; c + side <= columns; c += side)
        transpose_square<Real>(from + r * from_stride + c, from_stride, to + c * to_stride + r, to_stride);
      for (; c < columns; ++c)
        for (int k = 0; k < side; ++k) to[c * to_stride + r + k] = from[(r + k) * from_stride + c];
    }
    for (; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) to[c * to_stride + r] = from[r * from_stride + c];
  }
};

template <class Real, int Vecs>
class Block {
 public:
  using V = Vector<Real>;
  using M = typename Lanes<Real>::M;
  static constexpr int width = Lanes<Real>::width, lanes = Vecs * width;
  static constexpr int taped = 6;      // i, f, g, o, c and sigma_h(c) of each unit
  static constexpr int summed = 7;     // bias of i, f, g, o and peephole of i, f, o

  static int64_t tape_size(int64_t units, int64_t steps) { return steps * taped * units * lanes; }

  // Real numbers of scratch that a block needs besides its tape.
  static int64_t scratch_size(const Problem &p) {
    const int64_t I = p.inputs, H = p.units, slots = chunk_steps(p) + 1;
    return ((I + 3 * H) + (I + 6 * H) + summed * H + (I + 5 * H) * slots + 4) * lanes;
  }

  // How many steps' gradients are collected before they are multiplied out: enough for a long sum,
  // few enough to stay in the second-level cache.
  static int64_t chunk_steps(const Problem &p) {
    const int64_t step = (5 * p.units + p.inputs) * lanes * int64_t(sizeof(Real));
    return std::min(p.steps, std::clamp<int64_t>((256 << 10) / step, 16, 128));
  }

  Block(const Problem &problem, const Weights<Real> &weights, int64_t replica, int64_t first, Real *scratch)
      : p(problem), w(weights), replica(replica), first(first),
        count(int(std::min<int64_t>(lanes, p.batch - first))), I(p.inputs), H(p.units), at(scratch) {
    x = take(I);
    h = take(H);
    h_next = take(H);
    c = take(H);
    for (int l = 0; l < lanes; ++l) length[l] = Real(p.lengths ? p.lengths[first + std::min(l, count - 1)] : p.steps);
  }

  // From h0 and c0 through all steps; the tape may be null.
  void forward(Real *tape) {
    load_state(p.h0, h);
    load_state(p.c0, c);
    for (int64_t t = 0; t < p.steps; ++t) {
      load(p.x, p.x_shared, t, I, x);
      if (p.own) fill_from(h, lanes, x, lanes);
      step(t, tape);
      std::swap(h, h_next);
      if (p.y) store(h, p.y, t, H);
    }
    store_state(h, p.h_last);
    store_state(c, p.c_last);
  }

  // Back over a tape of forward's. Adds to the gradients and returns the block's part of the next-step loss.
  double backward(const Real *tape, const Gradients<Real> &sums) {
    const int64_t chunk = chunk_steps(p), stride = (chunk + 1) * lanes;
    prepare_backward(stride);
    int64_t slot = chunk;  // slots fill from the last to the first, as time runs back
    for (int64_t t = p.steps - 1; t >= 0; --t) {
      --slot;
      load_upstream(t);
      load_into_slot(t, slot, stride);
      differentiate(t, tape, slot, stride);
      back_through_weights(slot, stride, t);
      if (p.own) fill_from(inputs + I * stride + slot * lanes, stride, inputs + slot * lanes, stride);
      collect_loss(t);
      if (slot == 0 || t == 0) {
        sum_products<Real>(d_gates + slot * lanes, H, inputs + slot * lanes, I + H, stride, (chunk - slot) * Vecs, sums.weights);
        slot = chunk;
      }
    }
    add_elementwise(sums);
    store_state(d_h, p.grad_h0);
    store_state(d_c, p.grad_c0);
    return loss;
  }

  // The next-step loss alone.
  double error(const Real *tape) {
    goal = take(H);
    weight = take(H);
    squares = V{};
    for (int64_t t = p.steps - 1; t >= 0; --t) {
      load_upstream(t);
      const V *now = vectors(tape + t * taped * H * lanes);
      for (int64_t e = 0; e < H * Vecs; ++e) {
        const V *row = now + e / Vecs * taped * Vecs + e % Vecs;
        from_above(e, row[3 * Vecs] * row[5 * Vecs]);
      }
      collect_loss(t);
    }
    return loss;
  }

 private:
  const Problem &p;
  const Weights<Real> w;
  const int64_t replica, first;
  const int count;
  const int64_t I, H;
  Real *at;                                                          // the scratch not yet taken
  Real *x, *h, *h_next, *c;  // forward
  Real *d_x{}, *d_h{}, *d_c{}, *upstream{}, *goal{}, *weight{}, *kept{};
  Real *d_gates{}, *inputs{};  // a chunk's slots
  V *elementwise{};
  V squares{};
  double loss = 0;
  Real length[lanes];

  Real *take(int64_t rows) {
    Real *taken = at;
    at += rows * lanes;
    return taken;
  }

  static V *vectors(Real *rows) { return reinterpret_cast<V *>(rows); }
  static const V *vectors(const Real *rows) { return reinterpret_cast<const V *>(rows); }

  // A step of a (R, T, B, columns) tensor into rows, and back.
  void load(const void *tensor, bool shared, int64_t t, int64_t columns, Real *rows) const {
    const int64_t leading = shared ? 0 : replica;
    const Real *from = static_cast<const Real *>(tensor) + ((leading * p.steps + t) * p.batch + first) * columns;
    // The next step's rows lie a whole batch further on, where no processor looks ahead by itself.
    const char *ahead = reinterpret_cast<const char *>(from + p.batch * columns);
    if (t + 1 < p.steps && columns <= 4)
      for (int64_t byte = 0; byte < count * columns * int64_t(sizeof(Real)); byte += 64) __builtin_prefetch(ahead + byte);
    Rows<Real, Vecs>::gather(from, columns, count, rows, lanes, tensor == p.x);
  }
  void store(const Real *rows, void *tensor, int64_t t, int64_t columns) const {
    Real *to = static_cast<Real *>(tensor) + ((replica * p.steps + t) * p.batch + first) * columns;
    Rows<Real, Vecs>::scatter(rows, columns, count, to);
  }
  // A (R, B, H) tensor likewise; zeros where there is none.
  void load_state(const void *tensor, Real *rows, int64_t stride = lanes) const {
    if (tensor) {
      const Real *from = static_cast<const Real *>(tensor) + (replica * p.batch + first) * H;
      Rows<Real, Vecs>::gather(from, H, count, rows, stride, tensor == p.h0 || tensor == p.c0);
    } else {
      for (int64_t u = 0; u < H; ++u) std::fill(rows + u * stride, rows + u * stride + lanes, Real(0));
    }
  }
  void store_state(const Real *rows, void *tensor) const {
    if (tensor) Rows<Real, Vecs>::scatter(rows, H, count, static_cast<Real *>(tensor) + (replica * p.batch + first) * H);
  }

  // NaN in the rows of x becomes what stands in the rows of h.
  void fill_from(const Real *h, int64_t h_stride, Real *x, int64_t x_stride) const {
    for (int64_t n = 0; n < I; ++n)
      for (int v = 0; v < Vecs; ++v) {
        V &entry = vectors(x + n * x_stride)[v];
        entry = entry == entry ? entry : vectors(h + n * h_stride)[v];
      }
  }

  // All bits set in the lanes whose sequence still runs at step t.
  M running(int64_t t, int v) const {
    V end;
    std::memcpy(&end, length + v * width, sizeof end);
    return splat(Real(t)) < end;
  }

  // --- forward --------------------------------------------------------------------------------------------

  void step(int64_t t, Real *tape) {
    constexpr int full = tile_units<Vecs>;
    const Real *weights = w.forward;
    Real *now = tape ? tape + t * taped * H * lanes : nullptr;
    int64_t u = 0;
    for (; u + full <= H; u += full) weights = units<full>(u, t, weights, now);
    if constexpr (full > 1) last_units<full - 1>(u, t, weights, now);
  }

  // The last tile is narrower.
  template <int Units>
  void last_units(int64_t u, int64_t t, const Real *weights, Real *tape) {
    if (H - u == Units) units<Units>(u, t, weights, tape);
    else if constexpr (Units > 1) last_units<Units - 1>(u, t, weights, tape);
  }

  template <int Units>
  const Real *units(int64_t u, int64_t t, const Real *weights, Real *tape) {
    V a[Units * 4][Vecs];
    for (int k = 0; k < Units; ++k)
      for (int g = 0; g < 4; ++g)
        for (int v = 0; v < Vecs; ++v) a[k * 4 + g][v] = splat(w.bias ? w.bias[g * H + u + k] : Real(0));
    accumulate<Real, Units * 4, Vecs>(a, weights, x, lanes, I);
    accumulate<Real, Units * 4, Vecs>(a, weights + I * Units * 4, h, lanes, H);
    cells<Units>(u, t, a, tape);
    return weights + (I + H) * Units * 4;
  }

  // The paper's cell for some units: f and i see c(t-1), o sees c(t), z (here g) sees neither.
  template <int Units>
  inline void cells(int64_t u, int64_t t, V (&a)[Units * 4][Vecs], Real *tape) {
    constexpr int count = Units * Vecs;
    V i_f[2 * count], g[count], o[count], now[count], *const state = vectors(c) + u * Vecs;
    for (int e = 0; e < count; ++e) {
      const int k = e / Vecs, v = e % Vecs;
      const Real peep_i = w.peephole ? w.peephole[u + k] : Real(0), peep_f = w.peephole ? w.peephole[H + u + k] : Real(0);
      i_f[e] = a[k * 4][v] + peep_i * state[e];
      i_f[count + e] = a[k * 4 + 1][v] + peep_f * state[e];
      g[e] = a[k * 4 + 2][v];
    }
    activate<Real>(p.gate, i_f);
    activate<Real>(p.cell_input, g);
    for (int e = 0; e < count; ++e) {
      const int k = e / Vecs;
      now[e] = i_f[count + e] * state[e] + i_f[e] * g[e];
      o[e] = a[k * 4 + 3][e % Vecs] + (w.peephole ? w.peephole[2 * H + u + k] : Real(0)) * now[e];
    }
    V out[count];
    std::copy(now, now + count, out);
    activate<Real>(p.gate, o);
    activate<Real>(p.output, out);
    for (int e = 0; e < count; ++e) {
      if (tape) {
        V *const row = vectors(tape) + (u + e / Vecs) * taped * Vecs + e % Vecs;
        row[0] = i_f[e];
        row[Vecs] = i_f[count + e];
        row[2 * Vecs] = g[e];
        row[3 * Vecs] = o[e];
        row[4 * Vecs] = now[e];
        row[5 * Vecs] = out[e];
      }
      out[e] = o[e] * out[e];
      if (p.lengths) {  // a sequence that has ended keeps its state
        const M runs = running(t, e % Vecs);
        now[e] = runs ? now[e] : state[e];
        out[e] = runs ? out[e] : vectors(h)[u * Vecs + e];
      }
      state[e] = now[e];
      vectors(h_next)[u * Vecs + e] = out[e];
    }
  }

  // --- backward -------------------------------------------------------------------------------------------

  void prepare_backward(int64_t stride) {
    d_x = take(I);
    d_h = take(H);
    d_c = take(H);
    upstream = take(H);
    goal = take(H);
    weight = take(H);
    kept = take(H);
    elementwise = vectors(take(summed * H));
    d_gates = take(4 * H * (stride / lanes));
    inputs = take((I + H) * (stride / lanes));
    std::fill(elementwise, elementwise + summed * H * Vecs, V{});
    squares = V{};
    load_state(p.grad_h_last, d_h);
    load_state(p.grad_c_last, d_c);
  }

  void load_upstream(int64_t t) {
    if (p.target) {
      load(p.target, p.x_shared, t, H, goal);
      if (p.weight) load(p.weight, p.x_shared, t, H, weight);
    } else if (p.grad_y) {
      load(p.grad_y, false, t, H, upstream);
    }
  }

  void load_into_slot(int64_t t, int64_t slot, int64_t stride) {
    const Real *from = static_cast<const Real *>(p.x) + (((p.x_shared ? 0 : replica) * p.steps + t) * p.batch + first) * I;
    Rows<Real, Vecs>::gather(from, I, count, inputs + slot * lanes, stride);
    if (t == 0) {
      load_state(p.h0, inputs + I * stride + slot * lanes, stride);
      load_state(p.c0, c);
    }
  }

  void differentiate(int64_t t, const Real *tape, int64_t slot, int64_t stride) {
    const V *now = vectors(tape + t * taped * H * lanes);
    const V *before = t ? vectors(tape + (t - 1) * taped * H * lanes) : nullptr;
    for (int64_t u = 0; u < H; ++u)
      for (int v = 0; v < Vecs; ++v) differentiate_unit(t, u, v, now, before, slot, stride);
  }

  inline void differentiate_unit(int64_t t, int64_t u, int v, const V *now, const V *before, int64_t slot, int64_t stride) {
    const int64_t e = u * Vecs + v;
    const V *row = now + u * taped * Vecs + v;
    const V i = row[0], f = row[Vecs], g = row[2 * Vecs], o = row[3 * Vecs], s = row[5 * Vecs];
    V previous;
    if (before) {
      const V *earlier = before + u * taped * Vecs + v;
      previous = earlier[4 * Vecs];
      vectors(inputs + (I + u) * stride + slot * lanes)[v] = earlier[3 * Vecs] * earlier[5 * Vecs];
    } else {
      previous = vectors(c)[e];
    }
    V dh = vectors(d_h)[e] + from_above(e, o * s);
    const V dc_in = vectors(d_c)[e];
    const V d_o = dh * s * slope<Real>(p.gate, o);
    V dc = dc_in + dh * o * slope<Real>(p.output, s);
    if (w.peephole) dc += w.peephole[2 * H + u] * d_o;
    V d_i = dc * g * slope<Real>(p.gate, i), d_f = dc * previous * slope<Real>(p.gate, f);
    V d_g = dc * i * slope<Real>(p.cell_input, g), d_out = d_o;
    V dc_before = dc * f;
    if (w.peephole) dc_before += w.peephole[u] * d_i + w.peephole[H + u] * d_f;
    if (p.lengths) hold(t, e, v, d_i, d_f, d_g, d_out, dc_before, dc_in);
    vectors(d_c)[e] = dc_before;
    Real *gates = d_gates + u * 4 * stride + slot * lanes;
    vectors(gates)[v] = d_i;
    vectors(gates + stride)[v] = d_f;
    vectors(gates + 2 * stride)[v] = d_g;
    vectors(gates + 3 * stride)[v] = d_out;
    V *sums = elementwise + u * summed * Vecs + v;
    sums[0] += d_i;
    sums[Vecs] += d_f;
    sums[2 * Vecs] += d_g;
    sums[3 * Vecs] += d_out;
    sums[4 * Vecs] += d_i * previous;
    sums[5 * Vecs] += d_f * previous;
    sums[6 * Vecs] += d_out * row[4 * Vecs];
  }

  // The gradient that reaches h(t) from its output, or from the squared error of its estimate.
  inline V from_above(int64_t e, V out) {
    if (p.target) {
      const V error = out - vectors(goal)[e];
      V weighted = Real(p.scale) * error;
      if (p.weight) {
        const V given = vectors(weight)[e];
        weighted = given != V{} ? given * error : V{};  // selected, not multiplied: the error may be NaN
        squares += given != V{} ? weighted * error : V{};
      } else {
        squares += in_block(e % Vecs, weighted * error);
        weighted = in_block(e % Vecs, weighted);
      }
      return weighted + weighted;
    }
    return p.grad_y ? vectors(upstream)[e] : V{};
  }

  // A few hundred squares in a float, and then into a double: over many steps the float would lose digits.
  void collect_loss(int64_t t) {
    if (!p.target || t % std::max<int64_t>(1, 256 / (H * Vecs))) return;
    loss += double(sum<Real>(squares));
    squares = V{};
  }

  // Zero in the lanes beyond the last sequence.
  inline V in_block(int64_t v, V value) const {
    if (count == lanes) return value;
    V inside;
    for (int l = 0; l < width; ++l) inside[l] = v * width + l < count ? value[l] : Real(0);
    return inside;
  }

  // A sequence that has ended passes its state's gradients on, and nothing else.
  inline void hold(int64_t t, int64_t e, int v, V &d_i, V &d_f, V &d_g, V &d_o, V &dc_before, V dc_in) {
    const M runs = running(t, v);
    d_i = runs ? d_i : V{};
    d_f = runs ? d_f : V{};
    d_g = runs ? d_g : V{};
    d_o = runs ? d_o : V{};
    dc_before = runs ? dc_before : dc_in;
    vectors(kept)[e] = runs ? V{} : vectors(d_h)[e];
  }

  void back_through_weights(int64_t slot, int64_t stride, int64_t t) {
    const Real *gates = d_gates + slot * lanes, *packed = w.backward;
    if (p.grad_x || p.own == ESTIMATE) multiply_back<Real, Vecs>(packed, I, 4 * H, gates, stride, d_x);
    if (p.grad_x) store(d_x, p.grad_x, t, I);
    multiply_back<Real, Vecs>(packed + I * 4 * H, H, 4 * H, gates, stride, d_h);
    if (p.own == ESTIMATE) return_to_estimates(inputs + slot * lanes, stride);
    if (p.lengths)
      for (int64_t e = 0; e < H * Vecs; ++e) vectors(d_h)[e] += vectors(kept)[e];
  }

  // What reached a NaN of x is h(t-1)'s.
  void return_to_estimates(const Real *x, int64_t stride) {
    for (int64_t e = 0; e < I * Vecs; ++e) {
      const V entry = vectors(x + e / Vecs * stride)[e % Vecs];
      vectors(d_h)[e] += entry == entry ? V{} : vectors(d_x)[e];
    }
  }

  void add_elementwise(const Gradients<Real> &sums) {
    for (int64_t u = 0; u < H; ++u)
      for (int k = 0; k < summed; ++k) {
        V total = elementwise[(u * summed + k) * Vecs];
        for (int v = 1; v < Vecs; ++v) total += elementwise[(u * summed + k) * Vecs + v];
        (k < 4 ? sums.bias[u * 4 + k] : sums.peephole[u * 3 + k - 4]) += sum<Real>(total);
      }
  }
};

}  // namespace PEEPHOLE_NAMESPACE
}  // namespace peephole
