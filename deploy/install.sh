#!/bin/sh
# Makes the virtual environment of a checkout: install.sh up|test. Needs Python 3.11 or newer and nothing else.
# Every package is pinned with its hashes (requirements/*.txt); run again it changes nothing.
set -eu
cd "$(dirname "$0")/.."
kind=${1:-up}
venv=${VENV:-.venv}
stamp="$venv/.installed-$kind"
wanted=$(cat "requirements/$kind.txt" pyproject.toml | cksum)
[ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && exit 0

fail() { echo "llmgw: $1" >&2; exit 1; }

python=${PYTHON:-}
if [ -z "$python" ]; then
  for name in python3.11 python3.12 python3.13 python3; do
    if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then python=$name; break; fi
  done
fi
[ -n "$python" ] || fail "Python 3.11 or newer is needed and none is on the PATH; install it, on Debian or Ubuntu with: sudo apt-get install python3 python3-venv"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "$python is older than Python 3.11; name a newer one with PYTHON=…"
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
  fail "this Python cannot make virtual environments; on Debian or Ubuntu: sudo apt-get install python3-venv"

began=$(date +%s)
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
# A larger set holds the smaller: `test` is `up` and more.
echo "llmgw: installing Python packages into $venv (the first time takes a minute or two)…"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r "requirements/$kind.txt" 2>"$venv/pip.log" ||
  { grep -v '^WARNING' "$venv/pip.log" >&2; fail "pip could not install requirements/$kind.txt (above)"; }
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --no-index -e . 2>>"$venv/pip.log" ||
  { tail -n 20 "$venv/pip.log" >&2; fail "pip could not install llmgw itself (above)"; }
echo "$wanted" >"$stamp"
echo "llmgw: packages installed in $(($(date +%s) - began)) s"
