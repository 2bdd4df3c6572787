// SPDX-License-Identifier: Apache-2.0
// Whether a file can be written, asked before the work whose result is to go there.
#pragma once

#include <filesystem>

#include <heddle/status.h>

namespace heddle::tools {

enum class ExistingFile {
  kReplace,
  kKeep,  // it is an error, unless the file is empty
};

// Changes nothing. What is no regular file (/dev/stdout, a pipe) may always be written to.
// Error: kInvalidArgument, naming the file and what to do.
Status check_output_file(const std::filesystem::path& path, ExistingFile existing);

}  // namespace heddle::tools
