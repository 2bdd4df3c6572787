// SPDX-License-Identifier: Apache-2.0
// Checks whether a path is a model folder or a GGUF file. If not, the error says what the path is
// and what the user can do.
#pragma once

#include <filesystem>
#include <string_view>

#include <heddle/status.h>

namespace heddle::checkpoint {

// Looks only at file names, not into files. Error: kNotFound, kInvalidArgument or kUnimplemented,
// with a command or path that helps, if the path does not exist or is another kind of file, an
// empty folder, a folder with several GGUF models, with adapters, with several models, of the
// Hugging Face cache or of another layout, a dangling link, or unreadable for this user
// (core/file_presence.h).
Status check_model_folder(const std::filesystem::path& folder);

// As check_model_folder(), but also refuses GGUF files, for a command or part of a model, called
// `reader` in the message, that does not read them. Error: as check_model_folder(); kUnimplemented
// for a GGUF file.
Status check_safetensors_folder(const std::filesystem::path& folder, std::string_view reader);

}  // namespace heddle::checkpoint
