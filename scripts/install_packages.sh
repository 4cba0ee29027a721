#!/usr/bin/env bash
# install_packages.sh [LIST]: installs the missing packages of LIST (default: scripts/packages.txt) with apt-get,
# through sudo if needed. Prints nothing and takes milliseconds when nothing is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

mapfile -t wanted < <(sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' "${1:-scripts/packages.txt}")

if ! command -v dpkg-query >/dev/null; then
  echo "This is no Debian or Ubuntu, so nothing was installed. QCCL needs what these packages hold:" >&2
  echo "  ${wanted[*]}" >&2
  exit 0
fi

# dpkg-query fails if any package is unknown, and still lists the others.
installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null |
  sed -n 's/^installed //p' || true)
missing=()
for package in "${wanted[@]}"; do
  grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    as_root=(sudo)
  else
    echo "QCCL needs packages that are not installed, and this user can not install them. As root, run:" >&2
    echo "  apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
fi

echo "Installing ${missing[*]}"
apt_get=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300)
"${apt_get[@]}" update || echo "apt-get update failed; trying with the package lists there are" >&2
"${apt_get[@]}" install -y --no-install-recommends "${missing[@]}"
