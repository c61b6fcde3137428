#!/usr/bin/env bash
# Runs the tests with the first node that is at least version 18.

cd "$(dirname "$(readlink -f -- "${BASH_SOURCE[0]}")")" || exit 1
for node in node /usr/bin/node nodejs; do
  major=$("$node" -p 'process.versions.node.split(".")[0]' 2>/dev/null) || continue
  [ "$major" -ge 18 ] && exec "$node" --test test/
done
echo "skipped: no Node.js 18 or later"
exit 77
