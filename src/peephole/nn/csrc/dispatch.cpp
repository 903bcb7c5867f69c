// The library's few C functions: which instruction set, which threads, and run.
#include <atomic>
#include <cstring>
#include <exception>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "kernels.h"
#include "parallel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace peephole {
namespace {

struct InstructionSet {
  const char *name;
  int32_t bytes;
  Run run;
  bool available;
};

#if defined(__x86_64__)
const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
const InstructionSet sets[] = {
    {"avx512", 64, avx512::run, has_avx512}, {"avx2", 32, avx2::run, has_avx2}, {"baseline", 16, baseline::run, true}};
#else
const InstructionSet sets[] = {{"baseline", 16, baseline::run, true}};
#endif

std::atomic<bool> poison{false};

// PyTorch's OpenMP runtime, if Python found it: a second pool of threads would fight with the first.
using OpenMP = void (*)(void (*)(void *), void *, unsigned, unsigned);
OpenMP openmp = nullptr;

// Numbers too small for a full mantissa are taken as zero: with them each operation is a hundred times slower.
class FlushDenormals {
 public:
#if defined(__x86_64__)
  FlushDenormals() : before(_mm_getcsr()) { _mm_setcsr(before | 0x8040); }
  ~FlushDenormals() { _mm_setcsr(before); }

 private:
  unsigned before;
#elif defined(__aarch64__)
  FlushDenormals() {
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | (1ull << 24)));
  }
  ~FlushDenormals() { __asm__ volatile("msr fpcr, %0" : : "r"(before)); }

 private:
  unsigned long long before;
#endif
};

struct Team {
  Task task;
  const void *context;
  int64_t count;
  std::atomic<int64_t> next{0};
  std::atomic<bool> out_of_memory{false};

  void work() {
    FlushDenormals guard;
    for (int64_t k; (k = next.fetch_add(1)) < count;) {
      try {
        task(k, context);
      } catch (const std::bad_alloc &) {
        out_of_memory = true;
      }
    }
  }
};

}  // namespace

bool poisoned() { return poison; }

void run_tasks(int64_t count, int threads, Task task, const void *context) {
  Team team{task, context, count};
  const auto work = [](void *team) { static_cast<Team *>(team)->work(); };
  threads = int(std::min<int64_t>(threads, count));
  if (threads <= 1) {
    team.work();
  } else if (openmp) {
    openmp(work, &team, unsigned(threads), 0);
  } else {
    std::vector<std::thread> others;
    try {
      others.reserve(size_t(threads));
      while (int(others.size()) + 1 < threads) others.emplace_back(work, &team);
    } catch (const std::system_error &) {  // those that there are do the work
    } catch (const std::bad_alloc &) {
    }
    team.work();
    for (auto &other : others) other.join();
  }
  if (team.out_of_memory) throw std::bad_alloc();
}

}  // namespace peephole

using namespace peephole;

#define EXPORT __attribute__((visibility("default")))

extern "C" {

// The k-th instruction set, best first; null beyond the last.
EXPORT const char *peephole_instruction_set(int32_t k) {
  return k < int32_t(sizeof sets / sizeof sets[0]) ? sets[k].name : nullptr;
}

// Bytes in a vector register of the k-th instruction set; 0 where this machine does not have it.
EXPORT int32_t peephole_vector_bytes(int32_t k) { return sets[k].available ? sets[k].bytes : 0; }

EXPORT void peephole_use_openmp(void *gomp_parallel) { openmp = reinterpret_cast<OpenMP>(gomp_parallel); }

EXPORT void peephole_poison(int32_t on) { poison = on != 0; }

// Runs an operation on the k-th instruction set: 0, or 1 where memory ran out.
EXPORT int32_t peephole_run(int32_t k, int32_t operation, const Problem *problem) {
  try {
    sets[k].run(*problem, Operation(operation));
    return 0;
  } catch (const std::bad_alloc &) {
    return 1;
  }
}

}  // extern "C"
