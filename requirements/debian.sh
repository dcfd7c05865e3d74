#!/bin/sh
# Install the Debian packages named on the command line that are missing. Without root, or where there is no apt-get, it
# only says what is missing. Exit status 1 when the installation was tried and failed.
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
  echo "These Debian packages are missing; what needs them is skipped. To have them: sudo apt-get install$missing" >&2
  exit 0
fi
echo "Installing Debian packages:$missing …"
export DEBIAN_FRONTEND=noninteractive
# The first try needs no network where the lists of packages are fresh.
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1 && exit 0
apt-get update -qq || true
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $missing >/dev/null || {
  echo "Debian packages could not be installed:$missing" >&2
  exit 1
}
