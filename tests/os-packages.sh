#!/bin/sh
# What tests need of the operating system: a Chromium for the browser tests. Installed when root, else named.
set -eu
need=""
for name in chromium chromium-browser google-chrome; do
  command -v "$name" >/dev/null 2>&1 && exit 0
done
need="chromium"
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
  echo "tests: installing $need"
  apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$need" >/dev/null && exit 0
fi
echo "tests: no Chromium, so browser tests will be skipped; install it with: sudo apt-get install $need" >&2
