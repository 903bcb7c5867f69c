#!/usr/bin/env bash
# Build the wheel and try it in an environment of its own, from a folder where src is out of reach; then another,
# built as on a machine without a C++ compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf dist
"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/pip" wheel -qq --no-deps -c constraints.txt -w dist .
CXX=/nonexistent "$work/venv/bin/pip" wheel -qq --no-deps -c constraints.txt -w "$work/loops" -C build-dir="$work/build" .
"$work/venv/bin/pip" install -qq -c constraints.txt dist/*.whl  # no extra: it must work without plots

export PATH="$work/venv/bin:$PATH"
cp tools/smoke.py "$work"
cd "$work"
unset PYTHONPATH PIP_CONSTRAINT PIP_BUILD_CONSTRAINT
python smoke.py
peephole --help > help.txt
peephole solve --inputs 4 --json > solution.json
python -m json.tool solution.json > /dev/null
pip install -qq --no-deps --force-reinstall loops/*.whl
python smoke.py loops
echo "the installed wheel works: $(cd "$OLDPWD" && ls dist)"
