#!/usr/bin/env bash
# run_fuzz.sh [FLAGS]: builds the fuzz targets with clang's libFuzzer and runs each for a minute, or as set by
# libFuzzer's flags: -runs=1000000, -max_total_time=10. FUZZ=minmax runs only targets whose name contains that.
# Interesting inputs stay in build-fuzz/corpus, failing ones in build-fuzz/failures.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/install_packages.sh scripts/packages_fuzz.txt
version=$(clang -dumpversion | cut -d. -f1)
scripts/install_packages.sh <(echo "libclang-rt-$version-dev")

cmake --preset fuzz >/dev/null
cmake --build --preset fuzz --parallel "${JOBS:-$(nproc)}"

failed=()
codecs=$(build-fuzz/tests/fuzz/decoder_fuzz --names | sed 's/^/decoder_fuzz:/')
for target in $codecs compression_fuzz policy_fuzz meeting_fuzz peer_fuzz agreement_fuzz tls_fuzz; do
  name=${target/:/_}
  [[ $name == *"${FUZZ:-}"* ]] || continue
  echo "== $name"
  corpus=build-fuzz/corpus/$name
  mkdir -p "$corpus" build-fuzz/failures
  max_len=1024
  if [[ $target == agreement_fuzz ]]; then max_len=256; fi # some 30 messages
  if [[ $target == decoder_fuzz:* ]]; then max_len=20000; fi # 5000 floats: the largest block, top-k's, is 4096
  flags=("-max_len=$max_len" -len_control=10 -timeout=10 -print_final_stats=1)
  flags+=("-artifact_prefix=build-fuzz/failures/$name-")
  QCCL_FUZZ_CODEC=${target#*:} "build-fuzz/tests/fuzz/${target%:*}" "$corpus" "${flags[@]}" \
    "${@:--max_total_time=60}" || failed+=("QCCL_FUZZ_CODEC=${target#*:} build-fuzz/tests/fuzz/${target%:*}")
done
if [ ${#failed[@]} -gt 0 ]; then
  printf 'FAILED. Again: %s build-fuzz/failures/FILE\n' "${failed[@]}" >&2
  exit 1
fi
