// Tasks on the threads that PyTorch already has, and the state of the processor while they run.
#pragma once
#include <cstdint>

namespace peephole {

using Task = void (*)(int64_t, const void *);
// Runs tasks 0 ... count - 1, each once, on at most so many threads; any order. Throws what a task threw.
void run_tasks(int64_t count, int threads, Task task, const void *context);

// Whether fresh memory is filled with NaN, so that tests see any number read before it was written.
bool poisoned();

template <class Work>
void parallel(int64_t count, int threads, const Work &work) {
  run_tasks(count, threads, [](int64_t k, const void *context) { (*static_cast<const Work *>(context))(k); }, &work);
}

}  // namespace peephole
