#!/usr/bin/env bash
# Builds all fuzz targets with libFuzzer and sanitizers, in build/fuzz.

set -u
me=test
root=$(cd "$(dirname "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd -P)
. "$root/cmake/prepare.sh"
configure fuzz && build fuzz fuzzers
