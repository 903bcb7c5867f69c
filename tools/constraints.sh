#!/usr/bin/env bash
# Renew constraints.txt: install every extra and the build backend into a throwaway environment, and freeze it.
set -euo pipefail
cd "$(dirname "$0")/.."

# torch is chosen by hand: any other release would bring gigabytes of CUDA packages with it.
torch='torch==2.13.0'

# pip freezes no build backend, for it lives in an environment of its own: install it by hand.
backend=$("${PYTHON:-python3}" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])')

unset PIP_CONSTRAINT PIP_BUILD_CONSTRAINT  # make exports them, and the old pins must not bind the new ones
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"${PYTHON:-python3}" -m venv "$work/venv"
echo "$torch" > "$work/torch.txt"
"$work/venv/bin/pip" install -qq -c "$work/torch.txt" '.[all]' "$backend"
{
  echo '# Every version that make installs; renewed by "make constraints".'
  "$work/venv/bin/pip" freeze --all --exclude pip --exclude peephole | sed 's/^torch==.*/'"$torch"'/'
} > constraints.txt
