# What ./trapline and ./test share: packages, configuring and building. Sourced by bash with `root` set to the
# clone and `me` to the name that messages start with. Everything it says goes to stderr; stdin is never read.

say() { printf '%s: %s\n' "$me" "$*" >&2; }
die() { say "$@"; exit 1; }

# packages GROUP...: prints the packages of these groups.
packages() {
  local group name
  while read -r group name; do
    case " $* " in *" $group "*) printf '%s\n' "$name" ;; esac
  done < "$root/cmake/packages.txt"
}

# missing GROUP...: prints those of them that are not installed.
missing() {
  local name
  for name in $(packages "$@"); do
    case $(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null) in
      installed*) ;;
      *) printf '%s ' "$name" ;;
    esac
  done
}

# apt_install PACKAGE...: quiet unless it fails.
apt_install() {
  local log
  log=$(mktemp) || return 1
  if env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=600 \
      install --no-install-recommends "$@" </dev/null >"$log" 2>&1; then
    rm -f "$log"
    return 0
  fi
  tail -n 15 "$log" >&2
  rm -f "$log"
  return 1
}

# apt_known PACKAGE...: whether apt's lists offer all of them.
apt_known() {
  local name
  for name in "$@"; do
    apt-cache show --no-all-versions "$name" >/dev/null 2>&1 || return 1
  done
}

# install_packages GROUP...: installs what is missing, or says what to install and fails.
install_packages() {
  local wanted
  command -v dpkg-query >/dev/null || {
    command -v ninja >/dev/null && return 0
    die "no dpkg here: install by hand what cmake/packages.txt lists (Debian's names)"
  }
  wanted=$(missing "$@")
  [ -n "$wanted" ] || return 0
  if [ "$(id -u)" != 0 ]; then
    say "packages are missing; ask an administrator for:"
    die "  apt-get install --no-install-recommends $wanted"
  fi
  say "installing: $wanted"
  PATH=$PATH:/usr/sbin:/sbin
  # shellcheck disable=SC2086  # names without blanks, to be split
  apt_known $wanted || apt-get -qq update </dev/null >&2 || say "apt-get update failed; trying all the same"
  # shellcheck disable=SC2086
  apt_install $wanted || die "apt-get could not install: $wanted"
}

# install_optional GROUP: tries each; one that cannot be had is named and forgiven. Servers among them are not started:
# where the system has no policy of its own for that (policy-rc.d), there is one meanwhile.
install_optional() {
  local name policy=/usr/sbin/policy-rc.d ours=
  [ "$(id -u)" = 0 ] && [ -n "$(missing "$@")" ] || return 0
  if [ ! -e "$policy" ]; then
    ours=$policy
    trap 'rm -f "$ours"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$ours" && chmod 755 "$ours"
  fi
  for name in $(missing "$@"); do
    say "installing: $name (optional)"
    apt_install "$name" || say "going on without $name"
  done
  [ -z "$ours" ] || { rm -f "$ours"; trap - EXIT; }
}

# configure PRESET: once, and again when the presets changed or the clone has moved.
configure() {
  local dir=$root/build/$1 home launcher=() fresh=()
  if [ -e "$dir/CMakeCache.txt" ]; then
    home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$dir/CMakeCache.txt")
    if [ "$home" != "$(cd "$root" && pwd -P)" ]; then
      fresh=(--fresh)
    elif [ -e "$dir/build.ninja" ] && [ ! "$root/CMakePresets.json" -nt "$dir/CMakeCache.txt" ]; then
      return 0
    fi
  fi
  if command -v ccache >/dev/null; then
    launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  say "configuring build/$1"
  mkdir -p "$dir" || return 1
  (cd "$root" && cmake "${fresh[@]}" --preset "$1" "${launcher[@]}") </dev/null >"$dir/configure.log" 2>&1 || {
    tail -n 30 "$dir/configure.log" >&2
    rm -f "$dir/CMakeCache.txt"
    say "configuring failed; all of it: build/$1/configure.log"
    return 1
  }
}

# show_progress LOG: copies ninja's output to the log and says now and then how far it is.
show_progress() {
  local line done_steps all last=0
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$1"
    if [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
      done_steps=${BASH_REMATCH[1]} all=${BASH_REMATCH[2]}
      if ((done_steps * 10 / all > last && done_steps < all)); then
        last=$((done_steps * 10 / all))
        say "  $done_steps of $all"
      fi
    fi
  done
}

# build PRESET [TARGET]: compiles what is out of date.
build() {
  local log=$root/build/$1/build.log
  : >"$log" || return 1
  say "building build/$1"
  (cd "$root" && cmake --build --preset "$1" ${2:+--target "$2"}) </dev/null 2>&1 | show_progress "$log"
  [ "${PIPESTATUS[0]}" = 0 ] || {
    grep -n -m 20 -E 'error|FAILED|undefined reference' "$log" >&2 || tail -n 30 "$log" >&2
    say "building failed; all of it: build/$1/build.log"
    return 1
  }
}

# locked COMMAND...: one at a time in this clone.
locked() {
  mkdir -p "$root/build" || return 1
  exec 9>"$root/build/.lock" || return 1
  if ! flock -n 9; then
    say "waiting for another build in this clone"
    flock 9
  fi
  "$@"
  local status=$?
  exec 9>&-
  return $status
}
