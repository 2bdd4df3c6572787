// SPDX-License-Identifier: Apache-2.0
// heddle: one program, one file per subcommand.
#include <array>

#include "subcommand.h"
#include "terminal.h"

int main(int argc, char** argv) {
  using namespace heddle::tools;
  interrupts();  // before any thread exists
  constexpr std::array<const Subcommand*, 9> kSubcommands = {
      &kServe, &kGenerate, &kChat, &kBench, &kVerify, &kEval, &kInspect, &kQuantize, &kExportNextn};
  return run_program(argc, argv, kSubcommands);
}
