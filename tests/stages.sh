# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# The stages of `./run test` and `./run lint` around ctest; sourced by `run`, whose setup, compile, say and
# timers it uses. A stage sets `result` to what the table shows and adds to `passed`, `failed` and `skipped`:
# GoogleTest cases are counted once, from the release build; a case that fails under a sanitizer, a
# fuzzer with a finding, a failed build or an unformatted file each count as failed.
: "${root:?stages.sh is sourced by run}"
# shellcheck source=tests/ptxas_notes.sh
source "$root/tests/ptxas_notes.sh"

# Suites that touch bytes from outside or own memory by hand: the sampled address-sanitizer run.
readonly risky_suites=(core device checkpoint media tokenizer chat cache scheduler engine server server_integration)
# Suites with more than one thread, and the longest ones of the server's that are about texts: one client that asks for
# one answer after the other.
readonly threaded_suites=(device distributed media runner engine server server_integration)
readonly text_cases="*AnswerMatrix*:*LooseAnswers*:StructuredOutputTest.*:OddHistoriesTest.*:AnswerFormTest.*:ForcedCallsTest.*:JsonTextTest.*"
# Statistics over long simulations, which the address sanitizer makes no truer.
readonly statistical_cases="DraftRegretTest.*"
# Compiled with the thread sanitizer's suites, though none of them runs it: tools/ and, below it, verify/. clang proves
# their locks (-Wthread-safety); those of test code are left to ./run lint.
readonly proven_targets=(heddle_tools)

# The limit of the tracked files, which every clone carries; larger data lies below HEDDLE_SHARED.
readonly max_tree_mib=38
# The limit of the program with its kernels, stripped, and of the libraries that travel with it.
readonly max_program_kb=24000
readonly full_fuzzing_seconds=900

program_limit_seconds=900
asan=asan tsan=tsan  # the presets of the address sanitizer with the fuzz targets, and of the thread sanitizer
passed=0 failed=0 skipped=0 result="" full=no built="" num_test_jobs=1 table=()

# stage NAME COMMAND...: runs a stage and notes its result and time for the table.
stage() {
  local name="$1" start before="$failed" mark=ok
  shift
  start="$(now_ms)"
  result="ok"
  say test "$name ..."
  "$@" || { ((failed > before)) || failed=$((failed + 1)); }
  if ((failed > before)); then
    mark=FAILED
    [[ $result != ok ]] || result="see above"
  fi
  table+=("$(printf '%-34s %-7s %8s s   %s' "$name" "$mark" "$(seconds_since "$start")" "$result")")
}

print_summary() {
  printf '\n%s\n' "stage                              result      time     what" >&2
  printf '%s\n' "${table[@]}" >&2
  printf '\n' >&2
  local line="$passed passed, $failed failed"
  ((skipped)) && line+=", $skipped skipped"
  printf '%s\n' "$line"
}

# --- GoogleTest programs ------------------------------------------------------------------------

# count_cases NAME DIR EXIT_CODE: prints "passed failed skipped" from the program's report, or from its
# log when it died before writing one; the case it died in, and a bad exit without one, are failures.
count_cases() {
  local report="$2/$1.json" log="$2/$1.log" code="$3"
  if [[ -s $report ]]; then
    awk -v code="$code" '
      /"failures":/ && !seen { seen = 1; split($0, field, /[:,]/); failures = field[2] + 0 }
      /"result": "COMPLETED"/ { completed++ }
      /"result": "SKIPPED"/ { skipped++ }
      END {
        if (code != 0 && failures == 0) failures = 1
        print (completed > failures ? completed - failures : 0), failures, skipped + 0
      }' "$report"
  else
    awk -v code="$code" '
      /^\[ RUN      \]/ { open = 1 }
      /^\[       OK \] .*\(/ { open = 0; passed++ }
      /^\[  FAILED  \] .*\([0-9]+ ms\)$/ { open = 0; failed++ }
      /^\[  SKIPPED \] .*\(/ { open = 0; skipped++ }
      END {
        failed += open
        if (code != 0 && failed == 0) failed = 1
        print passed + 0, failed + 0, skipped + 0
      }' "$log"
  fi
}

# explain_failure NAME LOG: what the failed cases printed, or the end of the log when the program died.
explain_failure() {
  {
    printf '\n--- %s (all of it: %s) ---\n' "$1" "$2"
    awk '
      /^\[ RUN      \]/ { lines = 0 }
      { buffer[++lines] = $0 }
      /^\[  FAILED  \] .*\([0-9]+ ms\)$/ {
        for (i = (lines > 60 ? lines - 59 : 1); i <= lines; i++) print buffer[i]
        lines = 0
      }' "$2" | head -n 400
    grep -q '^\[  PASSED  \]' "$2" || tail -n 60 "$2"
    printf -- '---\n\n'
  } >&2
}

# log_of NAME LOG: what the test NAME printed, from the log of ctest.
log_of() {
  awk -v name="$1" '
    /^[0-9]+\/[0-9]+ Test: / { on = ($3 == name) }
    on { print }
    on && /^Test time = / { exit }' "$2"
}

# run_programs PRESET COUNT SUITES FILTER: runs the test programs of build/PRESET through ctest, as many at a
# time as there are cores. SUITES is a list of folders, or empty for all; FILTER is GoogleTest's, or empty.
# COUNT says whether passed and skipped cases enter the sum.
run_programs() {
  local preset="$1" count="$2" suites="$3" filter="$4"
  local build="$root/build/$preset" dir="$root/build/$preset/test-results" launcher=() selection=()
  local names=() name p f s code sum_p=0 sum_f=0 sum_s=0 failed_names=" " broken=0
  local log="$build/Testing/Temporary/LastTest.log"
  rm -rf "$dir" "$log" "$build/Testing/Temporary/LastTestsFailed.log"
  mkdir -p "$dir"
  # The thread sanitizer needs the plain address layout that newer kernels randomise too widely.
  [[ $preset == "$tsan" ]] && setarch -R true 2>/dev/null && launcher=(setarch -R)
  [[ -z $suites ]] || selection=(--tests-regex "^heddle_(${suites// /|})_test(-|\$)")
  (
    cd "$root"
    [[ -z $filter ]] || export GTEST_FILTER="$filter"
    "${launcher[@]}" ctest --preset "$preset" --parallel "$num_test_jobs" \
      --timeout "$program_limit_seconds" "${selection[@]}" </dev/null
  ) >"$dir/ctest.log" 2>&1 || broken=1
  if [[ $broken == 1 && -s $build/Testing/Temporary/LastTestsFailed.log ]]; then
    failed_names=" $(cut -d: -f2 "$build/Testing/Temporary/LastTestsFailed.log" | tr '\n' ' ') "
  fi
  [[ ! -s $log ]] || read_lines names "$(sed -n 's|^[0-9]*/[0-9]* Test: ||p' "$log" | sort)"
  for name in "${names[@]}"; do
    code=0
    [[ $failed_names != *" $name "* ]] || code=1
    log_of "$name" "$log" >"$dir/$name.log"
    read -r p f s <<<"$(count_cases "$name" "$dir" "$code")"
    sum_p=$((sum_p + p)) sum_f=$((sum_f + f)) sum_s=$((sum_s + s))
    if ((p + f + s > 0)); then
      printf '    %-36s %5d passed %3d failed %3d skipped %8s s\n' "$name" "$p" "$f" "$s" \
        "$(sed -n 's/^Test time = *\([0-9.]*\) sec$/\1/p' "$dir/$name.log")" >&2
    fi
    ((f)) && explain_failure "$name" "$dir/$name.log"
  done
  if ((broken && sum_f == 0)); then  # ctest itself: a program that is missing, a preset it cannot read
    tail -n 20 "$dir/ctest.log" >&2
    sum_f=1
  fi
  failed=$((failed + sum_f))
  if [[ $count == yes ]]; then
    passed=$((passed + sum_p)) skipped=$((skipped + sum_s))
  fi
  result="$sum_p passed, $sum_f failed"
  ((sum_s)) && result+=", $sum_s skipped"
  if ((sum_p + sum_f + sum_s == 0)); then
    result="no test ran"
    return 1
  fi
}

# suite_of heddle_cache_test: "cache"
suite_of() {
  local name="${1#heddle_}"
  echo "${name%_test}"
}

# suites_of PRESET: what a whole sanitized run takes of this build. Without the integration tests, of which a
# sample takes half an hour with a sanitizer; the parts that they join are all there.
suites_of() {
  local name path
  while read -r name path; do
    [[ $name == heddle_integration_test ]] || suite_of "$name"
  done <"$root/build/$1/test_programs.txt" | paste -sd ' '
}

# read_lines ARRAY TEXT: not from a process substitution, whose end `wait -n` takes for a program's.
read_lines() {
  [[ -z $2 ]] || mapfile -t "$1" <<<"$2"
}

# targets_of PRESET SUITES: the programs of these folders that this build has.
targets_of() {
  local name path
  while read -r name path; do
    [[ " $2 " == *" $(suite_of "$name") "* ]] && echo "$name"
  done <"$root/build/$1/test_programs.txt"
}

# --- stages -------------------------------------------------------------------------------------

stage_build_program() { compile release heddle; }

stage_build_tests() { compile release; }

# With --full the whole matrices and a million scenarios of the label oracle, which take hours; the
# sanitized runs that follow make do with the samples.
stage_tests() {
  if [[ $full == yes ]]; then
    HEDDLE_TEST_FULL=1 HEDDLE_ORACLE_SCENARIOS="${HEDDLE_ORACLE_SCENARIOS:-1000000}" \
      run_programs release yes "" ""
  else
    run_programs release yes "" ""
  fi
}

stage_sanitized() {  # PRESET SUITES FILTER
  local preset="$1" suites="$2" filter="$3" targets=() names=()
  update_program_lists "$preset" || return 1
  [[ $full == yes ]] && suites="$(suites_of "$preset")" filter=""
  read_lines targets "$(targets_of "$preset" "$suites")"
  [[ $preset != "$asan" ]] || read_lines names "$(cut -d' ' -f1 "$root/build/$asan/fuzz_programs.txt")"
  targets+=("${names[@]}")
  [[ $preset != "$tsan" ]] || targets+=("${proven_targets[@]}")
  compile "$preset" "${targets[@]}" || {
    result="the build failed"
    return 1
  }
  built+=" $preset"
  local shared="${HEDDLE_SHARED:-}"
  [[ $full == yes ]] || shared=""  # the larger data sets would take minutes here
  HEDDLE_SHARED="$shared" run_programs "$preset" no "$suites" "$filter"
}

# Each target for a quarter of a minute, that of GGUF files, which people bring from anywhere, for a minute; with
# --full all of them together for a quarter of an hour.
stage_fuzz() {
  local seconds=15 running=0 findings=0 programs=0 limit name path dir work corpus
  [[ $full == no ]] ||
    seconds=$((full_fuzzing_seconds * num_test_jobs / $(wc -l <"$root/build/$asan/fuzz_programs.txt")))
  dir="$root/build/$asan/fuzz"
  mkdir -p "$dir"
  while read -r name path; do
    [[ -n $name ]] || continue
    programs=$((programs + 1))
    if ((running == num_test_jobs)); then
      wait -n || true
      running=$((running - 1))
    fi
    corpus="$root/tests/fuzz/corpus/$name"
    work="$dir/$name"
    mkdir -p "$work"
    limit=$seconds
    [[ $full == yes || $name != gguf_fuzz ]] || limit=60
    (
      code=0
      arguments=("$work")
      [[ -d $corpus ]] && arguments+=("$corpus")
      "$path" -max_total_time="$limit" -timeout=20 -rss_limit_mb=3072 -print_final_stats=1 \
        -artifact_prefix="$dir/$name-" "${arguments[@]}" >"$dir/$name.log" 2>&1 </dev/null || code=$?
      echo "$code" >"$dir/$name.code"
    ) &
    running=$((running + 1))
  done <"$root/build/$asan/fuzz_programs.txt"
  wait
  while read -r name path; do
    [[ -n $name ]] || continue
    printf '    %-36s %9s inputs\n' "$name" \
      "$(awk '/stat::number_of_executed_units/ { print $2 }' "$dir/$name.log")" >&2
    if [[ $(<"$dir/$name.code") != 0 ]]; then
      findings=$((findings + 1))
      explain_failure "$name" "$dir/$name.log"
    fi
  done <"$root/build/$asan/fuzz_programs.txt"
  failed=$((failed + findings))
  result="$programs targets for $seconds s or more each, $findings with a finding"
}

sources_to_format() {
  local folder
  for folder in include src tools tests bench examples; do
    [[ -d $root/$folder ]] || continue
    find "$root/$folder" \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0
  done
}

# start_served NAME MODEL [options]: serves a model for stage_clients; sets `server` and `address`.
start_served() {
  local log="$root/build/release/clients/$1.log" i
  "$root/build/release/bin/heddle" serve "$2" --served-model-name "$1" --port 0 --tool-call-parser qwen "${@:3}" \
    </dev/null >"$log" 2>&1 &
  server=$!
  address=""
  for ((i = 0; i < 600; i++)); do
    address="$(sed -n 's|.* at \(http://[^ ]*\): .*|\1|p' "$log" | head -n 1)"
    [[ -z $address ]] || break
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
}

# Client libraries and curl against a served heddle-tiny and a scripted model (tests/clients/README.md).
stage_clients() {
  local dir="$root/build/release/clients" libraries="$root/build/clients" address="" server program name failures=0 count=0
  local programs=("$root/tests/clients/curl.sh") scripted=() missing="" model
  mkdir -p "$dir"
  if ! command -v node >/dev/null || [[ ! -d $libraries/node_modules ]]; then
    missing="; no client libraries: ./run setup --clients installs them where there is node"
  else
    programs+=("$root"/tests/clients/{openai,anthropic,ollama,openapi,dashboard}.mjs)
    scripted=("$root"/tests/clients/{openai_helpers,anthropic_helpers,ollama_helpers,ai_sdk,langchain,dashboard_chat}.mjs)
    node "$root/tests/clients/scripted_model.mjs" "$dir/scripted"
    if [[ -d $root/build/agents/node_modules ]]; then
      scripted+=("$root/tests/clients/agents.mjs")
    else
      missing+="; no coding agents: ./run setup --agents installs them (660 MB)"
    fi
  fi
  for model in heddle-tiny scripted; do
    if [[ $model == heddle-tiny ]]; then
      start_served heddle-tiny "$root/models/heddle-tiny"
    else
      ((${#scripted[@]})) || break
      start_served scripted "$dir/scripted" --reasoning-parser qwen3 --max-total-tokens 65536
      programs=("${scripted[@]}")
    fi
    for program in "${programs[@]}"; do
      name="${program##*/}" count=$((count + 1))
      if [[ -n $address ]] && HEDDLE_CLIENTS="$libraries" HEDDLE_AGENTS="$root/build/agents" \
        HEDDLE_PROGRAM="$root/build/release/bin/heddle" timeout 300 \
        "$([[ $name == *.sh ]] && echo bash || echo node)" "$program" "$address" >"$dir/$name.log" 2>&1; then
        passed=$((passed + 1))
      else
        failures=$((failures + 1))
        printf '\n--- %s (server: %s) ---\n' "$name" "$dir/$model.log" >&2
        tail -n 40 "$dir/$name.log" "$dir/$model.log" >&2
      fi
    done
    kill -INT "$server" 2>/dev/null || true
    wait "$server" || true
  done
  failed=$((failed + failures))
  result="$count programs, $failures failed$missing"
}

stage_format() {
  local files
  if ! command -v clang-format-19 >/dev/null; then
    result="skipped: no clang-format-19"
    return
  fi
  files="$(sources_to_format | xargs -0 -r clang-format-19 --dry-run 2>&1 |
    sed -n 's|^\(.*\):[0-9]*:[0-9]*: warning: .*|\1|p' | sort -u)"
  if [[ -n $files ]]; then
    printf 'not formatted; repair with clang-format-19 -i:\n%s\n' "$files" >&2
    result="$(wc -l <<<"$files") files are not formatted"
    return 1
  fi
}

stage_tree_size() {
  local bytes
  if ! git -C "$root" rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    result="skipped: no git checkout"
    return
  fi
  bytes="$(cd "$root" && git ls-files -z | xargs -0 -r stat -c %s -- 2>/dev/null | awk '{ sum += $1 } END { print sum + 0 }')"
  result="$((bytes / 1024)) of $((max_tree_mib * 1024)) KiB"
  if ((bytes > max_tree_mib * 1024 * 1024)); then
    echo "The tracked files are larger than $max_tree_mib MiB: drop or shrink data, or move it below HEDDLE_SHARED." >&2
    return 1
  fi
}

stage_shell() {
  if ! command -v shellcheck >/dev/null; then
    result="skipped: no shellcheck"
    return
  fi
  (cd "$root" && shellcheck -x run .ci/run cmake/keep_log.sh tests/stages.sh tests/clients/curl.sh \
    bench/{cuda_report,repeat_under_load}.sh) >&2
}

stage_tidy() { compile tidy; }

# Builds the CUDA programs, looks at what the assembler says of slow kernels and at the size of what travels, and where
# there is no GPU at how they do without.
stage_build_cuda() {
  local build="$root/build/cuda" bytes library slowest objects=() notes
  compile cuda || return 1
  read_lines objects "$(find "$build" -name '*.cu.o' | sort)"
  notes="$(ptxas_notes "$allowed_ptxas_notes" "${objects[@]/%/.log}")" || return 1
  if [[ -n $notes ]]; then
    printf 'slow code in CUDA kernels (tests/ptxas_notes.sh has the list of what is accepted):\n%s\n' "$notes" >&2
    result="$(wc -l <<<"$notes") notes on slow code"
    return 1
  fi
  strip -o "$build/stripped" "$build/bin/heddle"
  bytes="$(stat -c %s "$build/stripped")"
  for library in $(libraries_of "$build/bin/heddle"); do
    bytes=$((bytes + $(stat -Lc %s "$library")))
  done
  slowest="$(awk '$4 ~ /\.cu\.o$/ { print int(($2 - $1) / 1000), $4 }' "$build/.ninja_log" | sort -rn | head -n 1)"
  result="program and libraries $((bytes / 1000)) of $max_program_kb kB; slowest kernels ${slowest%% *} s"
  if ((bytes > max_program_kb * 1000)); then
    echo "build/cuda/bin/heddle, stripped, and its libraries are larger than $max_program_kb kB" >&2
    return 1
  fi
  "$build/src/heddle_runner_test" --gtest_filter='ChooseDevice.*' >&2
}

# Says which suites of CUDA the newest report of a GPU (bench/cuda_report.sh) has not run.
name_unreported_suites() {
  local report suites missing
  report="$(find "$root/bench/results" -name "*suites.json" -printf "%f %p\n" 2>/dev/null | sort | tail -n 1 | cut -d " " -f 2-)"
  suites="$(sed -n 's|.*"name": "Cuda\\/\([^"\\]*\)",$|Cuda/\1|p' "$root"/build/release/test-results/*.json | sort -u)"
  [[ -n $suites ]] || return 0
  if [[ -z $report ]]; then
    say test "no report of a GPU in bench/results; CUDA suites without one: $(wc -l <<<"$suites")"
    return 0
  fi
  missing="$(comm -23 <(echo "$suites") <(grep -o 'Cuda/[A-Za-z0-9_]*' "$report" | sort -u))"
  [[ -z $missing ]] ||
    say test "the report ${report#"$root/"} lacks these suites: $(tr '\n' ' ' <<<"$missing")"
}

has_cuda_sources() { [[ -n $(find "$root/src" -name '*.cu' -print -quit) ]]; }

# --- verbs --------------------------------------------------------------------------------------

run_stages() {
  local filter="" start
  start="$(now_ms)"
  num_test_jobs="$(nproc)"
  while (($#)); do
    case "$1" in
      --full) full=yes asan=asan-full tsan=tsan-full program_limit_seconds=14400 ;;
      -*) die "test does not know '$1'; ./run help lists what it takes" ;;
      *) filter="$1" ;;
    esac
    shift
  done
  export ASAN_OPTIONS="detect_stack_use_after_return=1:strict_string_checks=1:${ASAN_OPTIONS:-}"
  export UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
  export TSAN_OPTIONS="second_deadlock_stack=1:${TSAN_OPTIONS:-}"

  if [[ -n $filter ]]; then
    setup
    run_filtered "$filter"
  else
    setup --full
    stage "build the program" stage_build_program
    ((failed)) || stage "build the tests" stage_build_tests
    if ((failed == 0)); then
      stage "tests" stage_tests
      stage "clients" stage_clients
      stage "format" stage_format
      stage "size of the tracked files" stage_tree_size
      [[ $full == yes ]] && stage "shellcheck" stage_shell
      if has_cuda_sources && has_nvcc; then
        stage "build cuda" stage_build_cuda
      fi
      name_unreported_suites
      stage "address, undefined sanitizers" stage_sanitized "$asan" "${risky_suites[*]}" "-$statistical_cases"
      if [[ $built == *" $asan"* && -s $root/build/$asan/fuzz_programs.txt ]]; then
        stage "fuzzing" stage_fuzz
      fi
      stage "thread sanitizer" stage_sanitized "$tsan" "${threaded_suites[*]}" "-$text_cases"
    fi
  fi
  say test "took $(seconds_since "$start") s"
  print_summary
  ((failed == 0 && passed > 0))
}

# run_filtered FILTER: a folder's tests, or the cases a GoogleTest filter names.
run_filtered() {
  local targets=()
  update_program_lists release || {
    failed=1
    return
  }
  read_lines targets "$(targets_of release "$1")"
  if ((${#targets[@]})); then
    stage "build ${targets[*]}" compile release "${targets[@]}"
    ((failed)) || stage "tests of $1" run_programs release yes "$1" ""
  else
    stage "build release" stage_build_tests
    ((failed)) || stage "tests $1" run_programs release yes "" "$1"
  fi
}

# update_program_lists PRESET: brings build/PRESET/test_programs.txt up to date without compiling.
update_program_lists() {
  configure "$1" && cmake --build "$root/build/$1" --target build.ninja -- --quiet >&2
}

run_lint() {
  local start
  start="$(now_ms)"
  setup --full
  stage "format" stage_format
  stage "size of the tracked files" stage_tree_size
  stage "shellcheck" stage_shell
  [[ ${1:-} == --quick ]] || stage "clang-tidy, -Wthread-safety" stage_tidy
  printf '%s\n' "${table[@]}" >&2
  say lint "took $(seconds_since "$start") s, $failed findings"
  ((failed == 0))
}
