// All blocks of all networks of a problem: packing, tasks, and the sums that do not depend on who did which task.
#pragma once
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#include "block.h"
#include "parallel.h"

namespace peephole {
namespace PEEPHOLE_NAMESPACE {

template <class Real>
class Buffer {
 public:
  explicit Buffer(int64_t count) { reserve(count); }
  Buffer() = default;
  Real *reserve(int64_t count) {
    if (count > size) {
      const size_t bytes = (size_t(count) * sizeof(Real) + 63) / 64 * 64;
      size = 0;  // should there be no memory
      memory.reset(static_cast<Real *>(std::aligned_alloc(64, bytes)));
      if (!memory) throw std::bad_alloc();
      size = count;
    }
    if (poisoned()) std::memset(memory.get(), 0xff, size_t(count) * sizeof(Real));
    return memory.get();
  }
  Real *get() const { return memory.get(); }
  // Gives back what a thread would else keep for as long as it lives.
  void release_beyond(int64_t bytes) {
    if (size * int64_t(sizeof(Real)) <= bytes) return;
    size = 0;
    memory.reset();
  }

 private:
  struct Free {
    void operator()(void *p) const { std::free(p); }
  };
  std::unique_ptr<Real, Free> memory;
  int64_t size = 0;
};

template <class Real, int Vecs>
class Network {
 public:
  using B = Block<Real, Vecs>;

  explicit Network(const Problem &problem)
      : p(problem), I(p.inputs), H(p.units), blocks((p.batch + B::lanes - 1) / B::lanes), weights_size(4 * H * (I + H)),
        sums_size(weights_size + 7 * H), packed(p.replicas * 2 * weights_size) {
    // Blocks are summed in groups, the groups in order: few enough to hold, whatever the threads.
    const int64_t most = std::clamp<int64_t>((int64_t(32) << 20) / (sums_size * int64_t(sizeof(Real))), 2, 16);
    groups = std::min(blocks, most);
  }

  void forward() {
    pack();
    parallel(p.replicas * blocks, p.threads, [&](int64_t task) {
      const int64_t replica = task / blocks, block = task % blocks;
      B(p, weights(replica), replica, block * B::lanes, scratch()).forward(tape(task));
    });
  }

  void backward() {
    run_groups([&](int64_t replica, int64_t block, const Gradients<Real> &sums, double &) {
      B(p, weights(replica), replica, block * B::lanes, scratch()).backward(tape(replica * blocks + block), sums);
    });
  }

  // Forward, loss and backward of one block while its tape is still in the cache.
  void next_step_loss() {
    const bool differentiate = p.grad_w_hh != nullptr;
    run_groups([&](int64_t replica, int64_t block, const Gradients<Real> &sums, double &loss) {
      Real *const kept = own_tape().reserve(B::tape_size(H, p.steps));
      B(p, weights(replica), replica, block * B::lanes, scratch()).forward(kept);
      B again(p, weights(replica), replica, block * B::lanes, scratch());
      loss += differentiate ? again.backward(kept, sums) : again.error(kept);
    });
  }

 private:
  const Problem &p;
  const int64_t I, H, blocks, weights_size, sums_size;
  int64_t groups;
  Buffer<Real> packed;

  Real *tape(int64_t block) const {
    return p.tape ? static_cast<Real *>(p.tape) + block * B::tape_size(H, p.steps) : nullptr;
  }

  static Buffer<Real> &own_tape() {
    static thread_local Buffer<Real> buffer;
    return buffer;
  }

  Real *scratch() const {
    static thread_local Buffer<Real> buffer;
    return buffer.reserve(B::scratch_size(p));
  }

  Weights<Real> weights(int64_t replica) const {
    const Real *at = packed.get() + replica * 2 * weights_size;
    const auto part = [&](const void *all, int64_t size) { return all ? static_cast<const Real *>(all) + replica * size : nullptr; };
    return {at, at + weights_size, part(p.bias, 4 * H), part(p.w_ph, 3 * H)};
  }

  // W and U of every network in the order in which the tiles read them.
  void pack() {
    parallel(p.replicas, p.threads, [&](int64_t replica) {
      const Real *w = static_cast<const Real *>(p.w_ih) + replica * 4 * H * I, *u = static_cast<const Real *>(p.w_hh) + replica * 4 * H * H;
      const auto weight = [&](int64_t unit, int64_t gate, int64_t k) {
        const int64_t row = gate * H + unit;
        return k < I ? w[row * I + k] : u[row * H + k - I];
      };
      Real *to = packed.get() + replica * 2 * weights_size;
      for (int64_t first = 0; first < H; first += tile_units<Vecs>)
        for (int64_t k = 0; k < I + H; ++k)
          for (int64_t unit = first; unit < std::min<int64_t>(H, first + tile_units<Vecs>); ++unit)
            for (int64_t gate = 0; gate < 4; ++gate) *to++ = weight(unit, gate, k);
      for (const auto &[from, end] : {std::pair<int64_t, int64_t>{0, I}, {I, I + H}})
        for (int64_t k = from; k < end;) {
          const int size = next_tile<Vecs>(end - k);
          for (int64_t row = 0; row < 4 * H; ++row)
            for (int j = 0; j < size; ++j) *to++ = weight(row / 4, row % 4, k + j);
          k += size;
        }
    });
  }

  template <class Work>
  void run_groups(const Work &work) {
    pack();
    Buffer<Real> sums(p.replicas * groups * sums_size);
    Buffer<double> losses(p.replicas * groups);
    parallel(p.replicas * groups, p.threads, [&](int64_t task) {
      const int64_t replica = task / groups, group = task % groups;
      Real *at = sums.get() + task * sums_size;
      std::fill(at, at + sums_size, Real(0));
      losses.get()[task] = 0;
      const Gradients<Real> gradients{at, at + weights_size, at + weights_size + 4 * H};
      for (int64_t block = group * blocks / groups; block < (group + 1) * blocks / groups; ++block)
        work(replica, block, gradients, losses.get()[task]);
      own_tape().release_beyond(int64_t(64) << 20);
    });
    parallel(p.replicas, p.threads, [&](int64_t replica) { reduce(replica, sums.get() + replica * groups * sums_size); });
    if (p.loss)
      for (int64_t replica = 0; replica < p.replicas; ++replica) {
        p.loss[replica] = 0;
        for (int64_t group = 0; group < groups; ++group) p.loss[replica] += losses.get()[replica * groups + group];
      }
  }

  // The groups' sums into the gradients, rows back in the order i, f, g, o.
  void reduce(int64_t replica, Real *sums) {
    if (!p.grad_w_hh) return;
    for (int64_t group = 1; group < groups; ++group)
      for (int64_t k = 0; k < sums_size; ++k) sums[k] += sums[group * sums_size + k];
    Real *w = static_cast<Real *>(p.grad_w_ih) + replica * 4 * H * I, *u = static_cast<Real *>(p.grad_w_hh) + replica * 4 * H * H;
    const auto into = [&](void *all, int64_t size) { return static_cast<Real *>(all) + replica * size; };
    for (int64_t unit = 0; unit < H; ++unit) {
      for (int64_t gate = 0; gate < 4; ++gate) {
        const Real *from = sums + unit * (I + H) * 4 + gate;
        for (int64_t k = 0; k < I; ++k) w[(gate * H + unit) * I + k] = from[k * 4];
        for (int64_t k = 0; k < H; ++k) u[(gate * H + unit) * H + k] = from[(I + k) * 4];
        if (p.grad_bias) into(p.grad_bias, 4 * H)[gate * H + unit] = sums[weights_size + unit * 4 + gate];
      }
      for (int64_t gate = 0; gate < 3 && p.grad_w_ph; ++gate)
        into(p.grad_w_ph, 3 * H)[gate * H + unit] = sums[weights_size + 4 * H + unit * 3 + gate];
    }
  }
};

}  // namespace PEEPHOLE_NAMESPACE
}  // namespace peephole
