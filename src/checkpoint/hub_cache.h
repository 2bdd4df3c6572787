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
// Threading: any thread, provided that no thread changes the environment.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <heddle/status.h>

namespace heddle::checkpoint {

// The cache folder: HF_HUB_CACHE, or its old name HUGGINGFACE_HUB_CACHE; otherwise "hub" below
// HF_HOME, below huggingface in XDG_CACHE_HOME, or below ~/.cache/huggingface. The folder need not
// exist. Empty if the environment does not name a home folder either.
[[nodiscard]] std::filesystem::path hub_cache();

// The folder of model `name`: `name` itself if that path exists or the cache lacks the model, so
// that opening it reports what is missing; for OWNER/NAME, NAME, models--OWNER--NAME or the path of
// such a folder, the snapshot of refs/main or the only snapshot. Error: kNotFound for a cached
// model without its snapshot, kInvalidArgument if several snapshots match.
[[nodiscard]] Result<std::filesystem::path> find_model(const std::string& name);

// The name of a model by its path: "OWNER/NAME" for a snapshot in the cache, gguf_model_name() for
// a GGUF file, otherwise the folder's own name.
[[nodiscard]] std::string model_name(const std::filesystem::path& folder);

struct CachedModel {
  std::string name;              // the repository's name, OWNER/NAME
  std::filesystem::path folder;  // the snapshot's folder; empty if find_model() fails
  int64_t bytes = 0;             // total size of all files in the snapshot
};

// All models in hub_cache(), sorted by name. Cost: a system call for each file.
[[nodiscard]] std::vector<CachedModel> cached_models();

}  // namespace heddle::checkpoint
