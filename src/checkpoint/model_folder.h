// SPDX-License-Identifier: Apache-2.0
// Whether a path is the folder of a model, and if not, what it is and what helps.
#pragma once

#include <filesystem>

#include <heddle/status.h>

namespace heddle::checkpoint {

// Looks at names only, not into files. Error: kNotFound, kInvalidArgument or kUnimplemented with
// the command or the path that helps: nothing there, a file, an empty folder, GGUF files, adapters,
// the folder of several models or of the Hugging Face cache, another layout; a link to nothing, or
// what this user may not read (core/file_presence.h).
Status check_model_folder(const std::filesystem::path& folder);

}  // namespace heddle::checkpoint
