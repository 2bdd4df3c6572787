// SPDX-License-Identifier: Apache-2.0
// Functions for commands that write a copy of a model: they check the output folder, name the
// shards, write their index, and copy the files that do not change.
//
// Threading: free functions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include <heddle/status.h>

namespace heddle::checkpoint {

// Returns the path that the user gave for a new folder, without a slash at its end. Error:
// kInvalidArgument if it is empty or exists.
Result<std::filesystem::path> check_output(const std::filesystem::path& output);

// "model-00001-of-00003.safetensors" for index 0 of 3; "model.safetensors" for a single shard.
[[nodiscard]] std::string shard_name(size_t index, size_t num_shards);

// Error: kDataLoss if the file cannot be written.
Status write_text(const std::filesystem::path& path, const std::string& text);

// Writes the index of several shards. `shards` has the shard of each tensor, by the tensor's name.
// Error: as write_text().
Status write_index(const std::filesystem::path& folder,
                   const std::map<std::string, std::string>& shards, int64_t num_bytes);

// Copies the plain files of a model's folder, such as tokenizer, templates and licence, but not
// config.json, weights in any form or their indices. Replaces files that exist. Error: kDataLoss.
Status copy_beside_weights(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace heddle::checkpoint
