// SPDX-License-Identifier: Apache-2.0
// Whether a file of a model folder is there.
//
// std::filesystem::exists() says no for a link whose target was deleted, and for everything in a
// folder that this user may not enter. Hugging Face's cache links the files of a snapshot to a
// folder of blobs, so such links are common. Such a file is reported with its link and
// target, and not taken for one that the folder never had.
//
// Threading: any thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <heddle/status.h>

namespace heddle {

// True for a file or folder that can be opened, false where nothing has that name. Error: kDataLoss
// for a link to nothing, naming link and target; kInvalidArgument for a file that this user may not
// read or reach. Cost: two or three system calls.
[[nodiscard]] Result<bool> file_exists(const std::filesystem::path& path);

// Like file_exists() for a file that the model can do without: a dangling link counts as absent, as
// in transformers. Logs a warning, once for each link while the program runs.
[[nodiscard]] Result<bool> optional_file_exists(const std::filesystem::path& path);

// The error for a file that could not be opened: `error` is the errno. kNotFound where nothing has
// that name, otherwise as file_exists().
[[nodiscard]] Status cannot_open(const std::filesystem::path& path, int error);

// The names in a folder, sorted. Error: kInvalidArgument where it cannot be listed.
[[nodiscard]] Result<std::vector<std::string>> names_in_folder(const std::filesystem::path& folder);

}  // namespace heddle
