#!/usr/bin/env bash
# api_reference.sh FOLDER: writes the API reference to FOLDER/html. Fails if Doxygen has anything to say: a name without
# documentation, a parameter that is not there.

cd "$(dirname "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." || exit 1
[ $# = 1 ] || { echo "usage: api_reference.sh FOLDER"; exit 2; }
command -v doxygen >/dev/null || { echo "doxygen is not installed"; exit 1; }
rm -rf "$1/html"
mkdir -p "$1" || exit 1
DOXYGEN_OUTPUT=$1 doxygen docs/Doxyfile || exit 1
[ -s "$1/html/index.html" ] || { echo "nothing was written"; exit 1; }
pages=$(find "$1/html" -name '*trapline*.html' | wc -l)
echo "$pages pages, no warnings"
[ "$pages" -ge 10 ]
