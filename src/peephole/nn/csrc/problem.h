// The question put to a kernel, in plain pointers: what Python fills through ctypes.
#pragma once
#include <cstdint>

namespace peephole {

// Activations, numbered as in kernel.py.
enum Activation : int32_t { SIGMOID = 0, TANH = 1, IDENTITY = 2, RELU = 3, HARD_SIGMOID = 4 };

// What a NaN in x is: itself, or the network's own estimate h(t-1), with its gradient or without.
enum Own : int32_t { NONE = 0, ESTIMATE = 1, DETACHED = 2 };

// R networks of the same sizes. Gates are stacked i, f, g, o; peepholes i, f, o. All tensors are contiguous;
// the first axis of each is the replica, except that `x` (and what goes with it) may be shared by all.
// A null pointer leaves out what it points to. Real is float or double, as `is_double` says.
struct Problem {
  int64_t replicas, steps, batch, inputs, units;
  int32_t is_double, vectors;  // vectors of sequences to a block: 1, 2 or 4
  int32_t gate, cell_input, output, x_shared, threads;
  int32_t own;                                    // next-step loss, M = N: what NaN in x stands for, see Own
  const void *x;                                  // (T, B, I)
  const void *w_ih, *w_hh, *w_ph, *bias;          // (4H, I), (4H, H), (3H) or null, (4H) or null
  const void *h0, *c0;                            // (B, H) or null for zeros
  const int64_t *lengths;                         // (B) or null: steps beyond them leave the state as it is
  void *y, *h_last, *c_last;                      // (T, B, H), (B, H), (B, H)
  void *tape;                                     // what backward needs of forward, or null
  const void *grad_y, *grad_h_last, *grad_c_last; // any may be null
  void *grad_x, *grad_h0, *grad_c0;               // any may be null
  void *grad_w_ih, *grad_w_hh, *grad_w_ph, *grad_bias;
  const void *target, *weight;                    // next-step loss: (T, B, H) each; weight null for all alike
  double scale;                                   // of the summed squared errors, where weight is null
  double *loss;                                   // (R)
};

}  // namespace peephole
