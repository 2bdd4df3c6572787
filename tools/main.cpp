// SPDX-License-Identifier: Apache-2.0
// heddle: one program, one file per subcommand.
#include "subcommand.h"
#include "terminal.h"

int main(int argc, char** argv) {
  using namespace heddle::tools;
  interrupts();  // created before any other thread exists
  return run_program(argc, argv, kSubcommands);
}
