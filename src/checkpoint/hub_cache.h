// SPDX-License-Identifier: Apache-2.0
// The cache of Hugging Face's hub on this machine, where `hf download` and every Python library put
// models. Below it a repository OWNER/NAME is a folder
//
//   models--OWNER--NAME/refs/main               the commit that the branch was at
//   models--OWNER--NAME/snapshots/<commit>/     the model's folder: links into blobs/
//
// (https://huggingface.co/docs/huggingface_hub/guides/manage-cache). Only read; nothing is
// downloaded.
//
// Threading: any thread, while nobody changes the environment.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <heddle/status.h>

namespace heddle::checkpoint {

// HF_HUB_CACHE, or its old name HUGGINGFACE_HUB_CACHE; else "hub" below HF_HOME, below huggingface
// in XDG_CACHE_HOME, or below ~/.cache/huggingface. It need not exist; empty where the environment
// names no home either.
[[nodiscard]] std::filesystem::path hub_cache();

// The folder of model `name`: `name` itself if that path exists or the cache lacks the model, so
// that opening it reports what is missing; for OWNER/NAME, NAME, models--OWNER--NAME or the path of
// such a folder, the snapshot of refs/main or the only snapshot. Error: kNotFound for a cached
// model without its snapshot, kInvalidArgument if several snapshots match.
[[nodiscard]] Result<std::filesystem::path> find_model(const std::string& name);

// "OWNER/NAME" for the folder of a snapshot, otherwise the folder's own name; gguf_model_name() of
// a GGUF file.
[[nodiscard]] std::string model_name(const std::filesystem::path& folder);

struct CachedModel {
  std::string name;              // OWNER/NAME
  std::filesystem::path folder;  // the snapshot's folder; empty if find_model() fails
  int64_t bytes = 0;             // all files of the snapshot together
};

// Every model of hub_cache(), by name. Cost: a system call for each file.
[[nodiscard]] std::vector<CachedModel> cached_models();

}  // namespace heddle::checkpoint
