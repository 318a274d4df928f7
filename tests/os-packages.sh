#!/bin/sh
# What tests need of the operating system: a Chromium for the browser tests, and Prometheus's promtool (unpacked into the
# virtual environment: nothing is installed that would start). Fetched when root on Debian or Ubuntu, else named.
set -eu
tools="${VENV:-.venv}/tools"
apt="no"
[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && apt="yes"
updated="no"
update() { [ $updated = yes ] || apt-get update -qq >/dev/null; updated=yes; }

has() { for name in "$@"; do command -v "$name" >/dev/null 2>&1 && return 0; done; return 1; }

if ! has chromium chromium-browser google-chrome; then
  if [ $apt = yes ]; then
    echo "tests: installing chromium"
    update && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null ||
      echo "tests: no Chromium, so browser tests will be skipped" >&2
  else
    echo "tests: no Chromium, so browser tests will be skipped; install it with: sudo apt-get install chromium" >&2
  fi
fi

if ! has promtool "$tools/promtool"; then
  if [ $apt = yes ]; then
    echo "tests: fetching promtool"
    work=$(mktemp -d)
    { update && (cd "$work" && apt-get download -qq prometheus >/dev/null 2>&1) && dpkg-deb -x "$work"/*.deb "$work/x" &&
      mkdir -p "$tools" && mv "$work/x/usr/bin/promtool" "$tools/promtool"; } ||
      echo "tests: no promtool, so Prometheus's own check of the metrics will be skipped" >&2
    rm -rf "$work"
  else
    echo "tests: no promtool, so Prometheus's own check of the metrics will be skipped; it is in the package prometheus" >&2
  fi
fi
