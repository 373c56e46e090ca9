#!/usr/bin/env bash
# Everything that Threadlog needs is on this machine and in .venv: `run` to use it, `dev` to change it,
# `cluster` to use it with a Kafka broker and a Redis server of this clone.
#
# The second time it does nothing. It installs system packages only as root with apt-get; otherwise it
# names them in one line. Python packages come from the hash lock alone. Nothing outside this folder
# is changed but those system packages.
#
#   usage: deploy/install.sh run|dev|cluster        environment: PYTHON (default python3)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "$*" >&2; }
fail() { say "install: $*"; exit 1; }

kind=${1:-}
case $kind in
  run | cluster) packages=run lock=requirements.lock ;;
  dev) packages=dev lock=requirements-dev.lock ;;
  *) fail "usage: deploy/install.sh run|dev|cluster" ;;
esac
python=${PYTHON:-python3}
venv=.venv

# 1. Nothing to do when the stamp names this very state: folder, lock and package description.
# A stamp of the dev kind covers the run kind, whose lock is a part of its own.
state_of() { printf '%s %s\n' "$PWD" "$(cat "$1" pyproject.toml services/threadlog/version.py | cksum)"; }
is_current() { [ -f "$venv/.installed-$1" ] && [ "$(cat "$venv/.installed-$1")" = "$(state_of "$2")" ]; }
works() { [ -x "$venv/bin/python" ] && "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# 2. System packages. The sandbox needs bubblewrap, libseccomp and a Python under /usr for its helper.
has_seccomp() {
  local file
  for file in /lib/*/libseccomp.so.2 /usr/lib/*/libseccomp.so.2 /usr/lib*/libseccomp.so.2; do
    [ -e "$file" ] && return 0
  done
  return 1
}
# Each Debian has another one of these; a machine that never asked knows none of them.
java_package() {
  local version
  for version in 17 21 25; do
    apt-cache show "openjdk-$version-jre-headless" >/dev/null 2>&1 &&
      { echo "openjdk-$version-jre-headless"; return; }
  done
  echo default-jre-headless
}
java_is_new() { java -version 2>&1 | grep -Eq 'version "(1[7-9]|[2-9][0-9])'; }
missing=()
if [ "$(uname -s)" = Linux ]; then
  command -v bwrap >/dev/null || missing+=(bubblewrap)
  has_seccomp || missing+=(libseccomp2)
  [ -x /usr/bin/python3 ] || missing+=(python3)
  # Tests make a disk fail through it.
  [ "$kind" != dev ] || command -v strace >/dev/null || missing+=(strace)
  # A page in a real browser reads a live stream.
  [ "$kind" != dev ] || command -v chromium >/dev/null || missing+=(chromium)
else
  say "install: no sandbox on $(uname -s): tools run only with THREADLOG_SANDBOX=off"
fi
if ! works; then
  if command -v "$python" >/dev/null; then
    "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
  else
    missing+=(python3 python3-venv)
  fi
fi
# The broker is Java and comes through Maven. redis-tools, not redis-server: it has the same program,
# and starts no service on this machine.
if [ "$kind" != run ]; then
  java_is_new || missing+=("$(java_package)")
  command -v mvn >/dev/null || missing+=(maven)
  command -v redis-server >/dev/null || command -v redis-check-rdb >/dev/null || missing+=(redis-tools)
fi
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "install: system packages: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    # Someone else's apt-get may be at work; it is waited for.
    get() { apt-get -o DPkg::Lock::Timeout=120 "$@"; }
    if ! get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null 2>&1; then
      get update -qq >&2
      get install -y -qq --no-install-recommends "${missing[@]}" >&2
    fi
  else
    say "install: missing system packages, install them once: sudo apt-get install ${missing[*]}"
  fi
fi

if works && { is_current dev requirements-dev.lock || is_current "$packages" "$lock"; }; then
  exit 0
fi

# 3. The virtual environment, made anew when it was moved here from another folder or does not run.
if ! works || [ "$(cat "$venv/.folder" 2>/dev/null)" != "$PWD" ]; then
  command -v "$python" >/dev/null || fail "$python not found: install Python 3.11 or newer, or set PYTHON"
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$python is $("$python" --version 2>&1); Threadlog needs Python 3.11 or newer: set PYTHON"
  say "install: virtual environment in $venv"
  rm -rf "$venv"
  "$python" -m venv "$venv" >/dev/null ||
    { rm -rf "$venv"; fail "$python cannot make one: sudo apt-get install python3-venv"; }
  printf '%s\n' "$PWD" >"$venv/.folder"
fi

# 4. Python packages. Always `python -m`: a script's first line breaks in very long paths.
say "install: $lock"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check --no-input --quiet "$@"; }
rm -f "$venv"/.installed-*
pip install --require-hashes -r "$lock"
pip install --no-deps --no-build-isolation -e .
state_of "$lock" >"$venv/.installed-$packages"
