#!/usr/bin/env bash
# build_site.sh [MKDOCS' ARGUMENTS]: builds the site into build/site; any warning fails. First makes .venv-docs with
# docs/requirements.txt in it, unless that was done with the same list.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=.venv-docs

exec 9<scripts/build_site.sh  # one at a time: `make docs` and `make test` may start together
flock 9
key=$({ cat docs/requirements.txt scripts/build_site.sh; .venv/bin/python -VV; } | sha256sum)
if [ "$(cat $venv/.qccl-stamp 2>/dev/null)" != "$key" ]; then
  echo "Setting up $venv (once, about 15 MB to fetch)"
  rm -rf $venv
  .venv/bin/python -m venv $venv
  $venv/bin/python -m pip --disable-pip-version-check install --quiet -r docs/requirements.txt
  echo "$key" >$venv/.qccl-stamp
fi
scripts/install_packages.sh scripts/packages_docs.txt
mkdir -p build
NO_MKDOCS_2_WARNING=1 $venv/bin/mkdocs build "$@" 2>build/site.log || { grep -v '^INFO' build/site.log >&2; exit 1; }
echo "The site is in build/site: open build/site/index.html"
