# Sourced by the examples' run scripts. They define usage(), and change to the repository before they call `prepare`.
program=examples/$(realpath --relative-to="$(dirname "${BASH_SOURCE[0]}")/.." -- "$0")

# need OPTION VALUE...: an option that takes a value has one.
need() { [ $# -ge 2 ] && [ -n "$2" ] || { echo "$program: $1 needs a value" >&2; exit 2; }; }

step() { printf '\n== %s\n' "$*"; }

# prepare SETUP-ARGUMENTS...: installs what is missing and builds; $python is the Python to use then. Ends here after --dry-run.
prepare() {
  step "set-up"
  cmake/setup --for examples "$@"
  case " $* " in *" --dry-run "*) echo "Nothing is missing."; exit 0 ;; esac
  python=${REPRISE_PYTHON:-${REPRISE_VENVS:-$PWD}/.venv/bin/python}
  echo "$("$python" -c 'import sys, torch; print("Python %d.%d with torch %s" % (*sys.version_info[:2], torch.__version__))')"

  step "build (build/release)"
  # An existing build keeps its settings; a first one leaves out the tests, which need more packages.
  local configure=() builder
  [ -e build/release/CMakeCache.txt ] || configure=(-DREPRISE_TESTS=OFF -DREPRISE_BENCH=OFF)
  mkdir -p build
  { cmake --preset release "${configure[@]}" && cmake --build build/release; } >build/examples-build.log 2>&1 &
  builder=$!
  while sleep 1 && kill -0 $builder 2>/dev/null; do
    [ $((SECONDS % 15)) != 0 ] || echo "  $(tail -n 1 build/examples-build.log | cut -c1-120)"
  done
  if ! wait $builder; then
    tail -n 30 build/examples-build.log
    echo "$program: the build failed; the whole log is in build/examples-build.log" >&2
    exit 1
  fi
  tail -n 1 build/examples-build.log
}
