#!/bin/sh
# Installs into a prefix of its own and builds consumers against it: by find_package, by pkg-config. Usage: install_test.sh BUILD_DIR CMAKE CC
set -eu
build=$1 cmake=$2 cc=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

"$cmake" --install "$build" --prefix "$prefix" >"$work/install.log" 2>&1 || { cat "$work/install.log"; exit 1; }
library=$(find "$prefix" -name libreprise.so)
test -n "$library" || { echo "libreprise.so was not installed"; find "$prefix"; exit 1; }
libdir=$(dirname "$library")
for file in "$prefix/include/reprise/reprise.h" "$prefix/include/reprise/reprise.hpp" "$libdir/pkgconfig/reprise.pc" "$libdir/cmake/reprise/reprise-config.cmake" \
            "$libdir/cmake/reprise/reprise-config-version.cmake" "$libdir/cmake/reprise/reprise-targets.cmake"; do
    test -f "$file" || { echo "not installed: $file"; find "$prefix"; exit 1; }
done
# What was built has to be installed too.
for name in libreprise_engine.so libreprise_parallel.so; do
    ! test -f "$build/$name" || test -f "$libdir/reprise/$name" || { echo "built but not installed: $name"; exit 1; }
done
! test -d "$build/reprise-private" || test -d "$libdir/reprise/reprise-private" || { echo "built but not installed: reprise-private"; exit 1; }
! test -d "$build/python/attach" || test -f "$libdir/reprise/python/attach/sitecustomize.py" || { echo "not installed: python/attach"; exit 1; }
# Nothing in the prefix may point back into the build tree.
if grep -rlF "$build" "$prefix" >"$work/leaks" 2>/dev/null; then echo "the build folder is named in:"; cat "$work/leaks"; exit 1; fi

mkdir "$work/consumer"
cat >"$work/consumer/main.c" <<'END'
#include <reprise/reprise.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    char *buffer = malloc(1 << 20);
    memset(buffer, 1, 1 << 20);
    reprise_segment segment = reprise_segment_begin("consumer", 0);
    if (segment.status == REPRISE_OK) {
        if (reprise_segment_end(segment) != REPRISE_OK) return 1;
    } else if (segment.status != REPRISE_UNAVAILABLE) {
        return 2;
    }
    printf("%s %d\n", reprise_version(), segment.status);
    free(buffer);
    return 0;
}
END
cat >"$work/consumer/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.20)
project(consumer C)
find_package(reprise 0.1 REQUIRED)
add_executable(consumer main.c)
target_link_libraries(consumer PRIVATE reprise::reprise)
END
"$cmake" -S "$work/consumer" -B "$work/consumer/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" >"$work/consumer.log" 2>&1 &&
    "$cmake" --build "$work/consumer/build" >>"$work/consumer.log" 2>&1 || { cat "$work/consumer.log"; exit 1; }
REPRISE_LOG=off "$work/consumer/build/consumer" | grep -q '^0\.1\.0 [09]$'

flags=$(PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config --cflags --libs reprise)
test "$(realpath "$(PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config --variable=preload reprise)")" = "$(realpath "$library")"
# shellcheck disable=SC2086
"$cc" "$work/consumer/main.c" -o "$work/by-pkg-config" $flags -Wl,-rpath,"$libdir"
REPRISE_LOG=off "$work/by-pkg-config" | grep -q '^0\.1\.0 [09]$'

# The installed preload finds what lies beside it.
status=$(REPRISE_LOG=off LD_PRELOAD=$library "$work/by-pkg-config" | cut -d' ' -f2)
if test -f "$libdir/reprise/libreprise_engine.so" && test "$status" != 0; then
    echo "the installed engine was not found or does not work:"
    LD_PRELOAD=$library "$work/by-pkg-config" || true
    exit 1
fi
echo "installed and used"
