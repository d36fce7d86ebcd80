#!/bin/sh
# Installs the Debian packages named as arguments without letting any of them start a service of its own.
set -eu

# Two checkouts may install at the same time; the policy file below must not be moved twice.
exec 9>/run/oncemq-install.lock
flock 9

policy=/usr/sbin/policy-rc.d
kept=$policy.before-oncemq
restore() {
    rm -f "$policy"
    if [ -e "$kept" ]; then mv "$kept" "$policy"; fi
}
if [ -e "$policy" ]; then mv "$policy" "$kept"; fi
trap restore EXIT
trap 'exit 1' HUP INT TERM
printf '#!/bin/sh\nexit 101\n' > "$policy"
chmod 755 "$policy"

export DEBIAN_FRONTEND=noninteractive
install() {
    apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" < /dev/null
}
# Package lists may be absent or older than the mirror: only then are they fetched.
install "$@" || { apt-get update -qq < /dev/null && install "$@"; }

# The packages ask systemd to start them at the next boot; the tests bring instances of their own.
if [ -d /run/systemd/system ]; then
    for package in "$@"; do
        systemctl disable --quiet "$package" "${package%-server}" 2>/dev/null || true
    done
fi
