// The kernels for one instruction set: compiled once for each, under a namespace of its own.
#include "kernels.h"

#include "network.h"

namespace peephole {
namespace PEEPHOLE_NAMESPACE {

template <class Real, int Vecs>
static void run_as(const Problem &p, Operation operation) {
  switch (operation) {
    case Operation::forward:
      Network<Real, Vecs>(p).forward();
      break;
    case Operation::backward:
      Network<Real, Vecs>(p).backward();
      break;
    case Operation::next_step_loss:
      Network<Real, Vecs>(p).next_step_loss();
      break;
  }
}

template <class Real>
static void run_in(const Problem &p, Operation operation) {
  switch (p.vectors) {
    case 4: return run_as<Real, 4>(p, operation);
    case 2: return run_as<Real, 2>(p, operation);
    default: return run_as<Real, 1>(p, operation);
  }
}

void run(const Problem &p, Operation operation) {
  p.is_double ? run_in<double>(p, operation) : run_in<float>(p, operation);
}

}  // namespace PEEPHOLE_NAMESPACE
}  // namespace peephole
