// SPDX-License-Identifier: Apache-2.0
// heddle: the program, with one file per subcommand.
#include "tools/cli/subcommand.h"
#include "tools/cli/terminal.h"

int main(int argc, char** argv) {
  using namespace heddle::tools;
  interrupts();  // must be created before any other thread exists
  return run_program(argc, argv, kSubcommands);
}
