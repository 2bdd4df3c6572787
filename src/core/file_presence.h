// SPDX-License-Identifier: Apache-2.0
// Tells whether a file of a model folder exists.
//
// std::filesystem::exists() returns false for a link whose target was deleted, and for everything
// in a folder that this user may not enter. Hugging Face's cache links the files of a snapshot to a
// folder of blobs, so such links are common. Such a file is reported as an error, with its link and
// target, and not treated as absent.
//
// Threading: any thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <heddle/status.h>

namespace heddle {

// True for a file or folder that can be opened, false if nothing has that name. Error: kDataLoss
// for a dangling link, with the link and its target; kInvalidArgument for a file that this user may
// not read or reach. Cost: two or three system calls.
[[nodiscard]] Result<bool> file_exists(const std::filesystem::path& path);

// file_exists() for a file that the model does not need: a dangling link counts as absent, as in
// transformers. Logs a warning, once per link while the program runs.
[[nodiscard]] Result<bool> optional_file_exists(const std::filesystem::path& path);

// The error for a file that could not be opened; `error` is the errno. kNotFound if nothing has
// that name, otherwise as file_exists().
[[nodiscard]] Status cannot_open(const std::filesystem::path& path, int error);

// The names in a folder, sorted. Error: kInvalidArgument if the folder cannot be listed.
[[nodiscard]] Result<std::vector<std::string>> names_in_folder(const std::filesystem::path& folder);

}  // namespace heddle
