#!/usr/bin/env bash
# Install what local nodes are made of (e2e/nodes/local.py), and the browser and the Prometheus that tests look with,
# where this machine has apt-get and we are root. Anywhere else it says so and leaves the rest to the tests, which are
# then skipped with a reason.
set -euo pipefail

packages=(containerd runc containernetworking-plugins iptables iproute2 conntrack util-linux busybox)
packages+=(chromium fonts-dejavu-core prometheus)

missing=()
for package in "${packages[@]}"; do
    dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
done
if [ "${#missing[@]}" -eq 0 ]; then
    exit 0
fi
if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
    echo "e2e/nodes/packages.sh: no apt-get, or not root: ${missing[*]} are not installed"
    exit 0
fi
echo "e2e/nodes/packages.sh: installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
install() { apt-get install --yes --quiet --no-install-recommends "${missing[@]}" >/dev/null; }
install 2>/dev/null || { apt-get update --quiet >/dev/null && install; } || echo "e2e/nodes/packages.sh: apt-get failed"
