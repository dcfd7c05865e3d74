#!/bin/sh
# Install the Debian packages named on the command line that are missing. Without root it only says what is missing:
# the tests that need a missing program are skipped, each with its reason.
set -eu

missing=""
for package in "$@"; do
  case "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)" in
    *" installed") ;;
    *) missing="$missing $package" ;;
  esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "Missing Debian packages:$missing. Some tests are skipped without them; install them with: sudo apt-get install$missing" >&2
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 || {
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends $missing >/dev/null
}
