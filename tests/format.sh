#!/usr/bin/env bash
# Checks that every C and C++ file is as clang-format 19 would write it. `tests/format.sh --fix` rewrites them.

set -u
cd "$(dirname "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." || exit 1
command -v clang-format-19 >/dev/null || { echo "clang-format-19 is not installed"; exit 1; }
mapfile -t files < <(find src include tools tests bench fuzz examples -type f \
  \( -name '*.cc' -o -name '*.h' -o -name '*.c' -o -name '*.hpp' \) 2>/dev/null | sort)
[ "${#files[@]}" -gt 0 ] || { echo "no files found"; exit 1; }
if [ "${1-}" = --fix ]; then
  exec clang-format-19 -i "${files[@]}"
fi
log=$(mktemp) || exit 1
printf '%s\0' "${files[@]}" | xargs -0 -n 20 -P 2 clang-format-19 --dry-run -Werror >"$log" 2>&1
status=$?
bad=$(sed -n 's/^\([^:]*\):[0-9]*:.*clang-format-violations.*/\1/p' "$log" | sort -u)
[ "$status" = 0 ] || head -n 40 "$log"
rm -f "$log"
if [ -n "$bad" ]; then
  printf 'not formatted (run tests/format.sh --fix):\n%s\n' "$bad"
fi
echo "${#files[@]} files checked"
[ "$status" = 0 ]
