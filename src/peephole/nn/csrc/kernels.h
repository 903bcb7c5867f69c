// What each instruction set's copy of the kernels offers.
#pragma once
#include "problem.h"

namespace peephole {

enum class Operation : int32_t { forward = 0, backward = 1, next_step_loss = 2 };

using Run = void (*)(const Problem &, Operation);

namespace baseline { void run(const Problem &, Operation); }
namespace avx2 { void run(const Problem &, Operation); }
namespace avx512 { void run(const Problem &, Operation); }

}  // namespace peephole
