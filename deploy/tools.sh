#!/usr/bin/env bash
# The outside programs that check what is deployed: promtool and prometheus, helm, dclint and the
# AsyncAPI parser, in .tools/ of this clone.
#
# The second time it does nothing. Go and npm packages come from the hash locks in deploy/tools;
# Prometheus is Debian's package, unpacked and not installed, so that no service starts. What is slow
# to build is kept in the cache folder of this user, for every clone. What cannot be had is named,
# and the tests that need it fail in CI and are named as not run elsewhere.
#
#   usage: deploy/tools.sh [prometheus] [helm] [node]        without a name: all of them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "tools: $*" >&2; }
cache=${XDG_CACHE_HOME:-$HOME/.cache}/threadlog/tools
bin=.tools/bin
# A link of ours must not be taken for what it points to.
PATH=$(printf '%s' "$PATH" | tr : '\n' | grep -vxF "$PWD/$bin" | paste -sd :)
mkdir -p "$cache" "$bin"
status=0

# 1. Prometheus: the one on PATH, else unpacked from Debian's package.
prometheus() {
  local unpacked=$cache/prometheus name work
  if command -v promtool >/dev/null && command -v prometheus >/dev/null; then
    for name in promtool prometheus; do ln -sf "$(command -v "$name")" "$bin/$name"; done
    return
  fi
  if [ ! -x "$unpacked/usr/bin/promtool" ]; then
    command -v apt-get >/dev/null || { say "promtool is not on PATH, and there is no apt-get"; return 1; }
    say "unpacking prometheus (19 MB, once)"
    work=$(mktemp -d "$cache/unpack.XXXXXX")
    (cd "$work" && { apt-get download -qq prometheus >/dev/null 2>&1 ||
      { apt-get update -qq >/dev/null 2>&1 && apt-get download -qq prometheus >/dev/null; }; }) ||
      { rm -rf "$work"; say "apt-get cannot download prometheus"; return 1; }
    mkdir "$work/new"
    dpkg-deb -x "$work"/prometheus_*.deb "$work/new"
    rm -rf "$unpacked"
    mv "$work/new" "$unpacked"
    rm -rf "$work"
  fi
  for name in promtool prometheus; do ln -sf "$unpacked/usr/bin/$name" "$bin/$name"; done
}

# 2. helm, built from its module: nobody serves it as a package.
helm() {
  local version built
  version=$(sed -n 's|^\t*helm.sh/helm/v3 v|v|p; s|^require helm.sh/helm/v3 ||p' deploy/tools/go.mod | head -n 1)
  version=${version%% *}
  built=$cache/helm-$version
  if [ ! -x "$built" ]; then
    command -v go >/dev/null || { say "no go: helm $version cannot be built"; return 1; }
    say "building helm $version (about two minutes, once)"
    (cd deploy/tools && go build -o "$built.new.$$" helm.sh/helm/v3/cmd/helm) ||
      { rm -f "$built.new.$$"; say "helm $version does not build"; return 1; }
    mv "$built.new.$$" "$built"
  fi
  ln -sf "$built" "$bin/helm"
}
# 3. The npm packages, without their install scripts.
node() {
  command -v npm >/dev/null || { say "no npm: dclint and the AsyncAPI parser are missing"; return 1; }
  mkdir -p .tools/node
  if ! cmp -s deploy/tools/package-lock.json .tools/node/.installed; then
    cp deploy/tools/package.json deploy/tools/package-lock.json .tools/node/
    (cd .tools/node && npm ci --ignore-scripts --no-audit --no-fund --silent >&2) ||
      { say "npm cannot install deploy/tools/package-lock.json"; return 1; }
    cp deploy/tools/package-lock.json .tools/node/.installed
  fi
}

[ $# -gt 0 ] || set -- prometheus helm node
for name in "$@"; do
  case $name in
    prometheus) prometheus || status=1 ;;
    helm) helm || status=1 ;;
    node) node || status=1 ;;
    *) say "there is no $name; usage: deploy/tools.sh [prometheus] [helm] [node]"; exit 2 ;;
  esac
done
exit "$status"
