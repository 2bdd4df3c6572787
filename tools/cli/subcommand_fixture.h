// SPDX-License-Identifier: Apache-2.0
// For tests: runs a subcommand as the program would, and keeps what it says of errors.
#pragma once

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tools/cli/subcommand.h"

namespace heddle::tools {

struct Outcome {
  int exit_code = 0;
  std::string errors;
};

// The arguments are those behind the subcommand's name.
inline Outcome run_captured(const Subcommand& command, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"heddle", std::string(command.name)});
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  const std::array<const Subcommand*, 1> commands = {&command};
  ::testing::internal::CaptureStderr();
  Outcome outcome;
  outcome.exit_code = run_program(static_cast<int>(pointers.size()), pointers.data(), commands);
  outcome.errors = ::testing::internal::GetCapturedStderr();
  return outcome;
}

}  // namespace heddle::tools
