// SPDX-License-Identifier: Apache-2.0
// Whether a path is the folder of a model or a GGUF file, and if not, what it is and what helps.
#pragma once

#include <filesystem>
#include <string_view>

#include <heddle/status.h>

namespace heddle::checkpoint {

// Looks at names only, not into files. Error: kNotFound, kInvalidArgument or kUnimplemented with
// the command or the path that helps: nothing there, another file, an empty folder, several GGUF
// models, adapters, the folder of several models or of the Hugging Face cache, another layout; a
// link to nothing, or what this user may not read (core/file_presence.h).
Status check_model_folder(const std::filesystem::path& folder);

// The same for `reader`, a command or part of a model that does not read GGUF files. Error: as
// above; kUnimplemented for a GGUF file.
Status check_safetensors_folder(const std::filesystem::path& folder, std::string_view reader);

}  // namespace heddle::checkpoint
