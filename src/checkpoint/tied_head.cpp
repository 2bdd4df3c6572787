// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tied_head.h"

#include <cstring>

#include <fmt/format.h>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/readable.h"

namespace heddle::checkpoint {
namespace {

// The first tensor whose name has this ending; nested models have a prefix before it. Tensors of a
// prediction head are skipped.
std::string_view find_tensor(const std::vector<std::string_view>& names, std::string_view ending) {
  for (const std::string_view name : names) {
    if (!name.ends_with(ending) || name.starts_with("mtp.")) continue;
    if (name.size() == ending.size() || name[name.size() - ending.size() - 1] == '.') return name;
  }
  return {};
}

}  // namespace

void settle_tied_head(const std::filesystem::path& folder, ModelConfig& config) {
  if (!config.tie_word_embeddings) return;
  const Result<CheckpointFiles> files = CheckpointFiles::open(folder);
  if (!files.ok()) return;
  const std::vector<std::string_view> names = files->names();
  const std::string_view head_name = find_tensor(names, "lm_head.weight");
  const std::string_view table_name = find_tensor(names, "embed_tokens.weight");
  if (head_name.empty() || table_name.empty()) return;
  const TensorEntry& head = *files->entry(head_name);
  const TensorEntry& table = *files->entry(table_name);
  const auto data_of = [&](std::string_view name) {
    return files->find({.name = std::string(name), .shape = {}})->data;
  };
  if (head.stored_dtype == table.stored_dtype && head.shape == table.shape &&
      std::memcmp(data_of(head_name), data_of(table_name),
                  static_cast<size_t>(head.end - head.begin)) == 0) {
    return;
  }
  config.tie_word_embeddings = false;
  config.notes.push_back(fmt::format(
      "config.json has tie_word_embeddings true, and {} is stored with other values than "
      "{}; the stored head is used",
      readable(head_name), readable(table_name)));
}

}  // namespace heddle::checkpoint
