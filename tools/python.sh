# shellcheck shell=bash
# Sourced by every entry in tools/: chooses the Python, prepares .venv, runs a module of tools/aotools in it.
# $PYTHON names the interpreter to use; otherwise .venv's own, then python3 and python3.13 ... python3.10 on PATH.

aotools_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

# python_probe COMMAND: prints "ok VERSION PATH", or "no REASON"; runs on any Python.
python_probe() {
  "$1" -c '
import platform, sys
name, version = platform.python_implementation(), "%d.%d.%d" % sys.version_info[:3]
found = "%s %s at %s" % ("Python" if name == "CPython" else name, version, sys.executable)
if name != "CPython" or not (3, 10) <= sys.version_info[:2] <= (3, 13):
    print("no " + found)
elif "t" in sys.abiflags:
    print("no " + found + ", free-threaded")
elif sys.maxsize < 2**32:
    print("no " + found + ", 32 bits")
else:
    print("ok %s %s" % (version, sys.executable))' 2>/dev/null || echo "no $1: it does not run"
}

python_refuse() {
  cat >&2 <<TEXT
error: no Python that this project can use.
  needed: CPython 3.10, 3.11, 3.12 or 3.13 (torch 2.6.0 and 2.11.0 have wheels for all four)
  found:  $1
  to do:  install one, for example with one of
            apt-get install python3 python3-venv    (Debian 12 and 13, Ubuntu 22.04 and 24.04)
            uv python install 3.12
            pyenv install 3.12
          and run again with it first on PATH, or named: PYTHON=/path/to/python3.12
TEXT
  exit 2
}

# choose_python: sets aotools_python to the interpreter's path; refuses when there is none.
choose_python() {
  local candidate verdict found=''
  local -a candidates=()
  if [ -n "${PYTHON:-}" ]; then
    candidates=("$PYTHON")
  else
    candidates=("$aotools_root/.venv/bin/python" python3 python3.13 python3.12 python3.11 python3.10)
  fi
  for candidate in "${candidates[@]}"; do
    # A name that is not there is no finding, unless the user asked for it.
    [ -n "${PYTHON:-}" ] || command -v "$candidate" >/dev/null || continue
    verdict=$(python_probe "$candidate")
    if [ "${verdict%% *}" = ok ]; then
      verdict=${verdict#ok }
      aotools_python=${verdict#* }
      return 0
    fi
    found+="${found:+$'\n'          }${verdict#no }"
  done
  python_refuse "${found:-none of python3, python3.13 ... python3.10 is on PATH}"
}

# prepare_python: chooses the interpreter and points Python at this checkout's modules, and at nothing else.
prepare_python() {
  case $aotools_root in
    *:*)
      echo "error: this checkout's path holds a colon, which PYTHONPATH cannot carry: $aotools_root" >&2
      exit 2
      ;;
  esac
  choose_python
  # The user's own Python and PYTHONPATH are kept for --torch existing; here they could put another torch first.
  export AOTOOLS_USER_PYTHON=${AOTOOLS_USER_PYTHON-${PYTHON:-$(command -v python3 || true)}}
  export AOTOOLS_USER_PYTHONPATH=${AOTOOLS_USER_PYTHONPATH-${PYTHONPATH:-}}
  export PYTHONPATH=$aotools_root/tools:$aotools_root PYTHONSAFEPATH=1
  unset PYTHONHOME
}

# run_base MODULE ARGUMENTS...: runs a module that needs only the standard library, before there is a .venv.
run_base() {
  local module=$1
  shift
  prepare_python
  exec "$aotools_python" -m "$module" "$@"
}

# ensure_venv: makes or updates .venv from tools/requirements/tools.txt.
ensure_venv() {
  prepare_python
  "$aotools_python" -m aotools.env venv || exit $?
}

# run_tool MODULE ARGUMENTS...: ensures .venv and runs the module there.
run_tool() {
  local module=$1
  shift
  ensure_venv
  exec "$aotools_root/.venv/bin/python" -m "$module" "$@"
}
