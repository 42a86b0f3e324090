#!/usr/bin/env bash
# Makes .venv with all that building, checking and testing joinsum needs. Safe to interrupt and to repeat.
# PYTHON names the interpreter (python3).
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}

say() { echo "==> $*"; }
die() { echo "setup: $*" >&2; exit 1; }

# Prints the Debian packages that this machine lacks.
missing_packages() {
  command -v g++ >/dev/null || echo g++
  command -v make >/dev/null || echo make
  command -v cmake >/dev/null || echo cmake
  echo '#include <gtest/gtest.h>' | g++ -std=c++20 -x c++ -E - >/dev/null 2>&1 || echo libgtest-dev
  command -v "$python" >/dev/null || echo python3
  "$python" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
  "$python" - 2>/dev/null <<'PROGRAM' || echo python3-dev
import pathlib, sys, sysconfig
sys.exit(not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists())
PROGRAM
}

say "looking for the compiler, CMake, GoogleTest and Python's headers"
mapfile -t missing < <(missing_packages)
if [ ${#missing[@]} -gt 0 ]; then
  install="apt-get install -y --no-install-recommends ${missing[*]}"
  command -v apt-get >/dev/null || die "install what Debian calls: ${missing[*]}"
  [ "$(id -u)" -eq 0 ] || die "missing system packages; run: sudo $install"
  say "installing system packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q
  $install
  say "installing ccache, which makes later builds short (optional)"
  apt-get install -y --no-install-recommends ccache || true
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} -eq 0 ] || die "installed, but still not found for $python: ${missing[*]}"
fi

# install_optional PACKAGES BEFORE FAILED OTHERWISE: as root, else only says what they are needed for.
install_optional() {
  local install="apt-get install -y --no-install-recommends $1"
  if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    say "$2"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -q && $install; } || say "$3: $install"
  else
    say "$4: sudo $install"
  fi
}

browsers=(chromium-headless-shell chromium chromium-browser google-chrome)
if ! command -v "${browsers[@]}" >/dev/null; then
  install_optional "chromium-headless-shell fonts-dejavu-core" \
    "installing Chromium, in which explain's pages are tested" \
    "Chromium was not installed; tests of pages need it" \
    "tests of explain's pages need Chromium and are skipped without it"
fi

if ! command -v mpirun >/dev/null || ! ldconfig -p | grep -q libscalapack-openmpi; then
  install_optional "libscalapack-openmpi2.2 libopenblas0-openmp openmpi-bin" \
    "installing ScaLAPACK, with which the benchmarks compare products" \
    "ScaLAPACK was not installed; the benchmarks run without it" \
    "the benchmarks compare products with ScaLAPACK if it is installed"
fi

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  die "the pinned tools need Python 3.11 or later: $("$python" --version); name one with PYTHON=..."

if .venv/bin/python -m pip --version >/dev/null 2>&1; then
  say "using .venv, $(.venv/bin/python --version)"
else
  say "creating .venv with $("$python" --version)"
  "$python" -m venv --clear .venv
fi

pip_install=(.venv/bin/python -m pip install --disable-pip-version-check)
torch=$(grep '^torch==' requirements-dev.txt)
say "installing $torch (large; first, so that nothing else pulls another build of it)"
"${pip_install[@]}" "$torch"
say "installing the tools of requirements-dev.txt"
"${pip_install[@]}" --requirement requirements-dev.txt
say "setup is done: next, make build or make test"
