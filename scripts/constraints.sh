#!/usr/bin/env bash
# Resolves constraints/python3.*.txt from pyproject.toml, one set for each supported Python.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly TORCH=2.13.0

command -v uv >/dev/null || {
  echo "make constraints: uv is not on the PATH. Install it: pip install uv" >&2
  exit 1
}

for version in 3.10 3.11 3.12 3.13; do
  file=constraints/python$version.txt
  resolved=$(uv pip compile --quiet --no-header --no-annotate --extra all --extra dev \
    --python-version "$version" --python-platform x86_64-manylinux_2_28 \
    --constraint <(echo "torch==$TORCH") pyproject.toml)
  {
    echo "# Exact versions for Python $version on Linux x86-64, resolved by \`make constraints\`."
    echo "# The versions of Python that were tried, and how: docs/reliability.md."
    echo "# torch is pinned without a build, so a CPU wheel is taken where an index offers one; the CUDA packages are"
    echo "# left out because torch's own metadata pins them."
    grep -vE '^(nvidia-|cuda-|triton)' <<<"$resolved"
  } >"$file"
  echo "$file: $(grep -c == "$file") packages"
done
