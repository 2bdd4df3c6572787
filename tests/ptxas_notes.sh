# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the CUDA assembler (ptxas) says about slow code, from the logs that cmake/keep_log.sh leaves beside the
# objects; sourced by stages.sh.

# Notes that are accepted: the name of a kernel, the note, and for registers that are spilled to memory the bytes that
# any of its forms may store. A type stands for the kernels that are compiled for it.
#
# These kernels use all registers that their launch bounds leave, which are chosen for the number of blocks that run on
# a multiprocessor together.
readonly allowed_at_the_limit="
skinny_kernel spill 70
byte_kernel spill 68
delta_step_kernel spill 160
step_kernel spill 56
stream_kernel spill 72
scan_kernel spill 12
prepare_kernel spill 8
experts_kernel spill 24
split_kernel spill 16
chunks_kernel spill 16
up_kernel spill 8
down_kernel spill 4
tiles_kernel spill 28
PackedExperts spill 176
"
# These have registers left: the compiler saves some around what it calls, such as a division of 64-bit integers or the
# reduction of a large angle.
readonly allowed_around_calls="
keep_windows_kernel spill 8
states_kernel spill 16
rope_kernel spill 28
best_kernel spill 12
scored_route_kernel spill 36
"
readonly allowed_ptxas_notes="$allowed_at_the_limit$allowed_around_calls"

# ptxas_notes ALLOWED LOG...: prints "FUNCTION: NOTE" for each note that is not in ALLOWED, a list as the one above:
# setmaxnreg ignored (C7508), products of warp groups that wait for each other (C7510, C7517), spilled registers. Device
# functions count like kernels.
ptxas_notes() {
  local allowed="$1"
  shift
  awk -v allowed="$allowed" '
    BEGIN {
      num_lines = split(allowed, lines, "\n")
      for (i = 1; i <= num_lines; i++) {
        if (split(lines[i], field, " ") >= 2) most[field[1], field[2]] = field[3] == "" ? 1 : field[3]
      }
    }
    # Whether a mangled name has a kernel in it: its length stands before the name.
    function is_of(mangled, name) { return mangled == name || index(mangled, length(name) name) > 0 }
    function found(mangled, note, count, text, key, part) {
      for (key in most) {
        split(key, part, SUBSEP)
        if (part[2] == note && is_of(mangled, part[1]) && count <= most[key]) return
      }
      print mangled ": " text
    }
    FNR == 1 { current = FILENAME }
    / Compiling entry function / { split($0, quoted, "\047"); current = quoted[2] }
    / Function properties for / { current = $NF }
    /\(C75(08|10|17)\)/ {
      function_name = match($0, /function \047[^\047]*\047/) ? substr($0, RSTART + 10, RLENGTH - 11) : current
      note = substr($0, index($0, "(C75") + 1, 5)
      found(function_name, note, 1, substr($0, index($0, "(C75")))
    }
    /bytes spill stores/ {
      match($0, /[0-9]+ bytes spill stores/)
      stores = substr($0, RSTART) + 0
      match($0, /[0-9]+ bytes spill loads/)
      loads = substr($0, RSTART) + 0
      if (stores + loads > 0) found(current, "spill", stores, stores " bytes spill stores, " loads " bytes spill loads")
    }' "$@" | { if command -v c++filt >/dev/null; then c++filt; else cat; fi; }
}
