#!/usr/bin/env bash
# The kernels under the address and undefined-behaviour sanitisers: built into build/sanitize, and run by their tests.
set -euo pipefail
cd "$(dirname "$0")/.."

# Built as the wheel is, so that CMake and Ninja come along.
rm -rf build/sanitize
.venv/bin/pip wheel -qq --no-deps -c constraints.txt -w build/sanitize/wheel \
  -C build-dir=build/sanitize -C cmake.define.PEEPHOLE_SANITIZE=ON .
test -f build/sanitize/_kernels.so

# Python is not sanitised itself, so the runtime has to come first, and what Python keeps is no leak of ours.
compiler=${CXX:-c++}
export PEEPHOLE_KERNELS=$PWD/build/sanitize/_kernels.so
export ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
export LD_PRELOAD="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libubsan.so)"
exec .venv/bin/python -m pytest -q -p no:cacheprovider tests/nn/test_kernel.py "$@"
