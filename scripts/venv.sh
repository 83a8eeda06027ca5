#!/usr/bin/env bash
# Creates .venv and installs the tested versions into it; does nothing where that is already so.
#
# PYTHON=/path/to/python chooses the interpreter, otherwise the first usable one is taken. The stamp holds a
# fingerprint of everything the installation depends on and is written last: a half-finished installation has
# no stamp, a changed requirement has another one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly VENV=.venv
readonly STAMP=$VENV/.installed
# 3.12 and 3.13 come after 3.10: pybullet has no wheel for them and is compiled for minutes.
readonly CANDIDATES=(python3.11 python3.10 python3.12 python3.13 python3)

say() { printf '%s\n' "$*" >&2; }

stop() {
  say "make: $1"
  shift
  printf '  %s\n' "$@" >&2
  exit 1
}

# The minor version of Python 3 that "$1" runs, or nothing.
minor() { "$1" -c 'import sys; sys.version_info[0] == 3 and print(sys.version_info[1])' 2>/dev/null || true; }

supported() { [[ $1 == 10 || $1 == 11 || $1 == 12 || $1 == 13 ]]; }

# True where pybullet has to be compiled.
compiles() { [[ $1 == 12 || $1 == 13 ]]; }

find_python() {
  local found=() candidate version
  if [[ -n ${PYTHON:-} ]]; then
    version=$(minor "$PYTHON")
    supported "$version" || stop "PYTHON=$PYTHON is ${version:+Python 3.$version, }not a Python 3.10 to 3.13." \
      "Name another one (make PYTHON=/usr/bin/python3.11 …) or leave PYTHON out."
    printf '%s\n' "$PYTHON"
    return
  fi
  for candidate in "${CANDIDATES[@]}"; do
    version=$(minor "$candidate")
    if supported "$version"; then
      printf '%s\n' "$candidate"
      return
    fi
    [[ -z $version ]] || found+=("$candidate is Python 3.$version")
  done
  stop "no Python 3.10 to 3.13 on the PATH${found[*]:+ (${found[*]})}." \
    "Debian 12:     sudo apt install python3 python3-venv" \
    "Ubuntu 22.04+: sudo apt install python3 python3-venv" \
    "Elsewhere: install one of them and name it: make PYTHON=/path/to/python3.11 …"
}

check_tools() {
  local python=$1 version=$2
  "$python" -c 'import venv, ensurepip' 2>/dev/null ||
    stop "$python cannot create virtual environments: its venv or ensurepip module is missing." \
      "sudo apt install python3.$version-venv"
  ! compiles "$version" || command -v g++ >/dev/null ||
    stop "on Python 3.$version pybullet is compiled from source, and there is no g++." \
      "sudo apt install g++ python3.$version-dev" \
      "or take Python 3.11 or 3.10, for which there is a ready package: make PYTHON=python3.11 …"
}

# What an installation depends on: the interpreter, the place, the requirements.
fingerprint() {
  local version=$1
  {
    printf '%s %s\n' "$version" "$PWD"
    cat requirements.txt pyproject.toml "constraints/python3.$version.txt"
  } | cksum
}

# True where .venv works and is of the version that was asked for.
usable() {
  local have
  have=$(minor "$VENV/bin/python")
  [[ -n $have && $have == "$1" ]] && "$VENV/bin/python" -m pip --version >/dev/null 2>&1
}

install() {
  local constraints="constraints/python3.$1.txt" usual="about a minute, longer on a slow line"
  ! compiles "$1" || usual="several minutes, because pybullet is compiled"
  say "Installing the dependencies into $VENV with Python 3.$1 ($usual; 1.5 to 6 GB) …"
  local begin=$SECONDS
  "$VENV/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --no-input \
    --constraint "$constraints" --editable '.[all,dev]' ||
    stop "the installation failed; pip's message is above." \
      "Without a network nothing can be installed. Otherwise: rm -rf $VENV and run make again."
  "$VENV/bin/python" -m pip --disable-pip-version-check check >/dev/null ||
    stop "the installed packages contradict each other." "See: $VENV/bin/python -m pip check"
  say "Installed in $((SECONDS - begin)) s."
}

main() {
  local python version print
  version=$(minor "$VENV/bin/python")
  # An existing environment keeps its interpreter, unless another one was asked for.
  if [[ -n ${PYTHON:-} ]] || ! supported "$version"; then
    python=$(find_python)
    version=$(minor "$python")
  fi
  print=$(fingerprint "$version")
  if usable "$version" && [[ -f $STAMP && $(<"$STAMP") == "$print" ]]; then
    return
  fi
  rm -f "$STAMP"
  if ! usable "$version"; then
    python=${python:-$(find_python)}
    check_tools "$python" "$version"
    say "Creating $VENV with $python …"
    rm -rf "$VENV"
    "$python" -m venv "$VENV" || stop "$python -m venv failed." "sudo apt install python3.$version-venv"
  fi
  install "$version"
  printf '%s\n' "$print" >"$STAMP"
}

main
